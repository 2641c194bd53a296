"""Why a call could not go on with what was there: one word for metrics, and where it was.

A root that differs a little from an earlier one (a clock, a request id) breaks everything behind
it, so roots are compared with the last few of the same tenant and model.
"""

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import Any

from duramen.layout.delta import common_text
from duramen.layout.volatile_patterns import Kind
from duramen.layout.volatility import compare
from duramen.serving.gateway.call_facts import BreakCause
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


class Breaks:
    """Remembers the last roots' texts of each tenant and model."""

    def __init__(self) -> None:
        self._roots: defaultdict[Scope, deque[str]] = defaultdict(
            lambda: deque(maxlen=NUM_REMEMBERED)
        )

    def cause(self, opened: Opened, messages: Sequence[Mapping[str, Any]]) -> BreakCause | None:
        """None if nothing broke. "session lost": it has replies in its past that are not on record
        (from elsewhere, too old, or changed)."""
        changed = self._root_change(opened.turn.scope, messages)
        if opened.edit is not None:
            return "edit"
        if opened.other_root:
            return "tools"
        if opened.rewritten:
            return "template"
        if opened.relation != "new":
            return None
        if changed is None and any(m.get("role") == "assistant" for m in messages):
            return "session lost"
        return changed

    def _root_change(
        self, scope: Scope, messages: Sequence[Mapping[str, Any]]
    ) -> BreakCause | None:
        text = _root_text(messages)
        roots = self._roots[scope]
        if not text or text in roots:
            return None
        like = max(roots, key=lambda root: _alike(root, text), default=None)
        roots.append(text)
        if like is None or _alike(like, text) < MIN_ALIKE:
            return None
        kinds = {region.kind for region in compare(like, text)}
        return next((CAUSES[kind] for kind in CAUSES if kind in kinds), "root text")


def _root_text(messages: Sequence[Mapping[str, Any]]) -> str:
    texts = []
    for message in messages:
        if message.get("role") not in ("system", "developer"):
            break
        content = message.get("content")
        if isinstance(content, str):
            texts.append(content)
        elif isinstance(content, list):
            texts += [str(part.get("text", "")) for part in content if isinstance(part, Mapping)]
    return "\n".join(texts)[:MAX_CHARACTERS]


def _alike(a: str, b: str) -> float:
    head = common_text(a, b)
    tail = common_text(a[head:][::-1], b[head:][::-1])
    return (head + tail) / max(len(a), len(b), 1)
