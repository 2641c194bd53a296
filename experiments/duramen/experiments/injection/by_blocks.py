"""The prompt is what it should be, and less was delivered: evictions, salts, replicas, units.

Figures are consistent with each other: what is said to be delivered is what an engine could have
delivered for that cause, counted by the plain way of the lab.
"""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, NamedTuple

from duramen.experiments.injection.cases import START_S, Case, Make, Scene, session_of
from duramen.experiments.injection.edits import with_system
from duramen.experiments.injection.lab import Lab
from duramen.experiments.injection.oracle import first_difference
from duramen.experiments.injection.values import other_task
from duramen.experiments.trajectory import Call, Sending, Session, Usage
from duramen.layout.diagnose.causes import Cause

SERIAL = (0.0, 60.0)  # times of the two calls, seconds
TOOK_S = 4.0


class Counted(NamedTuple):
    """Tokens of the two prompts, and how many the second has in common with the first."""

    first: int
    second: int
    common: int

    def reusable(self, unit: int) -> int:
        return min(self.common, self.second - 1) // unit * unit


def counted(scene: Scene, lab: Lab) -> Counted | None:
    session = session_of(scene.calls, scene.tools)
    ids = [lab.prompt_ids("chatml", session, index) for index in (0, 1)]
    if ids[0] is None or ids[1] is None:
        return None
    whole = [*ids[0], *lab.reply_ids("chatml", session, 0)]
    return Counted(len(ids[0]), len(ids[1]), first_difference(whole, ids[1]))


def sent(call: Call, time_s: float, prompt: int, cached: int | None, **sending: Any) -> Call:
    """The call as a log has it: when, how long, what was reported."""
    usage = Usage(prompt_tokens=prompt, cached_tokens=cached, completion_tokens=40)
    facts = Sending(**{"duration_s": TOOK_S, **sending})
    return replace(call, time_s=time_s, usage=usage, sending=facts)


Share = Callable[[int, int], int]  # (reusable tokens, unit) -> delivered


def nothing(reusable: int, unit: int) -> int:
    return 0


def share(part: float) -> Share:
    """So much of what could be reused, in whole units, and at least two units less than all."""
    return lambda reusable, unit: min(int(reusable * part) // unit, reusable // unit - 2) * unit


def evicted(unit: int, delivered: Share, *, facts: dict[str, Any] | None = None) -> Make:
    """Serial calls of one salt and replica, and less delivered than could be reused."""

    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        tokens = counted(scene, lab)
        if tokens is None or tokens.reusable(unit) < 4 * unit:
            return None
        got = delivered(tokens.reusable(unit), unit)
        calls = (
            sent(scene.before, SERIAL[0], tokens.first, 0, **(facts or {})),
            sent(scene.after, SERIAL[1], tokens.second, got, **(facts or {})),
        )
        return block_case("eviction", calls, scene, unit_tokens=unit)

    return make


def block_case(cause: Cause, calls: tuple[Call, ...], scene: Scene, **settings: Any) -> Case:
    session = session_of(calls, scene.tools)
    at = ("s", len(calls) - 1)
    return Case(frozenset([cause]), (session,), at, settings=settings, parts=False)


def pool_too_small(unit: int, num_between: int, *, room: float) -> Make:
    """Other sessions' calls between the two, in a pool that holds `room` times the largest of all
    calls: the first call's blocks are gone by the second. Nothing is reported."""

    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        tokens = counted(scene, lab)
        if tokens is None or tokens.reusable(unit) < 4 * unit:
            return None
        mine = session_of(
            (replace(scene.before, time_s=0.0), replace(scene.after, time_s=100.0)),
            scene.tools,
            "s",
        )
        others = []
        for number in range(num_between):
            text = f"Log {number}:\n" + "\n".join(
                f"{rng.randrange(10**6):06d} {rng.choice('abcdef')} took {rng.random():.3f} s"
                for _ in range(tokens.second // 18)
            )
            call = Call(({"role": "user", "content": text},), None, time_s=0.0)
            others.append(session_of((call,), (), f"other-{number}", START_S + 10 + number))
        sizes = [len(lab.prompt_ids("chatml", other, 0) or []) for other in others]
        pool = int(max(tokens.second + 64, *sizes) * room) // unit * unit + unit
        if sum(sizes) + tokens.second < 2 * pool:
            return None
        settings = {"unit_tokens": unit, "kv_tokens": pool}
        return Case(frozenset(["eviction"]), (mine, *others), ("s", 1), "chatml", settings, False)

    return make


def other_facts(
    cause: Cause,
    before: dict[str, Any],
    after: dict[str, Any],
    *,
    unit: int = 16,
    reported: bool = True,
) -> Make:
    """Facts of how the calls were sent that differ, and nothing delivered."""

    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        tokens = counted(scene, lab)
        if tokens is None or tokens.reusable(unit) < 4 * unit:
            return None
        calls = (
            sent(scene.before, SERIAL[0], tokens.first, 0 if reported else None, **before),
            sent(scene.after, SERIAL[1], tokens.second, 0 if reported else None, **after),
        )
        return block_case(cause, calls, scene, unit_tokens=unit)

    return make


def in_flight(
    unit: int, starts_s: tuple[float, ...], took_s: float, delivered: Share = nothing
) -> Make:
    """The same prompt sent again while it is still being computed."""

    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        tokens = counted(scene, lab)
        if tokens is None or (tokens.first - 1) // unit < 4:
            return None
        got = delivered((tokens.first - 1) // unit * unit, unit)
        calls = tuple(
            sent(scene.before, start_s, tokens.first, got if index else 0, duration_s=took_s)
            for index, start_s in enumerate(starts_s)
        )
        return block_case("in-flight", calls, scene, unit_tokens=unit)

    return make


def in_flight_across(unit: int, later_s: float, took_s: float) -> Make:
    """Two sessions of one root that begin at once: the second finds nothing of the first."""

    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        first, second = with_system(scene.before), other_task(scene, rng)
        pair = [
            session_of((call,), scene.tools, name) for call, name in ((first, "a"), (second, "b"))
        ]
        ids = [lab.prompt_ids("chatml", session, 0) for session in pair]
        if ids[0] is None or ids[1] is None or first_difference(ids[0], ids[1]) < 4 * unit:
            return None
        calls = [
            sent(call, 0.0, len(ids[index] or []), 0, duration_s=took_s)
            for index, call in enumerate((first, second))
        ]
        sessions = (
            session_of((calls[0],), scene.tools, "a"),
            session_of((calls[1],), scene.tools, "b", START_S + later_s),
        )
        settings = {"unit_tokens": unit}
        return Case(frozenset(["in-flight"]), sessions, ("b", 0), "chatml", settings, False)

    return make


def first_of_all(num_before: int) -> Make:
    """A first call, with nothing like it before: alone, or behind sessions of other kinds."""

    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        others = tuple(
            session_of((Call(({"role": "user", "content": text},), None),), (), f"o{number}")
            for number, text in enumerate(UNLIKE[:num_before])
        )
        mine = Session("s", (scene.before,), scene.tools, start_time_s=START_S + 600)
        causes: frozenset[Cause | None] = frozenset(["first-call"])
        return Case(causes, (*others, mine), ("s", 0), parts=False)

    return make


UNLIKE = (
    "1. Quelle heure est-il à Nouméa quand il est midi à Brest ?",
    "Reply with the single word OK and nothing else.",
    "SELECT name, SUM(total) FROM orders GROUP BY name; -- what does this return on no rows?",
)
