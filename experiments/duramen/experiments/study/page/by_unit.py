"""Uncached tokens by engine: lines over the match unit, and a table of every arm."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from duramen.experiments.study.page import figures
from duramen.experiments.study.page.scale import Linear, Log, apart, from_zero
from duramen.experiments.study.page.twins import Twins, twins
from duramen.experiments.study.page.view import LayoutView, StudyView

HEIGHT = 340  # of the plot, in CSS pixels
LABEL_HEIGHT = 17


@dataclass(frozen=True)
class Point:
    x: float
    y: float
    tip: str


@dataclass(frozen=True)
class Name:
    """Where a layout's name stands beside its line, in percent of the height like every y."""

    layout: LayoutView
    y: float


@dataclass(frozen=True)
class Line:
    """`names`: of all layouts that the line stands for, from the top."""

    twins: Twins
    points: tuple[Point, ...]
    names: tuple[Name, ...]

    @property
    def path(self) -> str:
        return "M" + "L".join(f"{point.x:g} {point.y:g}" for point in self.points)


@dataclass(frozen=True)
class UnitChart:
    """`ticks`: places and names on the x axis."""

    scale: Linear
    ticks: tuple[tuple[float, str], ...]
    lines: tuple[Line, ...]
    height: int


@dataclass(frozen=True)
class ArmRow:
    """`figures_of`: by arm, the tokens and how much more they are than in the first arm."""

    twins: Twins
    figures_of: tuple[tuple[str, str], ...]


def unit_chart(study: StudyView) -> UnitChart | None:
    """None where there are fewer than two match units to compare."""
    units = {arm: int(arm[5:]) for arm in study.arms if re.fullmatch(r"unit [1-9]\d{0,9}", arm)}
    if len(units) < 2:
        return None
    x = Log(min(units.values()), max(units.values()))
    arms = sorted(units, key=units.__getitem__)
    lines = twins(
        (layout, tuple(tokens.items()))
        for layout in study.layouts
        if (tokens := _tokens(layout, arms))
    )
    y = from_zero(tokens for _, shown in lines for _, tokens in shown)
    num_names = sum(len(same.layouts) for same, _ in lines)
    height = max(HEIGHT, LABEL_HEIGHT * num_names)
    points = [
        tuple(
            Point(x.at(units[arm]), 100 - y.at(tokens), f"{same.label}, {arm}: {tokens:,} uncached")
            for arm, tokens in shown
        )
        for same, shown in lines
    ]
    names = _names([same for same, _ in lines], points, 100 * LABEL_HEIGHT / height)
    return UnitChart(
        y,
        tuple((x.at(unit), f"{unit:,}") for unit in sorted(units.values())),
        tuple(map(Line, (same for same, _ in lines), points, names)),
        height,
    )


def arm_rows(study: StudyView) -> list[ArmRow]:
    if not study.arms:
        return []
    rows = (
        (layout, tuple(_figure(layout, arm, study.arms[0]) for arm in study.arms))
        for layout in study.by_uncached(study.arms[0])
    )
    return [ArmRow(*pair) for pair in twins(rows)]


def _names(
    lines: Sequence[Twins], points: Sequence[Sequence[Point]], height: float
) -> list[tuple[Name, ...]]:
    """A place for each layout's name at the end of its line; those of one line stand together."""
    ends = [shown[-1].y for same, shown in zip(lines, points, strict=True) for _ in same.layouts]
    places = iter(apart(ends, height, 100.0))
    return [
        tuple(Name(layout, round(next(places), 2)) for layout in same.layouts) for same in lines
    ]


def _figure(layout: LayoutView, arm: str, base: str) -> tuple[str, str]:
    tokens, first = layout.arm(arm).uncached_tokens, layout.arm(base).uncached_tokens
    if tokens is None or first is None or arm == base:
        return figures.count(tokens), ""
    skipped = layout.arm(arm).num_skipped
    note = f", without {skipped:,} calls" if skipped else ""
    return figures.count(tokens), figures.change(tokens, first) + note


def _tokens(layout: LayoutView, arms: Sequence[str]) -> dict[str, int]:
    found = {arm: layout.arm(arm).uncached_tokens for arm in arms}
    return {arm: tokens for arm, tokens in found.items() if tokens is not None}
