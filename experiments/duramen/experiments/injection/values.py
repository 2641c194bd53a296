"""A value in the prompt that is another one in each call: clocks, ids, counters."""

import datetime
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import NamedTuple

from duramen.experiments.injection.cases import (
    Case,
    Make,
    Scene,
    Variant,
    parted,
    session_of,
    variants_of,
)
from duramen.experiments.injection.edits import Place, of_tools, with_line, with_system
from duramen.experiments.injection.lab import Lab
from duramen.experiments.trajectory import Call
from duramen.layout.diagnose.causes import Cause

Values = Callable[[Random], tuple[str, str]]
EARLIEST = datetime.datetime(2025, 2, 3, 4, 5, 6, tzinfo=datetime.UTC)


class Stamp(NamedTuple):
    """`line` holds {} where the value stands. `across`: the earlier call is the first call of
    another session, which another task follows."""

    line: str
    place: Place
    values: Values
    across: bool = False
    also: tuple[Cause, ...] = ()  # answers that are as fair


def clock(spell: Callable[[datetime.datetime], str], step: datetime.timedelta) -> Values:
    """A time, and the same clock a while later."""

    def values(rng: Random) -> tuple[str, str]:
        while True:
            at = EARLIEST + datetime.timedelta(seconds=rng.randrange(40_000_000))
            before, after = spell(at), spell(at + step)
            if before != after:
                return before, after

    return values


def drawn(draw: Callable[[Random], str]) -> Values:
    """Two ids that have nothing to do with each other."""

    def values(rng: Random) -> tuple[str, str]:
        before, after = draw(rng), draw(rng)
        while after == before:
            after = draw(rng)
        return before, after

    return values


def letters(alphabet: str, length: int, rng: Random) -> str:
    return "".join(rng.choice(alphabet) for _ in range(length))


def counting(spell: Callable[[int], str], start: int, step: int) -> Values:
    """A number, and the same one a call later; `start` is varied by less than a step or by 3."""

    def values(rng: Random) -> tuple[str, str]:
        first = start + rng.randrange(max(abs(step), 3))
        return spell(first), spell(first + step)

    return values


def stamped(cause: Cause, stamp: Stamp) -> Make:
    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        before, after = stamp.values(rng)
        first = _put(scene, scene.before, stamp, before)
        later = scene.after if not stamp.across else other_task(scene, rng)
        second = _put(scene, later, stamp, after)
        if first is None or second is None:
            return None
        if not stamp.across:
            return parted(scene, first, second, frozenset([cause, *stamp.also]))
        sessions = (
            session_of((first,), scene.tools, "a"),
            session_of((second,), scene.tools, "b", start_s=1_770_000_900.0),
        )
        return Case(frozenset([cause, *stamp.also]), sessions, ("b", 0))

    return make


def _put(scene: Scene, call: Call, stamp: Stamp, value: str) -> Call | None:
    line = stamp.line.replace("{}", value)
    return with_line(call, of_tools(scene.tools, call), stamp.place, line)


TASKS = (
    "The nightly export is missing its last column. Find out why.",
    "Please cancel the second of my two reservations.",
    "Write a test for the parser's handling of empty input.",
    "Which of the three services answers slowest, and since when?",
)


def other_task(scene: Scene, rng: Random) -> Call:
    """The first call of a session with the scene's own system text and tools, and another task."""
    head = with_system(scene.before).messages[:1]
    messages = (*head, {"role": "user", "content": rng.choice(TASKS)})
    return replace(scene.before, messages=messages, reply=None)


def variants(cause: Cause, stamps: dict[str, Stamp]) -> list[Variant]:
    return variants_of(cause, {name: stamped(cause, stamp) for name, stamp in stamps.items()})
