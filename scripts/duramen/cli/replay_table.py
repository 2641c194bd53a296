"""The table of `duramen replay`: one column per layout."""

from collections.abc import Mapping
from typing import Any

from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from duramen.experiments.accounts import Accounts, percentiles
from duramen.experiments.layouts.catalogue import Layout


def as_table(accounts: Mapping[Layout, Accounts], facts: Mapping[str, Any]) -> Group:
    """Uncached tokens first: a hit rate alone rewards sending more."""
    what = f"{facts['engine']}, {facts['model']}, unit {facts['unit_tokens']}, {facts['device']}"
    table = Table(title=escape(what), title_justify="left")
    table.add_column("")
    for layout in accounts:
        table.add_column(layout.label, justify="right")
    for name, cells in _rows(list(accounts.values())).items():
        table.add_row(name, *cells)
    lines = [Text("cut short: the calls that had finished", "red")] if facts["interrupted"] else []
    for layout, sums in accounts.items():
        lines += _remarks(layout.label, sums)
    return Group(table, *lines)


def _remarks(layout: str, sums: Accounts) -> list[Text]:
    """Where the prefix broke first, and what was left out and why."""
    lines = []
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
    return lines


def _rows(columns: list[Accounts]) -> dict[str, list[str]]:
    times = [percentiles(sums.ttft_s) for sums in columns]
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
        "TTFT p50": [_seconds(time["p50"]) for time in times],
        "TTFT p95": [_seconds(time["p95"]) for time in times],
        "makespan": [_seconds(sums.makespan_s) for sums in columns],
    }
    return {name: cells for name, cells in rows.items() if set(cells) != {"-"}}


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f} s"
