"""Which kind of value changed: a time, an id, a number that counts, or none of them.

Two versions of a text are given, so that nothing has to be guessed about whether it changes; what
is guessed is who changed it, a program or a person. Words near the value, its shape, the place and
the size of the step decide, and where they do not, it is no such value.
"""

import re
from dataclasses import replace

from duramen.layout.delta import common_text
from duramen.layout.diagnose.change import Change
from duramen.layout.diagnose.clocks import (
    clock_change,
    countdown_change,
    example_change,
    is_time,
    tells_now,
    told_change,
)
from duramen.layout.diagnose.counters import counter_change, days_left_change
from duramen.layout.diagnose.ids import id_change, is_numbered
from duramen.layout.diagnose.place import Place
from duramen.layout.diagnose.spots import Spot
from duramen.layout.diff import Difference

_LINE_CHARS = 120
_PERSON = re.compile(
    r"\b(?:i|i'm|my|me|we|our|us|please|ich|wir|mein\w*|je|nous|mon|ma|yo|mi)\b", re.I
)
_LABEL = re.compile(r"[^\w\s]{0,4}[^\W\d_][\w ./'-]{0,40}[:=：]\s*\S")
_BRACKETS = re.compile(r"\[.*\]\W?\Z|\(.*\)\W?\Z|<.*>\Z|\{.*\}\Z")
_EXAMPLE = re.compile(
    r"\b(?:(?<![./@])examples?(?![.\w])|e[.]g|for instance|such as|sample|beispiel\w*|z[.] ?b"
    r"|par exemple|por ejemplo"
    r"|ad esempio|exemplos?)\b|例如|例えば|예시|예:",
    re.I,
)
_TO_AGENT = re.compile(
    r"you(?:'ve| are| have|r)?\b|this is (?:your|the|step|turn|attempt)\b|it is\b|it's\b|good \w+!"
    r"|(?:current|local|now|today|step|turn|round|attempt|iteration|page|stage|phase|part|call|run"
    r"|session|request|trace|thread|job)\b|the (?:current|local|time|date|season)\b"
    r"|(?:\W*\d[\d.,]*|\w+) (?:messages?|turns?|steps?|calls?|tool calls?|tries|attempts?)\b",
    re.I,
)


def value_change(old: str, new: str, region: Difference, place: Place) -> Change | None:
    """What the first difference of two texts is, as a value; None where it is none.

    `region` is the first of `differences(old, new)`.
    """
    was, now = _narrowed(_with_ascii_digits(old), _with_ascii_digits(new), region)
    example = _EXAMPLE.search(was.words[-40:])
    if example and not tells_now(was.words[-40:][example.end() :]):
        return example_change(was, now)
    if place.is_first_user and "\n" in old.strip() and _is_of_client(was):
        place = replace(place, is_root=True)
    if (left := days_left_change(was, now, place)) is not None:
        return left
    if is_time(was, now) and not is_numbered(was, now):
        return clock_change(was, now, place)
    return (
        countdown_change(was, now, place)
        or id_change(was, now, place)
        or told_change(was, now, place)
        or counter_change(was, now, place)
    )


def _with_ascii_digits(text: str) -> str:
    """Of the same length, with digits of all scripts as 0 to 9."""
    if text.isascii():
        return text
    return "".join(str(int(c)) if c.isdecimal() else c for c in text)


def _is_of_client(spot: Spot) -> bool:
    """Whether a line of a user's message looks as if the client had written it: a label and a
    value, something in brackets, a value alone, or words to the agent."""
    line = spot.line.strip()
    if len(line) > _LINE_CHARS or _PERSON.search(line):
        return False
    alone = not re.search(r"\w", spot.line[: spot.start] + spot.line[spot.end :])
    return alone or any(way.match(line) for way in (_LABEL, _BRACKETS, _TO_AGENT))


def _narrowed(old: str, new: str, region: Difference) -> tuple[Spot, Spot]:
    """The region without what both versions of it begin and end with."""
    cut, put = old[region.old_start : region.old_end], new[region.start : region.end]
    head = common_text(cut, put)
    tail = common_text(cut[head:][::-1], put[head:][::-1])
    return (
        Spot.of(old, region.old_start + head, region.old_end - tail),
        Spot.of(new, region.start + head, region.end - tail),
    )
