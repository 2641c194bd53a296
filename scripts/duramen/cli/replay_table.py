"""The table of `duramen replay`: one column per layout."""

from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from duramen.experiments.accounts import percentiles
from duramen.experiments.arrival import LATE_S, OpenLoop
from duramen.experiments.layouts.catalogue import Layout
from duramen.experiments.repeats import FIGURES, Figure, Repeats


def as_table(layouts: Mapping[Layout, Repeats], facts: Mapping[str, Any]) -> Group:
    """Uncached tokens first: a hit rate alone rewards sending more."""
    what = f"{facts['engine']}, {facts['model']}, unit {facts['unit_tokens']}, {facts['device']}"
    table = Table(title=escape(what), title_justify="left")
    table.add_column("")
    for layout in layouts:
        table.add_column(layout.label, justify="right")
    for name, cells in _rows(list(layouts.values())).items():
        table.add_row(name, *cells)
    lines = [Text("cut short: the calls that had finished", "red")] if facts["interrupted"] else []
    for layout, repeats in layouts.items():
        lines += _remarks(layout.label, repeats)
    return Group(table, *lines)


def _remarks(layout: str, repeats: Repeats) -> list[Text]:
    """Where the prefix broke first, what was left out and why, and which figures to doubt."""
    lines, sums = [], repeats.typical
    if sums.breaks:
        first = sums.breaks[0]
        where = f"session {first.session}, call {first.call}, token {first.token}, {first.source}"
        lines.append(Text(f"{layout}: first break in {where}"))
    num_all = sums.num_calls + sums.num_skipped.total()
    for reason, number in sums.num_skipped.items():
        why = reason.replace("_", " ")
        if reason == "refused_by_template" and sums.notes:
            why += f": {sums.notes.most_common(1)[0][0]}"
        lines.append(Text(f"{layout}: {number} of {num_all} calls skipped, {why}", "red"))
    if repeats.same_cached_tokens is False:
        found = [f"{run.delivered:,}" for run in repeats.complete]
        lines.append(Text(f"{layout}: runs were delivered {', '.join(found)} tokens", "red"))
    ttft = sums.engine_times and sums.engine_times.ttft
    if ttft and ttft.num != sums.num_calls:
        others = f"the engine timed {ttft.num} calls, {sums.num_calls} of them ours"
        lines.append(Text(f"{layout}: {others}: its figures are not of this layout alone", "red"))
    return lines


def _rows(layouts: list[Repeats]) -> dict[str, list[str]]:
    columns = [repeats.typical for repeats in layouts]
    rows = {
        "calls": [_count(sums.num_calls) for sums in columns],
        "prompt tokens": [_count(sums.prompt_tokens) for sums in columns],
        "uncached tokens": [_count(sums.uncached_tokens) for sums in columns],
        "  of these unavoidable": [_count(sums.min_uncached_tokens) for sums in columns],
        "hit rate": [_percent(sums.hit_rate) for sums in columns],
        "bound: content": [_count(sums.content) for sums in columns],
        "bound: token": [_count(sums.token) for sums in columns],
        "bound: unit": [_count(sums.unit) for sums in columns],
        "predicted": [_count(sums.predicted) for sums in columns],
        "delivered": [_count(sums.delivered) for sums in columns],
        "mispredicted calls": [_count(sums.num_mispredicted) for sums in columns],
        "prefix breaks": [_count(len(sums.breaks)) for sums in columns],
        **{name: [_times(each, figure) for each in layouts] for name, figure in TIMES.items()},
        f"sent over {LATE_S * 1000:.0f} ms late": [
            _count(sums.open_loop.num_late if sums.open_loop else None) for sums in columns
        ],
        "most in flight": [
            _count(sums.open_loop.max_in_flight if sums.open_loop else None) for sums in columns
        ],
        "runs": [_count(len(each.complete)) if len(each.runs) > 1 else "-" for each in layouts],
    }
    return {name: cells for name, cells in rows.items() if set(cells) != {"-"}}


def _open(value: Callable[[OpenLoop], float | None]) -> Figure:
    return lambda run: None if run.open_loop is None else value(run.open_loop)


TIMES: dict[str, Figure] = {
    "TTFT p50": FIGURES["ttft_p50_s"],
    "TTFT p95": FIGURES["ttft_p95_s"],
    "TTFT from due time, p50": _open(lambda sums: percentiles(sums.ttft_from_due_s)["p50"]),
    "TTFT from due time, p95": _open(lambda sums: percentiles(sums.ttft_from_due_s)["p95"]),
    "TTFT mean": FIGURES["ttft_mean_s"],
    "TTFT mean, in the engine": FIGURES["engine_ttft_mean_s"],
    "makespan": FIGURES["makespan_s"],
    "lateness p95": _open(lambda sums: percentiles(sums.late_s)["p95"]),
    "lateness max": _open(lambda sums: max(sums.late_s, default=None)),
}


def _times(repeats: Repeats, figure: Figure) -> str:
    """The time, or the median of several with the least and the most."""
    spread = repeats.spread(figure)
    if spread is None:
        return "-"
    if len(repeats.complete) == 1:
        return _seconds(spread.median)
    return f"{_seconds(spread.median)} ({spread.min:.3f}..{spread.max:.3f})"


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _seconds(value: float) -> str:
    return f"{value:.3f} s"
