"""The table of simulated times: one column per layout."""

from collections.abc import Mapping
from typing import Any

from rich.markup import escape
from rich.table import Table

from duramen.experiments.layouts.catalogue import Layout
from duramen.experiments.timed.figures import Goodput, Ranks, TimedFigures

TIMES = {"TTFT": "ttft_s", "ITL": "itl_s", "E2E": "e2e_s", "queue": "queue_s"}


def as_timing_table(layouts: Mapping[Layout, TimedFigures], facts: Mapping[str, Any]) -> Table:
    """`facts`: the timing part of the JSON."""
    profile = facts["profile"]
    title = f"simulated: {profile['model']} on {profile['device']}, {profile['engine']}, "
    title += f"{profile['origin']} {profile['date']}"
    table = Table(title=escape(title), title_justify="left")
    table.add_column("")
    for layout in layouts:
        table.add_column(layout.label, justify="right")
    for name, cells in _rows([*layouts.values()]).items():
        table.add_row(name, *cells)
    return table


def _rows(columns: list[TimedFigures]) -> dict[str, list[str]]:
    ranks = {
        f"{name} p50 / p90 / p99, s": [_ranks(getattr(each, key)) for each in columns]
        for name, key in TIMES.items()
    }
    rows = ranks | {
        "makespan": [f"{each.makespan_s:.3f} s" for each in columns],
        "output tokens per s": [f"{each.output_tokens_per_s:,.1f}" for each in columns],
        "cached tokens": [f"{each.cached_tokens:,}" for each in columns],
        "preemptions": [f"{each.num_preemptions:,}" for each in columns],
        "good calls": [_goodput(each.goodput) for each in columns],
    }
    return {name: cells for name, cells in rows.items() if set(cells) != {"-"}}


def _ranks(ranks: Ranks) -> str:
    if ranks.p50 is None:
        return "-"
    return f"{ranks.p50:.3f} / {ranks.p90:.3f} / {ranks.p99:.3f}"


def _goodput(goodput: Goodput | None) -> str:
    if goodput is None:
        return "-"
    return f"{goodput.num_calls:,} ({goodput.share:.1%}), {goodput.calls_per_s:.3f} per s"
