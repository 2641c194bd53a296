"""When the calls of a simulation are sent: at given times, or each after the answer before it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from duramen.experiments.timed.call import TimedCall

Sending = tuple[float, TimedCall]  # when, in seconds from the start


class Arrivals(Protocol):
    def first(self) -> Sequence[Sending]:
        """Those that wait for no answer."""

    def answered(self, call: TimedCall, now_s: float) -> Sequence[Sending]:
        """Those that the end of `call` sets off, none of them before `now_s`."""


@dataclass(frozen=True)
class OpenLoop:
    """Each call at its time, whatever has been answered by then."""

    sendings: Sequence[Sending]

    def first(self) -> Sequence[Sending]:
        return self.sendings

    def answered(self, call: TimedCall, now_s: float) -> Sequence[Sending]:
        return ()


@dataclass
class ClosedLoop:
    """`concurrency` sessions at once, the next one begins when one has ended. Within a session a
    call is sent `think_s` after the answer to the call before it. Serves one run."""

    sessions: Sequence[Sequence[TimedCall]]
    concurrency: int = 1
    think_s: float = 0.0
    _waiting: Iterator[Sequence[TimedCall]] = field(init=False, repr=False)
    _rest: dict[TimedCall, Iterator[TimedCall]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._waiting = iter([session for session in self.sessions if session])
        self._rest = {}

    def first(self) -> Sequence[Sending]:
        return [sending for _ in range(self.concurrency) for sending in self._next_session(0.0)]

    def answered(self, call: TimedCall, now_s: float) -> Sequence[Sending]:
        rest = self._rest.pop(call)
        following = next(rest, None)
        if following is None:
            return self._next_session(now_s)
        self._rest[following] = rest
        return [(now_s + self.think_s, following)]

    def _next_session(self, now_s: float) -> Sequence[Sending]:
        session = next(self._waiting, None)
        if session is None:
            return ()
        rest = iter(session)
        call = next(rest)
        self._rest[call] = rest
        return [(now_s, call)]
