"""What bodies of one folder tell together: what should be the same text in each of them is not."""

import json
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import groupby

from duramen.experiments.lint.bodies import GivenBody, system_texts
from duramen.experiments.lint.finding import Finding
from duramen.experiments.lint.json_places import Path
from duramen.layout.diagnose.causes import Cause
from duramen.layout.diagnose.change import Change
from duramen.layout.diagnose.place import ROOT
from duramen.layout.diagnose.texts import text_change
from duramen.layout.diagnose.tools import tools_change

Placed = tuple[Path, str]
SURE = 0.9
OF_TOOLS: frozenset[Cause] = frozenset(["tool-order", "json-key-order"])
OF_TEXT: frozenset[Cause] = frozenset(
    ["clock", "uuid-or-hash", "counter", "whitespace", "unicode-normalisation"]
)


def check_together(bodies: Sequence[GivenBody]) -> Iterator[Finding]:
    """Each body of a folder against what most of its bodies have; of equals, the first by name."""
    for _, group in groupby(bodies, key=lambda body: body.source.path.parent):
        together = list(group)
        yield from _tools(together)
        yield from _systems(together)


def _tools(bodies: Sequence[GivenBody]) -> Iterator[Finding]:
    """Among bodies that have the same tools but for their order and that of keys."""
    alike: dict[str, list[GivenBody]] = {}
    for body in bodies:
        tools = sorted(json.dumps(tool, sort_keys=True) for tool in body.read.tools)
        alike.setdefault("\n".join(tools), []).append(body)
    for group in alike.values():
        spelled = {id(body): json.dumps(body.read.tools) for body in group}
        usual = _usual(group, spelled)
        for body in group:
            change = tools_change(usual.read.tools, body.read.tools)
            if change is not None and change.cause in OF_TOOLS and change.confidence >= SURE:
                yield _finding(usual, body, change.cause, ("tools",), change.evidence)


def _systems(bodies: Sequence[GivenBody]) -> Iterator[Finding]:
    """Against the one before, too, where a body has another system text than most: it may be of
    another agent, whose own text changes."""
    texts = {id(body): tuple(system_texts(body.body)) for body in bodies}
    usual = _usual(bodies, texts)
    for before, body in zip((None, *bodies), bodies, strict=False):
        now = texts[id(body)]
        if now == texts[id(usual)]:
            continue
        for other in (usual, before):
            found = None if other is None else _text_found(texts[id(other)], now)
            if other is not None and found is not None:
                path, change = found
                yield _finding(other, body, change.cause, path, change.evidence)
                break


def _usual(bodies: Sequence[GivenBody], spelled: Mapping[int, Hashable]) -> GivenBody:
    """The first of those that are spelled as most are. `spelled`: by the id() of each body."""
    num = Counter(spelled[id(body)] for body in bodies)
    return max(bodies, key=lambda body: num[spelled[id(body)]])


def _text_found(was: Sequence[Placed], now: Sequence[Placed]) -> tuple[Path, Change] | None:
    """The first text that differs, if that is by what should not be in it."""
    if len(was) != len(now):
        return None
    for (_, old), (path, new) in zip(was, now, strict=True):
        change = text_change(old, new, ROOT)
        if change is not None:
            is_told = change.cause in OF_TEXT and change.confidence >= SURE
            return (path, change) if is_told else None
    return None


def _finding(
    before: GivenBody, after: GivenBody, cause: Cause, path: tuple[str | int, ...], evidence: str
) -> Finding:
    what = f"{evidence} (against {before.source.path.name})"
    return after.finding(cause, path, what, None)
