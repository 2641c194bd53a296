"""Open loop: calls are sent at their recorded times, whatever has answered by then.

A loop that waits for answers sends less to a server that is slow, and so never sees the queue that
its users would wait in (coordinated omission). Here the times come from the recording alone, and
the wait for a first token counts from when a call was due, not from when it was sent. The clock is
the event loop's: a loop with another clock runs the same in no time.
"""

import asyncio
import math
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from duramen.experiments.layouts.model import ASSUMED_START_S, call_time_s
from duramen.experiments.trajectory import Session
from duramen.layout.errors import DuramenError, TrajectoryError

LATE_S = 0.01  # a send that is later counts as late; accounting for 100k tokens takes longer

Send = Callable[
    [float], Coroutine[None, None, None]
]  # one call, given when it is due on the loop's clock


@dataclass
class OpenLoop:
    """Sums over the calls of a layout. `late_s`: from due to sent, of each finished call.
    `ttft_from_due_s`: from due to the first token at the client."""

    late_s: list[float] = field(default_factory=list)
    ttft_from_due_s: list[float] = field(default_factory=list)
    num_in_flight: int = 0
    max_in_flight: int = 0

    @property
    def num_late(self) -> int:
        return sum(late_s > LATE_S for late_s in self.late_s)

    @contextmanager
    def in_flight(self) -> Iterator[None]:
        self.num_in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.num_in_flight)
        try:
            yield
        finally:
            self.num_in_flight -= 1

    def finished(self, late_s: float, ttft_s: float | None) -> None:
        self.late_s.append(late_s)
        if ttft_s is not None:
            self.ttft_from_due_s.append(late_s + ttft_s)


def check_time_scale(time_scale: float) -> None:
    """Raises DuramenError unless it is a positive number."""
    if not (0 < time_scale < math.inf):
        raise DuramenError(f"a time scale of {time_scale} is no positive number")


def due_times_s(sessions: Sequence[Session], time_scale: float) -> list[list[float]]:
    """For each session when its calls are due, in seconds from the first call of them all.

    A session that bears no start time begins with the first one that does. `time_scale`: seconds
    of replay per recorded second. Raises TrajectoryError for times that are no numbers.
    """
    times_s = [
        [call_time_s(session, call, index) for index, call in enumerate(session.calls)]
        for session in sessions
    ]
    for session, row in zip(sessions, times_s, strict=True):
        if not all(map(math.isfinite, row)):
            raise TrajectoryError(f"session {session.session_id}: a recorded time is no number")
    dated_s = [
        time_s
        for session, row in zip(sessions, times_s, strict=True)
        for time_s in row
        if session.start_time_s is not None
    ]
    first_s = min(dated_s, default=0.0)
    offsets_s = [
        [time_s - (ASSUMED_START_S if session.start_time_s is None else first_s) for time_s in row]
        for session, row in zip(sessions, times_s, strict=True)
    ]
    earliest_s = min((offset_s for row in offsets_s for offset_s in row), default=0.0)
    return [[(offset_s - earliest_s) * time_scale for offset_s in row] for row in offsets_s]


async def send_on_time(sends: Iterable[tuple[float, Send]]) -> None:
    """Start each `(due_s, send)` at its time, in seconds from now; return when all have ended.

    Equal times keep their order. What the first that fails raises is raised, the others are
    cancelled, and what was not sent yet is not sent.
    """
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    try:
        async with asyncio.TaskGroup() as tasks:
            for due_s, send in sorted(sends, key=lambda pair: pair[0]):
                wait_s = started_s + due_s - loop.time()
                if wait_s > 0:
                    await asyncio.sleep(wait_s)
                tasks.create_task(send(started_s + due_s))
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
