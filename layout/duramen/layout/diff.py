"""Where two versions of a text differ, in time n log n whatever they hold.

A patience diff: pieces that stand exactly once in both versions are anchors, the longest run of
them in the same order is kept, and between two anchors only equal ends are matched. Lines come
first, then words between the anchors. What is found is correct (see `differences`) and small for
texts with a few changes; it is not always the smallest.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

_LINES = re.compile(r"[^\n]*\n|[^\n]+")
_WORDS = re.compile(r"\w+|[^\w\n]|\n")


@dataclass(frozen=True)
class Difference:
    """Characters [old_start, old_end) of the old text became [start, end) of the new one."""

    old_start: int
    old_end: int
    start: int
    end: int


def differences(old: str, new: str) -> list[Difference]:
    """In order; no two touch. Putting the new characters in for the old ones gives the new text."""
    whole = Difference(0, len(old), 0, len(new))
    found = [
        word for line in _gaps(old, new, whole, _LINES) for word in _gaps(old, new, line, _WORDS)
    ]
    return _joined(found)


def _gaps(old: str, new: str, region: Difference, pieces: re.Pattern[str]) -> Iterator[Difference]:
    """The parts of `region` between pieces that are kept."""
    olds = _cut(old, region.old_start, region.old_end, pieces)
    news = _cut(new, region.start, region.end, pieces)
    old_at = [*(start for start, _ in olds), region.old_end]
    new_at = [*(start for start, _ in news), region.end]
    for i, i_end, j, j_end in _unmatched([t for _, t in olds], [t for _, t in news]):
        yield Difference(old_at[i], old_at[i_end], new_at[j], new_at[j_end])


def _cut(text: str, start: int, end: int, pieces: re.Pattern[str]) -> list[tuple[int, str]]:
    return [(found.start(), found[0]) for found in pieces.finditer(text, start, end)]


def _unmatched(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[int, int, int, int]]:
    """Half-open ranges of both that are not kept, in order."""
    ends = [(-1, -1), *anchors(old, new), (len(old), len(new))]
    for (i, j), (i_end, j_end) in pairwise(ends):
        i, j = i + 1, j + 1
        if i_end - i == j_end - j:
            yield from (
                (i + n, i + n + 1, j + n, j + n + 1)
                for n in range(i_end - i)
                if old[i + n] != new[j + n]
            )
            continue
        while i < i_end and j < j_end and old[i] == new[j]:
            i, j = i + 1, j + 1
        while i < i_end and j < j_end and old[i_end - 1] == new[j_end - 1]:
            i_end, j_end = i_end - 1, j_end - 1
        if i < i_end or j < j_end:
            yield i, i_end, j, j_end


def anchors(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """The longest ascending run of pieces that stand once in both."""
    num_old, num_new = Counter(old), Counter(new)
    place = {piece: j for j, piece in enumerate(new) if num_new[piece] == 1}
    pairs = [(i, place[p]) for i, p in enumerate(old) if num_old[p] == 1 and p in place]
    ends: list[int] = []  # the smallest place in `new` that a run of each length ends with
    last: list[int] = []  # the pair which does
    before: list[int] = []  # the pair before each pair in its run
    for n, (_, j) in enumerate(pairs):
        length = bisect_left(ends, j)
        before.append(last[length - 1] if length else -1)
        ends[length : length + 1] = [j]
        last[length : length + 1] = [n]
    run = []
    n = last[-1] if last else -1
    while n >= 0:
        run.append(pairs[n])
        n = before[n]
    return run[::-1]


def _joined(found: Sequence[Difference]) -> list[Difference]:
    joined: list[Difference] = []
    for each in found:
        last = joined[-1] if joined else None
        if last and last.old_end == each.old_start and last.end == each.start:
            joined[-1] = Difference(last.old_start, each.old_end, last.start, each.end)
        else:
            joined.append(each)
    return joined
