"""First calls are compared by their roots: the system text and the tools that stand before a task.

Another task is no break. A root that is almost the same as an earlier one is: a clock, an id or
another order of tools in it breaks everything behind it.
"""

import json
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile
from operator import is_

from duramen.experiments.trajectory import Message
from duramen.experiments.why.rendering import Rendered
from duramen.layout.delta import common_text
from duramen.layout.diagnose.sent import Request, Sent
from duramen.layout.spans import data_extents

NUM_REMEMBERED = 64
MAX_CHARACTERS = 2**16  # of a root; what is behind is not compared
MIN_ALIKE = 0.5  # of the longer text, in a common beginning and end: then it is the same root
SYSTEM = ("system", "developer")


@dataclass(frozen=True)
class Root:
    """The head of a call in all its layers, and which call that was."""

    session: str
    call: int
    sent: Sent

    @property
    def text(self) -> str:
        return str.__getitem__(self.sent.text or "", slice(MAX_CHARACTERS))

    @cached_property
    def tools(self) -> Counter[str]:
        """The tools as texts, however their keys are ordered."""
        request = self.sent.request
        tools = () if request is None else request.tools
        return Counter(json.dumps(tool, sort_keys=True, default=str) for tool in tools)

    @cached_property
    def system(self) -> str:
        messages = () if self.sent.request is None else self.sent.request.messages
        return "\n".join(str(message.get("content"))[:MAX_CHARACTERS] for message in messages)

    @property
    def num_tokens(self) -> int:
        return len(self.sent.token_ids or ())


@dataclass
class Roots:
    """The last roots of a log, each once."""

    _roots: deque[Root] = field(default_factory=lambda: deque(maxlen=NUM_REMEMBERED))

    def most_like(self, root: Root) -> Root | None:
        """The newest of those that are most like it; None where none is."""
        best, most = None, MIN_ALIKE
        for other in self._roots:
            alike = max(alikeness(other.text, root.text), _alike_by_parts(other, root))
            if alike >= most:
                best, most = other, alike
        return best

    def add(self, root: Root) -> None:
        same = [other for other in self._roots if other.text == root.text]
        for other in same:
            self._roots.remove(other)
        self._roots.append(root)


def root_of(session: str, call: int, rendered: Rendered, request: Request) -> Root | None:
    """None where the prompt has no root of its own: neither system text nor tools."""
    system = list(takewhile(lambda message: message.get("role") in SYSTEM, rendered.messages))
    if not (system or request.tools) or not rendered.anchors:
        return None
    character, token = rendered.anchors[-1]
    extents = data_extents(rendered.text)
    behind = [start for origin, (start, _) in extents.items() if origin > len(system)]
    if behind:
        first = min(behind)
        character, token = next(
            ((c, t) for c, t in reversed(rendered.anchors) if c <= first), (0, 0)
        )
    if not token:
        return None
    head = Request(system, request.tools, request.options, request.keys)
    text, ids = rendered.text[:character], rendered.token_ids[:token].tolist()
    return Root(session, call, Sent(head, text, ids))


def alikeness(a: str, b: str) -> float:
    """0 to 1: the part of the longer text that both begin and end with."""
    head = common_text(a, b)
    tail = common_text(a[head:][::-1], b[head:][::-1])
    return (head + tail) / max(len(a), len(b), 1)


def _alike_by_parts(a: Root, b: Root) -> float:
    """The same, with the tools in any order: 0 without tools in common."""
    both = a.tools & b.tools
    if not both:
        return 0.0
    system = alikeness(a.system, b.system) * max(len(a.system), len(b.system))
    longer = max(len(root.system) + _num_characters(root.tools) for root in (a, b))
    return (system + _num_characters(both)) / longer


def _num_characters(texts: Counter[str]) -> int:
    return sum(len(text) * num for text, num in texts.items())


def is_other_conversation(before: Rendered, after: Rendered, reply: Message | None = None) -> bool:
    """Whether two calls of one session have nothing to do with each other: heads that are not
    alike, and neither a message nor the earlier reply in common; of other agents, which have other
    system texts, users' messages may be. `reply`: to `before`, None where it is not on record."""
    same = _in_common(before.messages, after.messages)
    if same and not _has_other_agent(before.messages, after.messages, reply):
        return False
    if same:
        return True
    if reply is not None and reply in after.messages:
        return False
    return alikeness(_head(before.messages), _head(after.messages)) < MIN_ALIKE


def are_first_questions(before: Rendered, after: Rendered) -> bool:
    """Whether both calls ask something that no reply stands before, and nothing that both ask."""
    asked = [
        [message for message in each.messages if message.get("role") not in SYSTEM]
        for each in (before, after)
    ]
    is_first = all(message.get("role") == "user" for each in asked for message in each)
    return is_first and not _in_common(*asked)


def _has_other_agent(
    before: Sequence[Message], after: Sequence[Message], reply: Message | None
) -> bool:
    """By system texts that are not alike, where the later call does not begin with what the earlier
    one began with, or goes on from no reply that it had or got."""
    replies = [message for message in after if message.get("role") not in (*SYSTEM, "user")]
    goes_on = replies and (reply is None or reply in replies)
    goes_on = goes_on or any(message in replies for message in before)
    if goes_on and _first_asked(before) == _first_asked(after):
        return False
    was, now = (_system(each) for each in (before, after))
    return bool(was and now) and alikeness(was, now) < MIN_ALIKE


def _first_asked(messages: Sequence[Message]) -> Message | None:
    return next((message for message in messages if message.get("role") not in SYSTEM), None)


def _in_common(before: Sequence[Message], after: Sequence[Message]) -> bool:
    if any(map(is_, before, after)):
        return True
    known = {id(message) for message in before}
    if any(id(message) in known for message in after):
        return True
    return any(a == b for a, b in zip(before, after, strict=False))


def _system(messages: Sequence[Message]) -> str:
    system = takewhile(lambda message: message.get("role") in SYSTEM, messages)
    return "\n".join(str(message.get("content"))[:MAX_CHARACTERS] for message in system)


def _head(messages: Sequence[Message]) -> str:
    """The text up to the first user message."""
    texts = []
    for message in messages:
        texts.append(str(message.get("content"))[:MAX_CHARACTERS])
        if message.get("role") == "user":
            break
    return "\n".join(texts)
