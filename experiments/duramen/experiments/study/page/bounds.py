"""Where the prompt tokens of a layout went: bars from what was delivered to what was never seen."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from duramen.experiments.study.page import figures
from duramen.experiments.study.page.scale import Linear, from_zero
from duramen.experiments.study.page.twins import Twins, twins
from duramen.experiments.study.page.view import LayoutView, StudyView

MIN_LABELLED = 11  # percent of the axis that a share takes to be written in, on a phone too
NUM_CAUSES = 4  # of the layouts' own, shown each; the rest is one
OTHER = "other places"
ENGINE = ("granularity", "draft", "eviction", "last token", "last sampled token")
DELIVERED, UNAVOIDABLE = "delivered", "never seen before"
NOT_HELD, UNEXPLAINED = "calls that the pool could not hold", "not accounted for"


@dataclass(frozen=True)
class Kind:
    """A part that bars can have. `css`: the class of its colour."""

    name: str
    css: str


@dataclass(frozen=True)
class Segment:
    """`part`: index of its kind; places in percent of the axis."""

    part: int
    css: str
    x: float
    width: float
    text: str


@dataclass(frozen=True)
class Bar:
    """`tokens`: by kind, in the order of the chart's."""

    twins: Twins
    segments: tuple[Segment, ...]
    tokens: tuple[str, ...]
    uncached: str


@dataclass(frozen=True)
class BoundsChart:
    """`bars_of`: a list per arm."""

    scale: Linear
    kinds: tuple[Kind, ...]
    bars_of: tuple[tuple[Bar, ...], ...]


def bounds_chart(study: StudyView) -> BoundsChart:
    named = top_causes(study)
    parts = [
        [
            (layout, tuple(parts_of(layout, arm, named).items()), layout.arm(arm).uncached_tokens)
            for layout in study.by_uncached(arm)
        ]
        for arm in study.arms
    ]
    used = {name for bars in parts for _, found, _ in bars for name, _ in found}
    kinds = tuple(kind for kind in _kinds(study, named) if kind.name in used)
    scale = from_zero([layout.prompt_tokens or 0 for layout in study.layouts])
    return BoundsChart(
        scale,
        kinds,
        tuple(
            tuple(
                _bar(same, dict(found), uncached, kinds, scale)
                for same, (found, uncached) in twins(
                    (layout, (found, uncached)) for layout, found, uncached in bars
                )
            )
            for bars in parts
        ),
    )


def parts_of(layout: LayoutView, arm: str, causes: Sequence[str]) -> dict[str, int]:
    """Prompt tokens by kind. They add up to the layout's prompt tokens: `causes` are named each,
    and what an arm left out or nothing explains is a part, too."""
    view = layout.arm(arm)
    if view.cached_tokens is None:
        return {}
    parts = Counter({DELIVERED: view.cached_tokens}) + Counter(dict(view.gaps))
    for cause, tokens in layout.gaps.items():
        parts[_lost(cause if cause in causes else OTHER)] += tokens
    parts[UNAVOIDABLE] += layout.min_uncached_tokens or 0
    rest = (layout.prompt_tokens or 0) - parts.total()
    parts[NOT_HELD if view.num_skipped else UNEXPLAINED] += rest
    return {name: tokens for name, tokens in parts.items() if tokens > 0}


def top_causes(study: StudyView) -> list[str]:
    """What broke prefixes, the most tokens first."""
    lost = Counter[str]()
    for layout in study.layouts:
        lost.update(layout.gaps)
    return [cause for cause, _ in lost.most_common(NUM_CAUSES)]


def _kinds(study: StudyView, named: Sequence[str]) -> tuple[Kind, ...]:
    gaps = {cause for each in study.layouts for arm in each.arms.values() for cause in arm.gaps}
    own = [_lost(cause) for cause in [*named, OTHER]]
    return (
        Kind(DELIVERED, "b-delivered"),
        *(Kind(cause, f"b-e{ENGINE.index(cause)}") for cause in ENGINE),
        *(Kind(cause, "b-unknown") for cause in sorted(gaps - set(ENGINE))),
        Kind(NOT_HELD, "b-unknown"),
        *(Kind(cause, f"b-l{min(number, NUM_CAUSES)}") for number, cause in enumerate(own)),
        Kind(UNEXPLAINED, "b-unknown"),
        Kind(UNAVOIDABLE, "b-new"),
    )


def _lost(cause: str) -> str:
    return f"layout broke at {cause}"


def _bar(
    same: Twins,
    tokens_of: Mapping[str, int],
    uncached: int | None,
    kinds: Sequence[Kind],
    scale: Linear,
) -> Bar:
    segments, start = [], 0
    total = sum(tokens_of.values())
    for part, kind in enumerate(kinds):
        tokens = tokens_of.get(kind.name, 0)
        if tokens:
            x, end = scale.at(start), scale.at(start + tokens)
            text = figures.share(tokens / total) if end - x >= MIN_LABELLED else ""
            segments.append(Segment(part, kind.css, x, round(end - x, 2), text))
            start += tokens
    numbers = (figures.count(tokens_of.get(kind.name, 0) if total else None) for kind in kinds)
    return Bar(same, tuple(segments), tuple(numbers), figures.count(uncached))
