"""Claude Code sessions: JSONL, a line per user message and per content block of a reply.

The form is not documented; told from sessions of versions 1.0 to 2.1 and their readers
(daaain/claude-code-log, ryoppippi/ccusage). One API call writes several lines: they share
`message.id`, their blocks are one reply, and their usage repeats while it grows, so the last one
counts. Lines are a tree by `parentUuid`: a prompt is the line's ancestors, with all results of a
call's tools behind it (parallel results stand on side branches). A line of `compact_boundary`, or a
compact summary, begins the history anew. A side chain (an agent's file, or `isSidechain` lines) is
a session of its own. A file without parents is one chain.

Not in the log: the system prompt, the tools and the texts that Claude Code makes of attachments. So
the messages count as assumed, and a prompt is shorter than `usage` says. Lines that are no message
(summary, progress, attachment, ...) are passed over; so are a message that is broken (it is
counted), and replies that Claude Code wrote itself (model `<synthetic>`, isApiErrorMessage).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from duramen.experiments.importers.body import text_in
from duramen.experiments.importers.claude_code_tree import Node, Tree
from duramen.experiments.importers.documents import Document
from duramen.experiments.importers.messages import check_usage
from duramen.experiments.importers.times import between, offsets_of
from duramen.experiments.trajectory import Call, Origin, Sending, Session, Usage
from duramen.layout.errors import TrajectoryError

NOT_LOGGED = "Claude Code logs neither system prompt nor tools: prompts are shorter than were sent"
WRITES_S = {"ephemeral_5m_input_tokens": 300.0, "ephemeral_1h_input_tokens": 3600.0}
KINDS = {"user", "assistant", "summary", "system", "progress", "attachment", "queue-operation"}
ITS_KEYS = {"sessionId", "parentUuid", "isSidechain", "leafUuid", "uuid", "message"}


def is_claude_code(value: Mapping[str, Any]) -> bool:
    if "payload" in value or "messages" in value:
        return False
    if value.get("type") == "file-history-snapshot":
        return True
    message = value.get("message")
    is_usage_line = "requestId" in value and isinstance(message, dict) and "usage" in message
    kind = value.get("type")
    return is_usage_line or (
        isinstance(kind, str) and (kind in KINDS or "sessionId" in value) and _is_its(value)
    )


def _is_its(value: Mapping[str, Any]) -> bool:
    return bool(ITS_KEYS & value.keys()) and isinstance(value.get("message", {}), dict | str)


def read_claude_code(documents: Iterator[Document], name: str) -> Iterator[Session]:
    """Raises TrajectoryError where no line holds a reply with text."""
    tree = Tree()
    where = ""
    num_usage_lines = 0
    for document in documents:
        where = where or document.where
        num_usage_lines += _has_usage(document.value)
        tree.add(document)
    runs: dict[str, _Run] = {}
    for node in tree.nodes:
        session_id = tree.session_of(node) or name
        run = runs.setdefault(session_id, _Run())
        if node.is_reply:
            run.add(node, tree)
    sessions = [run.session(key, tree.num_broken) for key, run in runs.items() if run.calls]
    if not sessions:
        raise TrajectoryError(
            f"{where}: Claude Code lines ({num_usage_lines} with usage), but no reply with text: "
            "they cannot be laid out; expected whole session files (~/.claude/projects)"
        )
    yield from sessions


def _has_usage(value: Any) -> bool:
    message = value.get("message") if isinstance(value, dict) else None
    return isinstance(message, dict) and isinstance(message.get("usage"), dict)


@dataclass
class _Run:
    calls: list[Call] = field(default_factory=list)
    asked_s: list[float | None] = field(default_factory=list)

    def add(self, node: Node, tree: Tree) -> None:
        history = tree.history_of(node)
        messages = tuple(message for before in history for message in before.messages)
        asked_s = history[-1].end_s if history else node.start_s
        self.asked_s.append(asked_s if asked_s is not None else node.start_s)
        effort = node.line.get("effort")
        self.calls.append(
            Call(
                messages,
                node.messages[0],
                usage=check_usage(node.usage, node.where, "message.usage"),
                sending=Sending(
                    provider="anthropic",
                    model=text_in(node.message, "model"),
                    options={"effort": effort} if isinstance(effort, str) else {},
                    duration_s=between(asked_s, node.end_s),
                    ttl_s=_ttl_s(node.usage),
                ),
            )
        )

    def session(self, session_id: str, num_broken: int) -> Session:
        start_s, offsets = offsets_of(self.asked_s)
        calls = zip(_with_efforts(self.calls), offsets, strict=True)
        origins = {"messages": Origin.ASSUMED, "reply": Origin.RECORDED}
        if start_s is not None:
            origins |= {"time_s": Origin.DERIVED, "start_time_s": Origin.DERIVED}
        if any(call.usage != Usage() for call in self.calls):
            origins["usage"] = Origin.RECORDED
        notes = [NOT_LOGGED]
        if num_bare := sum(not call.messages for call in self.calls):
            notes.append(f"{num_bare} replies stand without any message before them")
        if num_broken:
            notes.append(f"{num_broken} lines of the file are broken and were left out")
        return Session(
            session_id,
            tuple(replace(call, time_s=time_s) for call, time_s in calls),
            start_time_s=start_s,
            origins=origins,
            notes=tuple(notes),
        )


def _with_efforts(calls: Sequence[Call]) -> Iterator[Call]:
    """A call whose lines bear no effort has that of the call before it, the first ones that of the
    first that bears one: that it is not on record is no change of it."""
    options = next((call.sending.options for call in calls if call.sending.options), {})
    for call in calls:
        options = call.sending.options or options
        yield replace(call, sending=replace(call.sending, options=options))


def _ttl_s(usage: Any) -> float | None:
    """How long what the call wrote is kept, as the usage tells it apart."""
    writes = usage.get("cache_creation") if isinstance(usage, dict) else None
    if not isinstance(writes, dict):
        return None
    given = (ttl_s for key, ttl_s in WRITES_S.items() if writes.get(key))
    return max(given, default=None)
