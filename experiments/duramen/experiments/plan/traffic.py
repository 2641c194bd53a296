"""What comes in: calls, and when they are sent."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice, takewhile
from random import Random
from typing import Any, Protocol

from duramen.experiments.timed.arrivals import Arrivals, ClosedLoop, OpenLoop, Sending
from duramen.experiments.timed.call import TimedCall

Sessions = Sequence[Sequence[TimedCall]]

SEED = 0  # of random arrivals


class Traffic(Protocol):
    """`sessions`: their calls, with the keys of the smallest blocks. `rate_per_s`: how often
    `rate_of` arrive, None where answers alone decide when a call is sent."""

    @property
    def sessions(self) -> Sessions: ...

    @property
    def rate_of(self) -> str: ...

    @property
    def rate_per_s(self) -> float | None: ...

    def arrivals(self, granules: int) -> Arrivals:
        """For one run. `granules`: how many of the smallest blocks a block has."""

    def prefix(self, num_calls: int) -> "Traffic":
        """The first calls, so many or a few more."""

    def faster(self, factor: float) -> "Traffic":
        """With the gaps between arrivals divided by `factor`."""

    def as_json(self) -> dict[str, Any]: ...


def num_calls(traffic: Traffic) -> int:
    return sum(map(len, traffic.sessions))


@dataclass(frozen=True)
class RecordedTraffic:
    """Each call at its time, whatever has been answered by then. `due_s`: of each call, in seconds
    from the first one, which is not the last one too."""

    sessions: Sessions
    due_s: Sequence[Sequence[float]]
    rate_of: str = "calls"

    @property
    def rate_per_s(self) -> float:
        return num_calls(self) / max(due_s for row in self.due_s for due_s in row)

    def arrivals(self, granules: int) -> Arrivals:
        sessions = in_blocks(self.sessions, granules)
        return OpenLoop(
            [
                (due_s, call)
                for row, session in zip(self.due_s, sessions, strict=True)
                for due_s, call in zip(row, session, strict=True)
            ]
        )

    def prefix(self, num_calls: int) -> "RecordedTraffic":
        all_s = sorted(due_s for row in self.due_s for due_s in row)
        last_s = all_s[min(num_calls, len(all_s)) - 1]
        kept = [
            [(call, due_s) for call, due_s in zip(session, row, strict=True) if due_s <= last_s]
            for session, row in zip(self.sessions, self.due_s, strict=True)
        ]
        sessions = [[call for call, _ in session] for session in kept]
        return replace(self, sessions=sessions, due_s=[[s for _, s in row] for row in kept])

    def faster(self, factor: float) -> "RecordedTraffic":
        return replace(self, due_s=[[due_s / factor for due_s in row] for row in self.due_s])

    def as_json(self) -> dict[str, Any]:
        return {"arrival": "recorded", "calls_per_s": self.rate_per_s}


@dataclass(frozen=True)
class PoissonTraffic:
    """Sessions begin at random times, the same for the same rate. Within one a call is sent
    `think_s` after the answer to the call before it."""

    sessions: Sessions
    rate_per_s: float
    think_s: float = 0.0
    rate_of: str = "sessions"

    @property
    def starts_s(self) -> list[float]:
        draw = Random(SEED)
        gaps_s = [draw.expovariate(1.0) / self.rate_per_s for _ in self.sessions]
        return [*accumulate(gaps_s)]

    def arrivals(self, granules: int) -> Arrivals:
        return StartedSessions(in_blocks(self.sessions, granules), self.starts_s, self.think_s)

    def prefix(self, num_calls: int) -> "PoissonTraffic":
        return replace(self, sessions=first_sessions(self.sessions, num_calls))

    def faster(self, factor: float) -> "PoissonTraffic":
        return replace(self, rate_per_s=self.rate_per_s * factor)

    def as_json(self) -> dict[str, Any]:
        return {
            "arrival": "poisson",
            "sessions_per_s": self.rate_per_s,
            "think_s": self.think_s,
            "seed": SEED,
        }


@dataclass(frozen=True)
class ClosedTraffic:
    """`concurrency` sessions at once, the next one begins when one has ended."""

    sessions: Sessions
    concurrency: int
    think_s: float = 0.0
    rate_of: str = "sessions"

    @property
    def rate_per_s(self) -> None:
        return None

    def arrivals(self, granules: int) -> Arrivals:
        return ClosedLoop(in_blocks(self.sessions, granules), self.concurrency, self.think_s)

    def prefix(self, num_calls: int) -> "ClosedTraffic":
        return replace(self, sessions=first_sessions(self.sessions, num_calls))

    def faster(self, factor: float) -> "ClosedTraffic":
        """The same: it has no gaps."""
        return self

    def as_json(self) -> dict[str, Any]:
        return {"arrival": "closed", "concurrency": self.concurrency, "think_s": self.think_s}


class StartedSessions:
    """Each session begins at its time; then a call is sent `think_s` after the answer to the one
    before it. Serves one run."""

    def __init__(self, sessions: Sessions, starts_s: Sequence[float], think_s: float) -> None:
        self._sessions = [iter(session) for session in sessions]
        self._starts_s = starts_s
        self._think_s = think_s
        self._rest: dict[TimedCall, Iterator[TimedCall]] = {}

    def first(self) -> Sequence[Sending]:
        return [
            sending
            for start_s, session in zip(self._starts_s, self._sessions, strict=True)
            for sending in self._next(session, start_s)
        ]

    def answered(self, call: TimedCall, now_s: float) -> Sequence[Sending]:
        return self._next(self._rest.pop(call), now_s + self._think_s)

    def _next(self, session: Iterator[TimedCall], at_s: float) -> Sequence[Sending]:
        call = next(session, None)
        if call is None:
            return ()
        self._rest[call] = session
        return [(at_s, call)]


def in_blocks(sessions: Sessions, granules: int) -> Sessions:
    """The same calls with the keys of larger blocks: a key stands for all tokens up to its end."""
    if granules == 1:
        return sessions
    return [
        [replace(call, keys=call.keys[granules - 1 :: granules]) for call in session]
        for session in sessions
    ]


def first_sessions(sessions: Sessions, num_calls: int) -> Sessions:
    """As few as have so many calls."""
    ends = accumulate(map(len, sessions))
    num_short = sum(1 for _ in takewhile(lambda end: end < num_calls, ends))
    return [*islice(sessions, num_short + 1)]
