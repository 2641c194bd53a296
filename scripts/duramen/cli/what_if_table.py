"""The tables of `duramen why --what-if`: the largest sessions, and the whole log, by payer."""

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from duramen.cli.lint_lines import counted, printable
from duramen.cli.output import write_json
from duramen.cli.study import device_json, wide_console
from duramen.experiments.why.what_if.bills import Payers
from duramen.experiments.why.what_if.net import Net
from duramen.experiments.why.what_if.plan import ALWAYS, Plan
from duramen.experiments.why.what_if.totals import Total, totals
from duramen.experiments.why.what_if.verdict import dollars, told, verdicts
from duramen.experiments.why.what_if.what_if import Considered
from duramen.layout.errors import TrajectoryError

MAX_SESSIONS = 10
WIDTH = 240  # of what is piped: eleven columns, their figures whole
COLUMNS = ("at call", "now", "saved per later call", "break-even, calls", "later calls", "net")


def as_what_if_table(
    considered: Sequence[Considered], plan: Plan, notes: Sequence[str], *, tables: bool
) -> Group:
    """`tables`: what every payer would pay for each session, too."""
    changed = [each for each in considered if each.always is not None]
    what = f"{plan.label}: changes {len(changed):,} of {counted(len(considered), 'session')}"
    parts: list[Table | Text] = [Text(what, "bold")]
    largest = sorted(changed, key=lambda each: -each.num_tokens)[:MAX_SESSIONS]
    for each in largest:
        size = f"{counted(len(each.bills), 'call')}, {each.num_tokens:,} prompt tokens"
        name = printable(each.session_id)
        if tables:
            parts.append(Text(f"\n{name}: {size}", "bold"))
            parts += [Text(f"  {line}") for line in verdicts(each)]
            parts += [_by_payer(each)] if any(map(_changes, each.best.values())) else []
        else:
            parts.append(Text(f"{name}: {size}; {told(each)}"))
    if len(changed) > len(largest):
        left = counted(len(changed) - len(largest), "smaller session")
        parts.append(Text(f"and {left}: all of them with --json FILE"))
    if changed:
        parts += _totals(considered, plan)
    return Group(*parts, *(Text(f"note: {note}") for note in notes))


def _changes(net: Net | Total) -> bool:
    return bool(net.now or net.later)


def _by_payer(considered: Considered) -> Table:
    table = _table("payer", COLUMNS)
    for name, net in considered.best.items():
        if not _changes(net):
            continue
        table.add_row(
            name,
            f"{net.call:,}",
            _spent(net.now, net.now_s),
            _dollars(net.per_call),
            _calls(net.break_even_calls),
            f"{net.num_later:,}",
            dollars(net.net),
        )
    return table


def _totals(considered: Sequence[Considered], plan: Plan) -> Iterator[Table | Text]:
    """Who would pay neither more nor less has no row."""
    names = ("sessions", "gain", *COLUMNS[1:], "net where it gains", f"{ALWAYS[plan.name]}, net")
    table = _table("\nall sessions, each at its best call", names)
    same = []
    for name, total in totals(considered).items():
        if not _changes(total) and not total.always:
            same.append(name)
            continue
        table.add_row(
            name,
            f"{total.num_sessions:,}",
            f"{total.num_gaining:,}",
            dollars(total.now),
            _dollars(total.per_call),
            _calls(total.break_even_calls),
            f"{total.num_later:,}",
            dollars(total.net),
            dollars(total.net_of_gains),
            dollars(total.always),
        )
    if table.row_count:
        yield table
    if same:
        yield Text(f"nothing changes for {', '.join(same)}")


def _table(title: str, names: Sequence[str]) -> Table:
    table = Table(title=None if title == "payer" else title, title_justify="left")
    table.add_column("payer", no_wrap=True)
    for name in names:
        table.add_column(name, justify="right", overflow="fold")
    return table


def _dollars(amount: Decimal | None) -> str:
    return "-" if amount is None else dollars(amount)


def _spent(amount: Decimal, seconds: float | None) -> str:
    return dollars(amount) if seconds is None else f"{dollars(amount)} ({seconds:.2f} s)"


def _calls(number: int | None) -> str:
    return "never" if number is None else f"{number:,}"


def notes(considered: Sequence[Considered], num_left_out: int) -> list[str]:
    """What a reader of the figures would not expect."""
    said = [
        "replies are taken as recorded: what a model would say to other prompts is not known",
        "each session is served alone, from an empty cache, and rendered by the chat template",
        "tokens are those of the tokenizer that is named: dollars compare, and are no quote",
    ]
    if any(each.is_time_assumed for each in considered):
        said.append("calls without a recorded time are taken to come 10 s after the call before")
    if num_left_out:
        said.append(
            f"{num_left_out:,} sessions are left out: calls without messages, or the template "
            "refuses them"
        )
    return said


def show_what_if(
    plan: Plan,
    answers: Iterable[Considered],
    payers: Payers,
    facts: dict[str, Any],
    json_file: str | None,
    *,
    tables: bool,
) -> None:
    """A line for each session and the sums, or JSON. `tables`: as in `as_what_if_table`. Raises
    TrajectoryError where no session could be considered."""
    every = list(answers)
    considered = [each for each in every if each.bills]
    if not considered:
        raise TrajectoryError("no session of this log has calls that could be laid out again")
    said = notes(considered, len(every) - len(considered))
    if json_file is None:
        console = wide_console()
        if not console.is_terminal:
            console.width = max(console.width, WIDTH)
        console.print(as_what_if_table(considered, plan, said, tables=tables))
        return
    answer = {
        "plan": plan.label,
        "payers": {
            **{e.name: {"date": e.date, "caveat": e.caveat or None} for e in payers.entries},
            **{name: device_json(device) for name, device in payers.devices.items()},
        },
        "sessions": [each.as_json() | {"verdicts": list(verdicts(each))} for each in considered],
        "totals": {name: total.as_json() for name, total in totals(considered).items()},
        "notes": said,
    }
    write_json("why", facts | {"what_if": answer}, json_file)
