"""From values to places on an axis, in percent of its length, and the ticks between."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor, log10


@dataclass(frozen=True)
class Linear:
    """From `low` to `high`; what lies outside stands at the end."""

    low: float
    high: float

    def at(self, value: float) -> float:
        return _percent((value - self.low) / (self.high - self.low))

    def ticks(self, most: int = 6) -> list[float]:
        step = _nice((self.high - self.low) / most)
        first = ceil(self.low / step)
        return [step * place for place in range(first, floor(self.high / step * (1 + 1e-9)) + 1)]


@dataclass(frozen=True)
class Log:
    """From `low` above 0 to `high`; what lies outside stands at the end."""

    low: float
    high: float

    def at(self, value: float) -> float:
        inside = min(max(value, self.low), self.high)
        return _percent((log10(inside) - log10(self.low)) / (log10(self.high) - log10(self.low)))

    def ticks(self, most: int = 7) -> list[float]:
        decades = range(floor(log10(self.low)), ceil(log10(self.high)) + 1)
        for steps in ((1, 2, 5), (1, 3), (1,)):
            values = [step * 10.0**decade for decade in decades for step in steps]
            inside = [value for value in values if self.low <= value <= self.high]
            if len(inside) <= most:
                return inside
        every = ceil(len(inside) / most)
        return [value for value in inside if round(log10(value)) % every == 0]


def from_zero(values: Iterable[float]) -> Linear:
    """Up to the next nice value above the greatest."""
    most = max(values, default=0.0)
    if most <= 0:
        return Linear(0.0, 1.0)
    step = _nice(most / 5)
    return Linear(0.0, step * ceil(most / step * (1 - 1e-9)))


def around_one(ratios: Iterable[float]) -> Log:
    """For ratios: 1 is always inside, with room on both sides."""
    known = [ratio for ratio in ratios if ratio > 0]
    low, high = min(known, default=1.0), max(known, default=1.0)
    return Log(min(low, 1.0) * 0.8, max(high, 1.0) * 1.25)


def apart(places: Sequence[float], gap: float, high: float) -> list[float]:
    """The places, moved as little as keeps them `gap` apart below `high`, in the same order."""
    order = sorted(range(len(places)), key=lambda index: places[index])
    moved = list(places)
    for before, index in pairwise(order):
        moved[index] = max(moved[index], moved[before] + gap)
    limit = high
    for index in reversed(order):
        moved[index] = min(moved[index], limit)
        limit = moved[index] - gap
    return moved


def _nice(step: float) -> float:
    """1, 2 or 5 times a power of ten, at least `step`."""
    power = 10.0 ** floor(log10(step))
    return next(power * each for each in (1, 2, 5, 10) if power * each >= step * (1 - 1e-9))


def _percent(share: float) -> float:
    return round(100 * min(max(share, 0.0), 1.0), 2)
