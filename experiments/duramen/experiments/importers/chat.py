"""OpenAI chat JSONL: one request per line, or one finished conversation per line.

A line is an object with `messages`, and optionally `tools`, `timestamp` (Unix seconds or
milliseconds, or ISO; without a zone it is UTC), `usage`, a session id (`session_id` or
`conversation_id`) and the reply: `response` (a chat completion, {"message": ...}, a message or
text) or `choices`. Messages, replies and tools stay exactly as they are. `response: null` or an
`error` in its place is a call without reply.

Which lines belong together: those with the same session id; a line without one continues the last
line whose messages it extends. A line without reply whose last message is the assistant's (or that
has assistant messages and nothing but `messages` and `tools`) is a finished conversation: every
assistant message is one call with all before it as derived prompt. A JSON list of messages alone is
one, too. A reply that was not logged is derived from the next call of the session where that shows
it. Calls with a timestamp each are put in the order of time. What a log says of itself in `origins`
({"time_s": "assumed"}) holds over what its form tells; the first line of a session speaks for it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import pairwise

import msgspec

from duramen.experiments.importers.chat_line import ChatLine, parse_line
from duramen.experiments.importers.documents import Document
from duramen.experiments.importers.messages import conversation_calls
from duramen.experiments.trajectory import Call, Message, Origin, Session, Tool, Usage
from duramen.layout.errors import TrajectoryError


def read_chat(documents: Iterator[Document], name: str) -> Iterator[Session]:
    """Conversations are yielded as they are read, sessions of requests at the end of the file."""
    grouping = _Grouping()
    finished: set[str] = set()
    for index, (where, value) in enumerate(documents):
        line = parse_line(where, value)
        if not line.is_conversation:
            grouping.add(line, f"{name}:{index + 1}")
            continue
        if line.session_id in finished:
            raise TrajectoryError(
                f"{where}: conversation {line.session_id!r} stands on an earlier line, too; "
                "expected one line per finished conversation"
            )
        if line.session_id is not None:
            finished.add(line.session_id)
        yield _conversation(line, line.session_id or f"{name}:{index + 1}")
    for session in grouping.sessions:
        yield session.finish()


def _conversation(line: ChatLine, session_id: str) -> Session:
    origins = {"messages": Origin.DERIVED, "reply": Origin.RECORDED}
    if line.tools is not None:
        origins["tools"] = Origin.RECORDED
    if line.time_s is not None:
        origins["start_time_s"] = Origin.RECORDED
    calls = conversation_calls(line.messages)
    return Session(session_id, calls, line.tools or (), line.time_s, origins | line.origins)


@dataclass
class _Requests:
    """The requests of one session, in file order. Equal messages become one object."""

    session_id: str
    lines: list[ChatLine] = field(default_factory=list)
    seen: dict[bytes, Message] = field(default_factory=dict)

    def add(self, line: ChatLine, digests: list[bytes]) -> None:
        messages = [
            self.seen.setdefault(digest, message)
            for digest, message in zip(digests, line.messages, strict=True)
        ]
        self.lines.append(line.with_messages(tuple(messages)))

    def finish(self) -> Session:
        lines = self.lines
        times = [line.time_s for line in lines if line.time_s is not None]
        if len(times) == len(lines):
            lines = sorted(lines, key=lambda line: line.time_s or 0.0)
        start = min(times, default=None)
        tools = lines[0].tools or ()
        derived = [_reply_in(line, after) for line, after in pairwise(lines)] + [None]
        calls = tuple(
            Call(
                messages=line.messages,
                reply=line.reply or reply,
                time_s=None if line.time_s is None or start is None else line.time_s - start,
                usage=line.usage,
                tools=None if _same_tools(line.tools or (), tools) else line.tools or (),
            )
            for line, reply in zip(lines, derived, strict=True)
        )
        return Session(self.session_id, calls, tools, start, self._origins(calls))

    def _origins(self, calls: tuple[Call, ...]) -> dict[str, Origin]:
        origins = {"messages": Origin.RECORDED, "tools": Origin.RECORDED}
        num_logged = sum(line.reply is not None for line in self.lines)
        num_replies = sum(call.reply is not None for call in calls)
        if num_replies:
            origins["reply"] = Origin.RECORDED if num_logged == num_replies else Origin.DERIVED
        if any(call.time_s is not None for call in calls):
            origins |= {"time_s": Origin.RECORDED, "start_time_s": Origin.RECORDED}
        if any(call.usage != Usage() for call in calls):
            origins["usage"] = Origin.RECORDED
        return origins | self.lines[0].origins


class _Grouping:
    """Which session a request belongs to.

    Requests without a session id are found again by the digests of their leading messages: the
    session whose last request is the longest proper prefix of the new one continues.
    """

    def __init__(self) -> None:
        self.sessions: list[_Requests] = []
        self._by_id: dict[str, _Requests] = {}
        self._by_prefix: dict[bytes, _Requests] = {}

    def add(self, line: ChatLine, new_id: str) -> None:
        digests = [blake2b(msgspec.json.encode(m), digest_size=16).digest() for m in line.messages]
        if line.session_id is not None:
            session = self._by_id.get(line.session_id) or self._open(line.session_id)
            self._by_id[line.session_id] = session
        else:
            prefixes = _prefix_digests(digests)
            session = self._continued(prefixes) or self._open(new_id)
            self._by_prefix[prefixes[-1]] = session
        session.add(line, digests)

    def _open(self, session_id: str) -> _Requests:
        session = _Requests(session_id)
        self.sessions.append(session)
        return session

    def _continued(self, prefixes: list[bytes]) -> _Requests | None:
        for prefix in reversed(prefixes[:-1]):
            if prefix in self._by_prefix:
                return self._by_prefix.pop(prefix)
        return None


def _prefix_digests(digests: list[bytes]) -> list[bytes]:
    running = blake2b(digest_size=16)
    prefixes = []
    for digest in digests:
        running.update(digest)
        prefixes.append(running.digest())
    return prefixes


def _reply_in(line: ChatLine, after: ChatLine) -> Message | None:
    """The reply to `line` as the next request quotes it, if that continues it."""
    num_sent = len(line.messages)
    if len(after.messages) <= num_sent or after.messages[:num_sent] != line.messages:
        return None
    reply = after.messages[num_sent]
    return reply if reply["role"] == "assistant" else None


def _same_tools(left: tuple[Tool, ...], right: tuple[Tool, ...]) -> bool:
    """Equal with their keys in the same order: another order is another prompt."""
    return msgspec.json.encode(left) == msgspec.json.encode(right)
