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


def is_other_conversation(before: Rendered, after: Rendered) -> bool:
    """Whether two calls of one session have nothing to do with each other: no message in common,
    and heads that are not alike."""
    if any(map(is_, before.messages, after.messages)):
        return False
    known = {id(message) for message in before.messages}
    if any(id(message) in known for message in after.messages):
        return False
    if any(a == b for a, b in zip(before.messages, after.messages, strict=False)):
        return False
    return alikeness(_head(before.messages), _head(after.messages)) < MIN_ALIKE


def _head(messages: Sequence[Message]) -> str:
    """The text up to the first user message."""
    texts = []
    for message in messages:
        texts.append(str(message.get("content"))[:MAX_CHARACTERS])
        if message.get("role") == "user":
            break
    return "\n".join(texts)
