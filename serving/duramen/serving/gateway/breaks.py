"""Why a call could not go on with what was there: one word for metrics, and where it was.

A root that differs a little from an earlier one (a clock, a request id) breaks everything behind
it, so roots are compared with the last few of the same tenant and model.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from duramen.layout.delta import common_text
from duramen.layout.volatile_patterns import Kind
from duramen.layout.volatility import VolatileField, compare, find_volatile
from duramen.serving.gateway.call_facts import BreakCause
from duramen.serving.gateway.message_text import SEPARATOR, Message, num_system, texts
from duramen.serving.gateway.sessions.conversation import Opened
from duramen.serving.gateway.sessions.records import Scope

NUM_REMEMBERED = 8
MAX_CHARACTERS = 2**16  # of a root; what is behind is not compared
CAUSES: dict[Kind, BreakCause] = {  # the first that is among the differences
    "clock": "clock",
    "uuid": "uuid",
    "id": "hash",
    "counter": "counter",
}
MIN_ALIKE = 0.5  # of the longer text, in a common beginning and end: then it is the same root


@dataclass(frozen=True)
class Root:
    """`volatile`: fields that look as if they change, by their place in `text`."""

    text: str
    volatile: tuple[VolatileField, ...]


@dataclass(frozen=True)
class Look:
    """Why a call broke, None if nothing did, and its root's volatile fields."""

    cause: BreakCause | None
    volatile: tuple[VolatileField, ...]


class Breaks:
    """Remembers the last roots of each tenant and model."""

    def __init__(self) -> None:
        self._roots: defaultdict[Scope, deque[Root]] = defaultdict(
            lambda: deque(maxlen=NUM_REMEMBERED)
        )

    def look(self, opened: Opened, messages: Sequence[Message]) -> Look:
        """`messages`: the client's own."""
        text = _root_text(messages)
        roots = self._roots[opened.turn.scope]
        root = next((root for root in roots if root.text == text), None)
        changed = None
        if root is None:
            changed = _root_change(roots, text)
            root = Root(text, tuple(find_volatile(text)))
            roots.append(root)
        return Look(_cause(opened, messages, changed), root.volatile)


def _cause(
    opened: Opened, messages: Sequence[Message], changed: BreakCause | None
) -> BreakCause | None:
    """Session lost: it has replies in its past that are not on record (from elsewhere, too old,
    or behind a changed message)."""
    if opened.edit is not None:
        return "edit"
    if opened.other_head:
        return opened.other_head
    if opened.rewritten:
        return "template"
    if opened.relation != "new":
        return None
    if changed is None and any(m.get("role") == "assistant" for m in messages):
        return "session lost"
    return changed


def _root_change(roots: Iterable[Root], text: str) -> BreakCause | None:
    """What differs from the root that is most like it."""
    if not text:
        return None
    like = max((root.text for root in roots), key=lambda other: _alike(other, text), default="")
    if _alike(like, text) < MIN_ALIKE:
        return None
    kinds = {region.kind for region in compare(like, text)}
    return next((CAUSES[kind] for kind in CAUSES if kind in kinds), "root text")


def _root_text(messages: Sequence[Message]) -> str:
    root = messages[: num_system(messages)]
    written = [text for message in root for text in texts(message)]
    return SEPARATOR.join(written)[:MAX_CHARACTERS]


def _alike(a: str, b: str) -> float:
    head = common_text(a, b)
    tail = common_text(a[head:][::-1], b[head:][::-1])
    return (head + tail) / max(len(a), len(b), 1)
