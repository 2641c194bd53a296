"""Break-even: what zoned costs as a share of stable, around the study's typical task."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from duramen.experiments.study.page import figures
from duramen.experiments.study.page.scale import Linear, Log, apart, around_one
from duramen.experiments.study.page.view import Json, mapping, number, sequence

HEIGHT = 260  # of a plot, in CSS pixels
LABEL_HEIGHT = 16


@dataclass(frozen=True)
class Variable:
    """What a panel varies. `curves`, `values`, `typical`: its keys in the study."""

    title: str
    unit: str
    curves: str
    values: str
    typical: str
    is_log: bool


VARIABLES = (
    Variable("by change rate", "share of calls that change an artifact", "by_rate",
             "change_rates", "change_rate", False),
    Variable("by length of the task", "calls", "by_calls", "num_calls", "num_calls", True),
    Variable("by size of the trunk", "tokens of trunk", "by_trunk", "trunks", "trunk", True),
)  # fmt: skip


@dataclass(frozen=True)
class Curve:
    """For one k. `path`: in percent; `ratios`: as text, by the panel's values; `shade`: of k."""

    k: str
    shade: int
    is_typical: bool
    path: str
    label_y: float
    ratios: tuple[str, ...]


@dataclass(frozen=True)
class Panel:
    """`curves_of`: by price. `typical_x`: where the typical task stands, None if outside; then
    `axis` says what it has."""

    variable: Variable
    axis: str
    values: tuple[str, ...]
    places: tuple[float, ...]
    ticks: tuple[tuple[float, str], ...]
    typical_x: float | None
    curves_of: tuple[tuple[Curve, ...], ...]


@dataclass(frozen=True)
class BreakEven:
    prices: tuple[str, ...]
    task: str
    findings: tuple[str, ...]  # by price
    scale: Log
    panels: tuple[Panel, ...]


def break_even(json: Json) -> BreakEven | None:
    prices = {name: mapping(each) for name, each in mapping(json.get("prices")).items()}
    if not prices:
        return None
    task = mapping(json.get("task"))
    scale = around_one(
        ratio
        for each in prices.values()
        for variable in VARIABLES
        for ratios in mapping(each.get(variable.curves)).values()
        for ratio in _numbers(ratios)
    )
    panels = (_panel(json, variable, list(prices.values()), scale) for variable in VARIABLES)
    return BreakEven(
        tuple(prices),
        task_text(task),
        tuple(finding(task, each) for each in prices.values()),
        scale,
        tuple(panel for panel in panels if any(panel.curves_of)),
    )


def task_text(task: Json) -> str:
    """The typical task in words; what is not known of it is left out."""
    parts = [
        f"{figures.count(known)} {words}"
        for name, words in (
            ("num_calls", "calls"),
            ("root", "tokens of root"),
            ("trunk", "tokens of trunk at the end"),
            ("said", "of each turn in the leaf"),
            ("reply", "of these its reply"),
        )
        if (known := number(task.get(name))) is not None
    ]
    rate, behind = number(task.get("change_rate")), number(task.get("behind"))
    if rate is not None:
        parts.append(f"an artifact changes in {figures.share(rate)} of the calls")
    if behind is not None:
        parts.append(f"{figures.share(behind)} of the trunk stands behind a change")
    return "; ".join([*parts, *_turns(task)])


def _turns(task: Json) -> list[str]:
    k, step = number(task.get("k")), number(task.get("step"))
    if k is None:
        return []
    at_once = f", and {figures.count(step)} older ones leave at once" if step and step > 1 else ""
    return [f"zoned keeps the last {figures.count(k)} turns{at_once}"]


def finding(task: Json, price: Json) -> str:
    """The break-even points and what was measured, in a sentence each; nothing where the study
    says nothing."""
    said = []
    length = number(task.get("num_calls"))
    here = "Here" if length is None else f"With {figures.count(length)} calls"
    rate, wins = number(price.get("break_even_rate")), price.get("zoned_wins_at_rate_0")
    if rate is not None and isinstance(wins, bool):
        below, above = ("zoned", "stable") if wins else ("stable", "zoned")
        said.append(
            f"{here} both cost the same when an artifact changes in {figures.share(rate)} of "
            f"the calls: below that {below} is cheaper, above it {above}."
        )
    elif isinstance(wins, bool):
        said.append(f"{here} zoned is cheaper at {'every' if wins else 'no'} change rate.")
    if "break_even_calls" in price:
        calls = number(price.get("break_even_calls"))
        k = number(task.get("k"))
        kept = "" if k is None else f" with k={figures.count(k)}"
        said.append(
            f"No task is long enough for zoned{kept} to be cheaper, as far as was tried."
            if calls is None
            else f"Zoned{kept} is cheaper from {figures.count(calls)} calls on."
        )
    if (measured := number(price.get("measured"))) is not None:
        said.append(
            f"In this study's own sessions zoned came to {figures.ratio(measured)} of stable."
        )
    return " ".join(said)


def _panel(json: Json, variable: Variable, prices: Sequence[Json], scale: Log) -> Panel:
    values = _numbers(json.get(variable.values))
    x = _axis(values, is_log=variable.is_log)
    typical = number(mapping(json.get("task")).get(variable.typical))
    is_inside = typical is not None and bool(values) and min(values) <= typical <= max(values)
    places = tuple(x.at(value) for value in values)
    say = figures.share if variable.curves == "by_rate" else figures.count
    k = number(mapping(json.get("task")).get("k"))
    elsewhere = "" if is_inside or typical is None else f" (typical task: {say(typical)})"
    return Panel(
        variable,
        variable.unit + elsewhere,
        tuple(say(value) for value in values),
        places,
        tuple((x.at(value), _tick(value, variable)) for value in x.ticks(5)),
        x.at(typical) if is_inside and typical is not None else None,
        tuple(_curves(mapping(each.get(variable.curves)), places, scale, k) for each in prices),
    )


def _curves(
    ratios_of: Json, places: Sequence[float], scale: Log, typical_k: float | None
) -> tuple[Curve, ...]:
    known = {k: _numbers(ratios) for k, ratios in ratios_of.items()}
    known = {k: ratios for k, ratios in known.items() if ratios and len(ratios) == len(places)}
    ends = [100 - scale.at(ratios[-1]) for ratios in known.values()]
    labels = apart(ends, 100 * LABEL_HEIGHT / HEIGHT, 100.0)
    return tuple(
        Curve(
            k=k,
            shade=round(4 * index / max(len(known) - 1, 1)),
            is_typical=typical_k is not None and k == figures.count(typical_k),
            path="M" + "L".join(_points(places, ratios, scale)),
            label_y=round(label, 2),
            ratios=tuple(figures.ratio(ratio) for ratio in ratios),
        )
        for index, ((k, ratios), label) in enumerate(zip(known.items(), labels, strict=True))
    )


def _points(places: Sequence[float], ratios: Sequence[float], scale: Log) -> Iterable[str]:
    for x, ratio in zip(places, ratios, strict=True):
        yield f"{x:.4g} {100 - scale.at(ratio):.4g}"


def _axis(values: Sequence[float], *, is_log: bool) -> Linear | Log:
    low, high = min(values, default=0.0), max(values, default=1.0)
    if low == high:
        return Linear(low - 1, high + 1)
    return Log(low, high) if is_log and low > 0 else Linear(low, high)


def _tick(value: float, variable: Variable) -> str:
    return f"{value:.0%}" if variable.curves == "by_rate" else figures.short_count(value)


def _numbers(values: object) -> list[float]:
    found = [number(value) for value in sequence(values)]
    return [value for value in found if value is not None]
