"""The table of `duramen study layouts`: one row per layout, the cheapest first."""

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

from rich.console import Group
from rich.table import Table
from rich.text import Text

from duramen.experiments.study.arms import Arm
from duramen.experiments.study.results import LayoutResult


def as_table(
    results: Sequence[LayoutResult], arms: Sequence[Arm], models: Sequence[str], out: Path
) -> Group:
    main = arms[0].label
    table = Table(title=f"first arm: {main}, infinite pool", title_justify="left")
    table.add_column("layout", no_wrap=True)
    for name in ("calls", "prompt tokens", "uncached", "unavoidable", "hit rate", "breaks"):
        table.add_column(name, justify="right", overflow="fold")
    for model in models:
        table.add_column(f"USD {model}", justify="right", overflow="fold")
    for result in sorted(results, key=lambda each: each.arms[main].uncached_tokens):
        sums = result.arms[main]
        table.add_row(
            result.label + marked(result),
            f"{result.num_calls:,}",
            f"{result.prompt_tokens:,}",
            f"{sums.uncached_tokens:,}",
            f"{result.min_uncached_tokens:,}",
            "-" if sums.hit_rate is None else f"{sums.hit_rate:.1%}",
            f"{sum(session.num_breaks for session in result.sessions):,}",
            *(as_usd(result.usd(model)) for model in models),
        )
    lines = [Text("* assumed: another prompt may get other replies; all prices are on the page")]
    for result in results:
        for reason, number in result.num_refused.items():
            num_all = result.num_calls + sum(result.num_refused.values())
            text = f"{result.label}: {number} of {num_all} calls refused: {reason}"
            lines.append(Text(text, "red"))
    return Group(table, *lines, Text(f"page: {out / 'index.html'}"))


def marked(result: LayoutResult) -> str:
    if not result.has_effect:
        return " (no effect)"
    return " *" if result.is_assumed else ""


def as_usd(usd: Decimal) -> str:
    """Cents, and three digits of what is less than a cent."""
    return f"{usd:,.2f}" if usd >= Decimal("0.1") or not usd else f"{usd:.3g}"
