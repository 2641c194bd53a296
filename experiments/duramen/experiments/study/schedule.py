"""When each call of a study is sent: recorded times where there are some, assumed ones elsewhere.

Sessions start in order, each when one of `concurrency` places is free. Inside a session its own
recorded times hold; a call without one comes `gap_s` after the call before.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from duramen.experiments.layouts.model import ASSUMED_START_S
from duramen.experiments.trajectory import Call, Origin, Session
from duramen.layout.errors import TrajectoryError


class Timed(Protocol):
    @property
    def time_s(self) -> float: ...


StepT = TypeVar("StepT", bound=Timed)


@dataclass(frozen=True)
class Pace:
    """`concurrency`: sessions at once. `gap_s`: between calls whose times were not recorded, and
    between a session and the next in its place."""

    concurrency: int = 1
    gap_s: float = 10.0

    def __post_init__(self) -> None:
        if self.concurrency < 1 or not 0 < self.gap_s < 1e9:
            raise TrajectoryError(
                f"concurrency {self.concurrency} and gap {self.gap_s} s must be above 0, the gap "
                "below 1e9 s"
            )


def with_times(sessions: Sequence[Session], pace: Pace) -> list[Session]:
    """The sessions with a start and with a time for every call, on one clock."""
    free_at = [ASSUMED_START_S] * pace.concurrency
    placed = []
    for session in sessions:
        start_s = heapq.heappop(free_at)
        times = list(_call_times(session, pace.gap_s))
        calls = tuple(
            replace(call, time_s=time_s) for call, time_s in zip(session.calls, times, strict=True)
        )
        recorded = all(call.time_s is not None for call in session.calls)
        origin = session.origins.get("time_s", Origin.RECORDED) if recorded else Origin.ASSUMED
        origins = {**session.origins, "time_s": origin, "start_time_s": Origin.ASSUMED}
        placed.append(replace(session, calls=calls, start_time_s=start_s, origins=origins))
        heapq.heappush(free_at, start_s + (times[-1] if times else 0.0) + pace.gap_s)
    return placed


def _call_times(session: Session, gap_s: float) -> Iterator[float]:
    """Seconds since the session's first call; they never go back."""
    last_s, first_s = -gap_s, _first_time_s(session.calls)
    for call in session.calls:
        last_s = last_s + gap_s if call.time_s is None else max(last_s, call.time_s - first_s)
        yield max(last_s, 0.0)


def _first_time_s(calls: Sequence[Call]) -> float:
    return next((call.time_s for call in calls if call.time_s is not None), 0.0)


def in_time_order(
    sessions: Sequence[Session], walk: Callable[[Session], Iterator[StepT]]
) -> Iterator[StepT]:
    """The steps of all sessions by time; of equal times the session that was given first.

    A session is begun when its first call is due, so that only those that run are in memory.
    """
    waiting = sorted(enumerate(sessions), key=lambda item: (item[1].start_time_s, item[0]))
    waiting.reverse()
    running: list[tuple[float, int, StepT, Iterator[StepT]]] = []

    def advance(number: int, steps: Iterator[StepT]) -> None:
        if (step := next(steps, None)) is not None:
            heapq.heappush(running, (step.time_s, number, step, steps))

    while waiting or running:
        while waiting and (not running or (waiting[-1][1].start_time_s or 0.0) <= running[0][0]):
            number, session = waiting.pop()
            advance(number, walk(session))
        if running:
            _, number, step, steps = heapq.heappop(running)
            yield step
            advance(number, steps)
