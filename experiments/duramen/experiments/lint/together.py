"""What bodies of one folder tell together: what should be the same text in each of them is not."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from duramen.experiments.lint.bodies import GivenBody, system_texts
from duramen.experiments.lint.finding import Finding
from duramen.layout.diagnose.causes import Cause
from duramen.layout.diagnose.place import ROOT
from duramen.layout.diagnose.texts import text_change
from duramen.layout.diagnose.tools import tools_change

SURE = 0.9
OF_TOOLS: frozenset[Cause] = frozenset(["tool-order", "json-key-order"])
OF_TEXT: frozenset[Cause] = frozenset(
    ["clock", "uuid-or-hash", "counter", "whitespace", "unicode-normalisation"]
)


def check_together(bodies: Sequence[GivenBody]) -> Iterator[Finding]:
    """Each body against the one before it in its folder, by name."""
    for _, group in groupby(bodies, key=lambda body: body.source.path.parent):
        before: GivenBody | None = None
        for body in group:
            if before is not None:
                yield from _tools(before, body)
                yield from _systems(before, body)
            before = body


def _tools(before: GivenBody, after: GivenBody) -> Iterator[Finding]:
    change = tools_change(before.read.tools, after.read.tools)
    if change is not None and change.cause in OF_TOOLS and change.confidence >= SURE:
        yield _finding(before, after, change.cause, ("tools",), change.evidence)


def _systems(before: GivenBody, after: GivenBody) -> Iterator[Finding]:
    texts = list(system_texts(before.body)), list(system_texts(after.body))
    if len(texts[0]) != len(texts[1]):
        return
    for (_, was), (path, now) in zip(*texts, strict=True):
        change = text_change(was, now, ROOT)
        if change is None:
            continue
        if change.cause in OF_TEXT and change.confidence >= SURE:
            yield _finding(before, after, change.cause, path, change.evidence)
        return


def _finding(
    before: GivenBody, after: GivenBody, cause: Cause, path: tuple[str | int, ...], evidence: str
) -> Finding:
    what = f"{evidence} (against {before.source.path.name})"
    return after.finding(cause, path, what, None)
