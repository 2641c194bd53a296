"""Fields of a prompt that change from call to call: clocks, ids, counters.

`find_volatile` guesses from one text. It would rather miss a field than take a fixed one for it:

- The nearest telling word on the line, at most 40 characters before, decides: "today", "current"
  and the like for it; "version", "cutoff", "deadline", "commit", a range against it. Without such a
  word full dates, timestamps, UUIDs and long hex runs count; times of day, ten digits, days without
  a year do not.
- In code (fences and backticks) only what such a word is for counts; in URLs and paths nothing.
- Numbered lists are no counters: "step 1 of 3 ... step 2 of 3" is a list.

It cannot tell: a fixed date without a word near it (it is hit), a fixed id named like one of a
request (hit), a clock in words ("half past nine", missed), months in other languages than English
(missed), short hashes without a name (missed), code that is only indented (searched as prose).

`compare` does not guess: what differs between two versions did change. It names the kind.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from duramen.layout.diff import Difference, differences
from duramen.layout.volatile_patterns import RULES, Kind, Rule

WINDOW_CHARS = 40
MAX_VALUE_CHARS = 80
_FENCE = re.compile(r"^[ \t]{0,3}(?:```|~~~)", re.M)
_INLINE = re.compile(r"`[^`\n]{1,200}`")
_URL = re.compile(r"(?:\b(?:https?|wss?|ftp|ssh|git|file)://|\bwww\.)[^\s<>\"']{1,2000}")
_HINT = re.compile("[0-9]|day")  # what each field holds
_IN_CODE = re.compile(r"\b(?:now|today|current(?:ly)?)(?![A-Za-z])", re.I)
_VALUES: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("uuid", re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")),
    ("clock", re.compile(r"1[5-9][0-9]{8}(?:[.]?[0-9]{3}|[0-9]{6}|[0-9]{9}|[.][0-9]+)?")),
    ("clock", re.compile(r"[0-2]?[0-9]:[0-5][0-9](?::[0-6][0-9](?:[.,][0-9]+)?)?[A-Za-z]{0,3}")),
    ("counter", re.compile(r"[0-9]{1,12}(?:[.,][0-9]{1,6})?(?:/[0-9]{1,12})?")),
    ("id", re.compile(r"(?=[a-f]*[0-9])[0-9a-f]{5,}|(?=(?:[A-Za-z_]*[0-9]){3})[A-Za-z0-9_]{8,}")),
)
_EDGES = "\"'`()[]{}<>,;!?=#$€£%*"
_WORD = re.compile(r"\w")


@dataclass(frozen=True)
class VolatileField:
    """Characters [start, end) of a text."""

    start: int
    end: int
    kind: Kind


Interval = tuple[int, int]


def find_volatile(text: str) -> list[VolatileField]:
    """Fields that look as if they differ from call to call: in order, none empty, no overlap.

    A pure function of `text`, linear in it.
    """
    places = _Places.of(text)
    fields: list[tuple[VolatileField, str | None]] = []
    values: dict[str, set[str]] = {}
    for start, end in _lines(text):
        line = text[start:end].lower()
        for rule in RULES:
            if rule.needs and not any(each in line for each in rule.needs):
                continue
            for found in rule.pattern.finditer(text, start, end):
                if not _counts(text, found.start(), rule, start, places):
                    continue
                groups = found.groupdict()
                field = VolatileField(*found.span("value" if "value" in groups else 0), rule.kind)
                label = (groups.get("label") or "").lower()
                fields.append((field, label))
                values.setdefault(label, set()).add(text[field.start : field.end])
    kept = [field for field, label in fields if not label or len(values[label]) == 1]
    return _apart(kept)


def compare(previous_text: str, text: str) -> list[VolatileField]:
    """What differs in `text` from an earlier version of it: in order, no overlap.

    A field that changed is there as a whole, with its kind; a number that became another one is a
    counter; the rest is "changed text". Spaces and punctuation that came with a field are not named
    beside it. Where something was cut out the field is empty (start == end).
    """
    fields = find_volatile(text)
    found: list[VolatileField] = []
    first = 0
    for region in differences(previous_text, text):
        while first < len(fields) and fields[first].end <= region.start:
            first += 1
        done = found[-1].end if found else 0
        for each in _named(previous_text, text, region, fields, first):
            if each.end > done or (each.start == each.end >= done):
                found.append(replace(each, start=max(each.start, done)))
                done = each.end
    return found


def _lines(text: str) -> Iterator[Interval]:
    """Those that may hold a field."""
    start = 0
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        if _HINT.search(text, start, end):
            yield start, end
        start = end + 1


@dataclass(frozen=True)
class _Places:
    """Where code and URLs stand: in order, no two of a kind overlap."""

    fenced: list[Interval]
    inline: list[Interval]
    urls: list[Interval]

    @classmethod
    def of(cls, text: str) -> "_Places":
        """A fence that is not closed goes up to the end."""
        marks = [found.start() for found in _FENCE.finditer(text)]
        marks += [len(text)] * (len(marks) % 2)
        fenced = list(zip(marks[::2], marks[1::2], strict=True))
        inline, urls = ([each.span() for each in p.finditer(text)] for p in (_INLINE, _URL))
        return cls(fenced, inline, urls)

    def in_code(self, position: int) -> bool:
        return _inside(self.fenced, position) or _inside(self.inline, position)


def _inside(intervals: Sequence[Interval], position: int) -> bool:
    nearest = bisect_right(intervals, position, key=lambda each: each[0]) - 1
    return nearest >= 0 and position < intervals[nearest][1]


def _counts(text: str, start: int, rule: Rule, line_start: int, places: _Places) -> bool:
    """Whether the words before `start` make a match a field."""
    if _inside(places.urls, start):
        return False
    in_code = places.in_code(start)
    window = text[max(line_start, start - WINDOW_CHARS) : start]
    words = _IN_CODE if in_code else rule.now
    now = max((each.end() for each in words.finditer(window)), default=-1)
    still = max((each.end() for each in rule.still.finditer(window)), default=-1)
    return now > still or (now == still and rule.sure and not in_code)


def _apart(fields: Sequence[VolatileField]) -> list[VolatileField]:
    """The earliest ones, of those the longest, without what overlaps them."""
    kept: list[VolatileField] = []
    for field in sorted(fields, key=lambda each: (each.start, -each.end)):
        if not kept or field.start >= kept[-1].end:
            kept.append(field)
    return kept


def _named(
    old: str, text: str, region: Difference, fields: Sequence[VolatileField], first: int
) -> Iterator[VolatileField]:
    """What `region` changed. `first`: of the fields of `text`, the first that ends behind its
    start."""
    behind = (fields[i] for i in range(first, len(fields)))
    touched = list(takewhile(lambda each: each.start < region.end, behind))
    marks = [region.start, *(m for each in touched for m in (each.start, each.end)), region.end]
    between = [text[start:end] for start, end in zip(marks[::2], marks[1::2], strict=True)]
    if touched and not any(_WORD.search(rest) for rest in between):
        yield from touched
        return
    start, end = _value_around(text, region)
    was_number = old[region.old_start : region.old_end].isdecimal()
    for kind, pattern in _VALUES:
        if pattern.fullmatch(text, start, end) and (kind != "counter" or was_number):
            yield VolatileField(start, end, kind)
            return
    yield VolatileField(region.start, region.end, "changed text")


def _value_around(text: str, region: Difference) -> Interval:
    """The region with what stands around it up to a space, without punctuation at its ends."""
    start, end = region.start, region.end
    low, high = max(start - MAX_VALUE_CHARS, 0), min(end + MAX_VALUE_CHARS, len(text))
    while start > low and not text[start - 1].isspace() and text[start - 1] not in _EDGES:
        start -= 1
    while end < high and not text[end].isspace() and text[end] not in _EDGES:
        end += 1
    return start, end
