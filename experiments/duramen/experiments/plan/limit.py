"""The arrival rate at which a setting begins to miss its objectives."""

from collections.abc import Callable
from dataclasses import dataclass

PRECISION = 1.05  # between the two rates that are told
MOST = 1024.0  # times faster or slower than the traffic


@dataclass(frozen=True)
class Limit:
    """Factors on the traffic's own rate: the objectives are kept at `keeps` and missed at `breaks`,
    which are at most 5% apart. None where no factor up to 1,024 (down to 1 in 1,024) does so."""

    keeps: float | None
    breaks: float | None


def find_limit(keeps_at: Callable[[float], bool]) -> Limit:
    """By bisection: `keeps_at` is taken to be true below some factor and false above."""
    if keeps_at(1.0):
        keeps, first_break = _bracket(keeps_at, 2.0)
        if first_break is None:
            return Limit(keeps, None)
        breaks = first_break
    else:
        breaks, last_kept = _bracket(lambda factor: not keeps_at(factor), 0.5)
        if last_kept is None:
            return Limit(None, breaks)
        keeps = last_kept
    while breaks / keeps > PRECISION:
        middle = (keeps * breaks) ** 0.5
        if keeps_at(middle):
            keeps = middle
        else:
            breaks = middle
    return Limit(keeps, breaks)


def _bracket(holds: Callable[[float], bool], times: float) -> tuple[float, float | None]:
    """The last factor that holds and the first that does not, from 1 on; 1 is known to hold."""
    last = 1.0
    while 1 / MOST <= last * times <= MOST:
        if not holds(last * times):
            return last, last * times
        last *= times
    return last, None
