"""The lines of a Claude Code session as a tree of messages: whose ancestors make up a prompt."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, groupby, takewhile
from typing import Any

from duramen.experiments.importers.anthropic_body import anthropic_messages, read_anthropic_reply
from duramen.experiments.importers.body import text_in
from duramen.experiments.importers.documents import Document
from duramen.experiments.importers.messages import check_messages
from duramen.experiments.importers.times import time_or_none
from duramen.experiments.trajectory import Message
from duramen.layout.errors import TrajectoryError


@dataclass(eq=False)
class Node:
    """A user's line, all lines of one reply, or a boundary of compaction, which has no messages.

    `line` and `message` are the first line's and its message; times are Unix seconds. `index`: in
    the order of the file.
    """

    index: int
    where: str
    line: Mapping[str, Any]
    message: Mapping[str, Any]
    is_reply: bool = False
    starts_anew: bool = False  # nothing before it is in a prompt that holds it
    messages: Sequence[Message] = ()
    blocks: list[Any] = field(default_factory=list)
    usage: Any = None
    start_s: float | None = None
    end_s: float | None = None
    results: list["Node"] = field(default_factory=list)

    @property
    def is_side(self) -> bool:
        return self.line.get("isSidechain") is True

    @property
    def call_ids(self) -> set[Any]:
        calls = (call for message in self.messages for call in message.get("tool_calls", ()))
        return {call["id"] for call in calls if isinstance(call["id"], str)}

    @cached_property
    def answers(self) -> set[Any]:
        ids = (m.get("tool_call_id") for m in self.messages if m["role"] == "tool")
        return {call_id for call_id in ids if isinstance(call_id, str)}


class Tree:
    """Add all lines, then ask. `num_broken`: messages that were left out."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.num_broken = 0
        self._by_uuid: dict[str, Node] = {}
        self._by_message: dict[tuple[Any, ...], Node] = {}
        self._passed: dict[str, str | None] = {}  # lines that are no message, to their parent
        self._previous: dict[tuple[Any, ...], Node] = {}
        self._before: dict[Node, Node | None] = {}
        self._parents: dict[Node, Node | None] = {}  # of the whole tree, as they are asked for
        self._is_linked = False

    def add(self, document: Document) -> None:
        where, line = document
        if not isinstance(line, dict):
            self.num_broken += 1
            return
        self._is_linked |= isinstance(line.get("parentUuid"), str)
        try:
            self._add(line, where)
        except TrajectoryError:
            self.num_broken += 1
            self._pass(line)

    def session_of(self, node: Node) -> str | None:
        """The id of the session, with that of the side chain behind it; None: the file's name."""
        session_id = text_in(node.line, "sessionId", "session_id")
        if not node.is_side:
            return session_id
        agent_id = text_in(node.line, "agentId")
        if agent_id is None:
            inside = [*takewhile(lambda n: n.is_side, [node, *self._ancestors(node)])]
            agent_id = text_in(inside[-1].line, "uuid") or "sidechain"
        if session_id is None or agent_id in session_id:
            return session_id or agent_id
        return f"{session_id}:{agent_id}"

    def history_of(self, reply: Node) -> list[Node]:
        """What stands in the prompt of `reply`, in order."""
        path: list[Node] = []
        is_side = reply.is_side
        for node in self._ancestors(reply):
            if not node.messages or (is_side and not node.is_side):
                break  # an agent does not see what its caller saw
            path.append(node)
            if node.starts_anew:
                break
        path.reverse()
        answered = {call_id for node in path for call_id in node.answers}
        history: list[Node] = []
        for node in path:
            history.append(node)
            for result in node.results:
                open_ids = (node.call_ids & result.answers) - answered
                if result.index < reply.index and open_ids:
                    history.append(result)
                    answered |= open_ids
        runs = groupby(history, key=lambda node: bool(node.answers))
        in_order = (sorted(run, key=_index) if is_result else run for is_result, run in runs)
        return [*chain.from_iterable(in_order)]

    def _ancestors(self, node: Node) -> list[Node]:
        found: list[Node] = []
        met = {node}
        while True:
            if node not in self._parents:
                self._parents[node] = self._parent(node)
            before = self._parents[node]
            if before is None or before in met:
                return found
            met.add(before)
            found.append(before)
            node = before

    def _parent(self, node: Node) -> Node | None:
        uuid = node.line.get("parentUuid")
        met: set[str] = set()
        while isinstance(uuid, str) and uuid not in met:
            met.add(uuid)
            if uuid in self._by_uuid and self._by_uuid[uuid] is not node:
                return self._by_uuid[uuid]
            uuid = self._passed.get(uuid)
        if node.is_reply or not self._is_linked:
            return self._before[node]
        return None

    def _add(self, line: dict[str, Any], where: str) -> None:
        kind = line.get("type")
        message = line.get("message")
        if kind == "system" and line.get("subtype") == "compact_boundary":
            self._append(Node(len(self.nodes), where, line, {}, starts_anew=True))
        elif kind == "user" or (kind is None and _role(message) == "user"):
            self._add_user(line, where)
        elif kind == "assistant" or (kind is None and _role(message) == "assistant"):
            self._add_reply(line, where)
        else:
            self._pass(line)

    def _add_user(self, line: dict[str, Any], where: str) -> None:
        message = _object(line.get("message"), where)
        made = anthropic_messages("user", message.get("content"), where, "message.content")
        node = Node(len(self.nodes), where, line, message, messages=check_messages(made, where))
        node.starts_anew = line.get("isCompactSummary") is True
        self._append(node)
        parent = self._parent(node)
        if parent is not None and parent.is_reply and node.answers:
            parent.results.append(node)

    def _add_reply(self, line: dict[str, Any], where: str) -> None:
        message = _object(line.get("message"), where)
        if line.get("isApiErrorMessage") is True or message.get("model") == "<synthetic>":
            self._pass(line)
            return
        content = message.get("content")
        read_anthropic_reply(message, where, "message")  # raises where it is broken
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
        names = (message.get("id"), message.get("model"), line.get("sessionId"))
        key = (*map(str, names), str(line.get("agentId")))
        node = self._by_message.get(key) if isinstance(names[0], str) else None
        if node is None:
            node = Node(len(self.nodes), where, line, message, is_reply=True)
            self._append(node)
            if isinstance(names[0], str):
                self._by_message[key] = node
        else:
            self._name(node, line)
        node.blocks += [block for block in blocks if not _stands_in(block, node.blocks)]
        node.messages = (read_anthropic_reply({"content": node.blocks}, where, "message"),)
        node.usage = message.get("usage", node.usage)

    def _append(self, node: Node) -> None:
        key = tuple(str(node.line.get(k)) for k in ("sessionId", "isSidechain", "agentId"))
        self._before[node] = self._previous.get(key)
        self._previous[key] = node
        self.nodes.append(node)
        self._name(node, node.line)

    def _name(self, node: Node, line: Mapping[str, Any]) -> None:
        time_s = time_or_none(line.get("timestamp"))
        node.start_s = time_s if node.start_s is None else node.start_s
        node.end_s = node.end_s if time_s is None else time_s
        if isinstance(line.get("uuid"), str):
            self._by_uuid.setdefault(line["uuid"], node)

    def _pass(self, line: Mapping[str, Any]) -> None:
        if isinstance(line.get("uuid"), str):
            self._passed.setdefault(line["uuid"], text_in(line, "parentUuid"))


def _index(node: Node) -> int:
    return node.index


def _stands_in(block: Mapping[str, Any], blocks: Sequence[Mapping[str, Any]]) -> bool:
    """A call of a tool stands in a reply once, even where a line comes twice."""
    return block.get("id") is not None and any(block.get("id") == b.get("id") for b in blocks)


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TrajectoryError(f"{where}: message is no object")
    return value


def _role(message: Any) -> Any:
    return message.get("role") if isinstance(message, dict) else None
