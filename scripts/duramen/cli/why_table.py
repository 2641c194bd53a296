"""The table of `duramen why`: a row for each break, then what was seen and what to change."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from duramen.cli.lint_lines import counted, printable
from duramen.experiments.why.explained import NOTED, ExplainedBreak, ExplainedCall, totals
from duramen.experiments.why.page.spelled import forms_escaped
from duramen.layout.diagnose.causes import Cause

MAX_DETAILS = 20
COLUMNS = (
    "call",
    "against",
    "layer",
    "cause",
    "token",
    "block",
    "zone",
    "lost tokens",
    "confidence",
)
RIGHT = {"token", "block", "lost tokens", "confidence"}
DEBRIS = "\ufffd"  # what ids of another tokenizer decode to


@dataclass(frozen=True)
class Told:
    """Breaks of one session, one behind the other, that have one mend; told by the first."""

    calls: tuple[ExplainedCall, ...]
    breaks: tuple[ExplainedBreak, ...]

    @property
    def lost_tokens(self) -> int:
        return sum(each.lost_tokens for each in self.breaks)

    @property
    def name(self) -> str:
        first, last = self.calls[0], self.calls[-1]
        name = f"{first.session} #{first.call}"
        if len(self.calls) > 1:
            name += f" to #{last.call}, {counted(len(self.calls), 'call')}"
        return printable(name)


def as_table(calls: Sequence[ExplainedCall], facts: dict[str, Any]) -> Group:
    found = [(call, call.broken) for call in calls if call.broken is not None]
    broken = [each for each in found if each[1].is_break]
    what = f"{counted(len(calls), 'call')}, {facts['model']}, unit {facts['unit_tokens']}"
    title = f"{what}: {counted(len(broken), 'break')}"
    parts: list[Table | Text] = [_bounds(calls)]
    if told := list(_folded(broken)):
        parts.append(_breaks(told, title))
        parts += [line for each in told[:MAX_DETAILS] for line in _details(each)]
        if len(told) > MAX_DETAILS:
            parts.append(
                Text(f"and {len(told) - MAX_DETAILS:,} more: all of them with --json FILE")
            )
    else:
        parts.append(Text(title))
    notes = [*(note for call in calls for note in call.notes), *facts.get("notes", ())]
    parts += [Text(f"note: {printable(note)}") for note in [*_noted(found), *notes]]
    refused = [call for call in calls if call.refused]
    if refused:
        why = printable(refused[0].refused or "")
        line = f"{counted(len(refused), 'call')} that the template refuses, the first: {why}"
        parts.append(Text(line, "red"))
    if broken:
        parts.append(_totals([call for call, _ in broken]))
    return Group(*parts)


def _folded(broken: Iterable[tuple[ExplainedCall, ExplainedBreak]]) -> Iterator[Told]:
    def kind(each: tuple[ExplainedCall, ExplainedBreak]) -> tuple[Any, ...]:
        call, found = each
        return call.session, found.layer, found.cause, found.zone, found.mend

    for _, group in groupby(broken, kind):
        calls, breaks = zip(*group, strict=True)
        yield Told(calls, breaks)


def _noted(found: Iterable[tuple[ExplainedCall, ExplainedBreak]]) -> Iterator[str]:
    """A line for each cause by which nothing broke."""
    by_cause: dict[Cause, list[tuple[ExplainedCall, ExplainedBreak]]] = {}
    for call, broken in found:
        if broken.cause in NOTED:
            by_cause.setdefault(broken.cause, []).append((call, broken))
    for cause, each in by_cause.items():
        call, first = each[0]
        where = f"{counted(len(each), 'call')}, first {call.session} #{call.call}"
        lost = sum(broken.lost_tokens for _, broken in each)
        tokens = f" ({counted(lost, 'token')})" if lost else ""
        yield f"{cause}, {where}{tokens}: {first.evidence}; {first.mend}"


def _bounds(calls: Sequence[ExplainedCall]) -> Table:
    """Of all calls, or of each where there are few."""
    table = Table(title="what could be reused, and was (tokens)", title_justify="left")
    names = ("prompt", "lcp", "reusable", "predicted", "delivered")
    for name in ("", *names):
        table.add_column(name, justify="right" if name else "left")
    few = calls if len(calls) <= 2 else ()
    rows = [(escape(printable(f"{c.session} #{c.call}")), [c]) for c in few]
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
    """Of what is known, with the number of calls where that is not all of them."""
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    some = "" if len(known) == len(values) else f", of {len(known):,} of {len(values):,} calls"
    return f"{sum(known):,}{some}"


def _breaks(found: Sequence[Told], title: str) -> Table:
    table = Table(title=escape(title), title_justify="left")
    for name in COLUMNS:
        table.add_column(name, justify="right" if name in RIGHT else "left")
    for told in found:
        call, broken = told.calls[0], told.breaks[0]
        vs = "-"
        if broken.vs_call is not None:
            other = "" if broken.vs_session == call.session else f"{broken.vs_session} "
            vs = f"{other}#{broken.vs_call}"
        table.add_row(
            escape(told.name),
            escape(printable(vs)),
            broken.layer,
            broken.cause,
            _number(broken.token),
            _number(broken.block),
            broken.zone.name.lower() if broken.zone is not None else "-",
            _number(told.lost_tokens),
            f"{broken.confidence:.0%}",
        )
    return table


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _details(told: Told) -> Iterator[Text]:
    broken = told.breaks[0]
    yield Text(f"\n{told.name}: {broken.cause}", "bold")
    first = "" if len(told.breaks) == 1 else " first"
    yield Text(f"  seen{first}: {printable(forms_escaped(broken.evidence, broken.cause))}")
    if broken.layer == "token" and broken.ids is not None:
        was, now = ("the end" if each is None else f"id {each}" for each in broken.ids)
        yield Text(f"  ids:  token {broken.token}: {was} became {now}")
    if broken.around is not None and not any(DEBRIS in text for text in broken.around):
        was, now = (forms_escaped(repr(text), broken.cause) for text in broken.around)
        yield Text(f"  was:  {was}")
        yield Text(f"  is:   {now}")
    dollars = [each.dollars for each in told.breaks if each.dollars is not None]
    if dollars:
        yield Text(f"  cost: ${sum(dollars):.6f}")
    yield Text(f"  mend: {printable(broken.mend)}")


def _totals(calls: Sequence[ExplainedCall]) -> Table:
    table = Table(title="lost tokens by cause", title_justify="left")
    table.add_column("cause")
    table.add_column("tokens", justify="right")
    table.add_column("breaks", justify="right")
    for cause, tokens in totals(calls).items():
        number = sum(call.broken is not None and call.broken.cause == cause for call in calls)
        table.add_row(cause, f"{tokens:,}", f"{number:,}")
    return table
