"""The table of `duramen why`: a row for each break, then what was seen and what to change."""

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from duramen.experiments.why.explained import ExplainedBreak, ExplainedCall, totals

MAX_DETAILS = 20
COLUMNS = ("call", "against", "layer", "cause", "token", "block", "zone", "lost tokens", "sure")
RIGHT = {"token", "block", "lost tokens", "sure"}


def as_table(calls: Sequence[ExplainedCall], facts: dict[str, Any]) -> Group:
    found = [(call, call.broken) for call in calls if call.broken is not None]
    told = [(call, broken) for call, broken in found if broken.cause != "first-call"]
    what = f"{len(calls):,} calls, {facts['model']}, unit {facts['unit_tokens']}"
    title = f"{what}: {len(told):,} breaks"
    parts: list[Table | Text] = [_bounds(calls)]
    if told:
        parts.append(_breaks(told, title))
        parts += [line for call, broken in told[:MAX_DETAILS] for line in _details(call, broken)]
        if len(told) > MAX_DETAILS:
            parts.append(
                Text(f"and {len(told) - MAX_DETAILS:,} more: all of them with --json FILE")
            )
    else:
        parts.append(Text(title))
    refused = [call for call in calls if call.refused]
    if refused:
        line = f"{len(refused)} calls that the template refuses, the first: {refused[0].refused}"
        parts.append(Text(line, "red"))
    lost = {cause: number for cause, number in totals(calls).items() if cause != "first-call"}
    if lost:
        parts.append(_totals(lost, calls))
    return Group(*parts)


def _bounds(calls: Sequence[ExplainedCall]) -> Table:
    """Of all calls, or of each where there are few."""
    table = Table(title="what could be reused, and was (tokens)", title_justify="left")
    names = ("prompt", "in common", "reusable", "predicted", "delivered")
    for name in ("", *names):
        table.add_column(name, justify="right" if name else "left")
    rows = [(f"{escape(c.session)} #{c.call}", [c]) for c in calls] if len(calls) <= 2 else []
    for name, each in rows or [("all calls", list(calls))]:
        figures = [
            [c.num_tokens for c in each],
            [c.lcp for c in each],
            [c.reusable for c in each],
            [c.predicted for c in each],
            [c.delivered for c in each],
        ]
        table.add_row(name, *map(_sum, figures))
    return table


def _sum(values: Sequence[int | None]) -> str:
    """A dash where a value is not known: no sum can hide that."""
    known = [value for value in values if value is not None]
    return f"{sum(known):,}" if known and len(known) == len(values) else "-"


def _breaks(found: Sequence[tuple[ExplainedCall, ExplainedBreak]], title: str) -> Table:
    table = Table(title=escape(title), title_justify="left")
    for name in COLUMNS:
        table.add_column(name, justify="right" if name in RIGHT else "left")
    for call, broken in found:
        vs = "-"
        if broken.vs_call is not None:
            other = "" if broken.vs_session == call.session else f"{broken.vs_session} "
            vs = f"{other}#{broken.vs_call}"
        table.add_row(
            escape(f"{call.session} #{call.call}"),
            escape(vs),
            broken.layer,
            broken.cause,
            _number(broken.token),
            _number(broken.block),
            broken.zone.name.lower() if broken.zone is not None else "-",
            _number(broken.lost_tokens),
            f"{broken.confidence:.0%}",
        )
    return table


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _details(call: ExplainedCall, broken: ExplainedBreak) -> Iterator[Text]:
    yield Text(f"\n{call.session} #{call.call}: {broken.cause}", "bold")
    yield Text(f"  seen: {broken.evidence}")
    if broken.around is not None:
        yield Text(f"  was:  {broken.around[0]!r}")
        yield Text(f"  is:   {broken.around[1]!r}")
    if broken.dollars is not None:
        yield Text(f"  cost: ${broken.dollars:.6f}")
    yield Text(f"  mend: {broken.mend}")


def _totals(lost: dict[Any, int], calls: Sequence[ExplainedCall]) -> Table:
    table = Table(title="lost tokens by cause", title_justify="left")
    table.add_column("cause")
    table.add_column("tokens", justify="right")
    table.add_column("breaks", justify="right")
    for cause, tokens in lost.items():
        number = sum(call.broken is not None and call.broken.cause == cause for call in calls)
        table.add_row(cause, f"{tokens:,}", f"{number:,}")
    return table
