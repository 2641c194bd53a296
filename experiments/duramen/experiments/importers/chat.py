"""OpenAI chat JSONL: one request per line, or one finished conversation per line.

A line is an object with `messages`, and optionally `tools`, `timestamp` (Unix seconds or
milliseconds, or ISO; without a zone it is UTC), `usage`, a session id (`session_id` or
`conversation_id`) and the reply: `response` (a chat completion, {"message": ...}, a message or
text) or `choices`. Messages, replies and tools stay exactly as they are, but for the cache_control
of gateways, which Sending.marks keeps. `response: null` or an `error` in its place is a call
without reply. Of a line with a `model` the keys that are not the log's are those of the body.

Which lines belong together: those with the same session id; a line without one continues the last
line whose messages it extends (importers.grouping). A line without reply whose last message is the
assistant's (or that has assistant messages and nothing but `messages` and `tools`) is a finished
conversation: every assistant message is one call with all before it as derived prompt. A JSON list
of messages alone is one, too. A reply that was not logged is derived from the next call of the
session where that shows it. Calls with a timestamp each are put in the order of time. What a log
says of itself in `origins` ({"time_s": "assumed"}) holds over what its form tells; the first line
of a session speaks for it.
"""

from collections.abc import Iterator

from duramen.experiments.importers.chat_line import ChatLine, parse_line
from duramen.experiments.importers.documents import Document
from duramen.experiments.importers.grouping import Grouping
from duramen.experiments.importers.messages import conversation_calls
from duramen.experiments.trajectory import Origin, Session
from duramen.layout.errors import TrajectoryError


def read_chat(documents: Iterator[Document], name: str) -> Iterator[Session]:
    """Conversations are yielded as they are read, sessions of requests at the end of the file."""
    grouping = Grouping()
    finished: set[str] = set()
    for index, (where, value) in enumerate(documents):
        line = parse_line(where, value)
        if not line.is_conversation:
            grouping.add(line.logged, f"{name}:{index + 1}")
            continue
        session_id = line.logged.session_id
        if session_id in finished:
            raise TrajectoryError(
                f"{where}: conversation {session_id!r} stands on an earlier line, too; "
                "expected one line per finished conversation"
            )
        if session_id is not None:
            finished.add(session_id)
        yield _conversation(line, session_id or f"{name}:{index + 1}")
    for session in grouping.sessions:
        yield session.finish()


def _conversation(line: ChatLine, session_id: str) -> Session:
    logged = line.logged
    origins = {"messages": Origin.DERIVED, "reply": Origin.RECORDED}
    if logged.tools is not None:
        origins["tools"] = Origin.RECORDED
    if logged.time_s is not None:
        origins["start_time_s"] = Origin.RECORDED
    calls = conversation_calls(logged.messages)
    return Session(session_id, calls, logged.tools or (), logged.time_s, origins | logged.origins)
