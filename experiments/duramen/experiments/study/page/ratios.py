"""Every layout against `stable`, session by session: dots and whiskers on a log scale."""

from collections.abc import Iterable
from dataclasses import dataclass

from duramen.experiments.study.page import figures
from duramen.experiments.study.page.scale import Log, around_one
from duramen.experiments.study.page.twins import Twins, twins
from duramen.experiments.study.page.view import (
    STABLE,
    LayoutView,
    Spread,
    StudyView,
    mapping,
    spread,
)


@dataclass(frozen=True)
class Whisker:
    """Places in percent of the axis."""

    twins: Twins
    spread: Spread
    low: float
    p25: float
    median: float
    p75: float
    high: float

    @property
    def middle(self) -> str:
        return _between(self.spread.p25, self.spread.p75)

    @property
    def range(self) -> str:
        return _between(self.spread.low, self.spread.high)


@dataclass(frozen=True)
class RatioChart:
    """`whiskers_of`: a list per choice (of a model), lowest median first."""

    scale: Log
    whiskers_of: tuple[tuple[Whisker, ...], ...]


def token_ratios(study: StudyView) -> RatioChart | None:
    """Uncached tokens of the first arm; None where there is no `stable` to compare with."""
    return _chart([_spreads(study, None)])


def usd_ratios(study: StudyView) -> RatioChart | None:
    """Dollars, for each model."""
    return _chart([_spreads(study, model) for model in study.models])


Pairs = list[tuple[LayoutView, Spread]]


def _spreads(study: StudyView, model: str | None) -> Pairs:
    pairs = []
    for layout in study.layouts:
        against = mapping(layout.against.get(STABLE))
        json = against.get("uncached_tokens") if model is None else None
        if model is not None:
            json = mapping(against.get("usd")).get(model)
        found = spread(mapping(json))
        if found is not None:
            pairs.append((layout, found))
    return sorted(pairs, key=lambda pair: pair[1].median)


def _chart(choices: list[Pairs]) -> RatioChart | None:
    if not any(choices):
        return None
    ends = [end for pairs in choices for _, each in pairs for end in (each.low, each.high)]
    scale = around_one(ends)
    return RatioChart(scale, tuple(tuple(_whiskers(pairs, scale)) for pairs in choices))


def _whiskers(pairs: Pairs, scale: Log) -> Iterable[Whisker]:
    for same, each in twins(pairs):
        values = (each.low, each.p25, each.median, each.p75, each.high)
        yield Whisker(same, each, *(scale.at(value) for value in values))


def _between(low: float, high: float) -> str:
    ends = [figures.ratio(low), figures.ratio(high)]
    return ends[0] if low == high else " – ".join(ends)
