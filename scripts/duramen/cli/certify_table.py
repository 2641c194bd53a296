"""What `duramen certify` prints."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from duramen.experiments.gallery import told
from duramen.layout.certify.certified import Certified
from duramen.layout.certify.transitions import TRANSITIONS
from duramen.layout.certify.verdicts import Verdict

SIGNS: Mapping[Verdict, str] = {
    "kept": "[green]+[/green]",
    "broken": "[red]x[/red]",
    "refused": "[dim]r[/dim]",
    "ignores-tools": "[dim]i[/dim]",
}


def as_table(found: Mapping[str, Certified]) -> Table:
    """A row per template, a column per transition."""
    columns = [str(number) for number in range(1, len(TRANSITIONS) + 1)]
    table = Table("template", *columns, "history", "mend gains", padding=(0, 1))
    for name, one in found.items():
        signs = [SIGNS[one.outcomes[t.name].verdict] for t in TRANSITIONS]
        gained = str(len(one.mend.gained)) if one.mend else "-"
        table.add_row(escape(name), *signs, one.history or "-", gained)
    return table


def of_one(one: Certified) -> Table:
    """A row per transition."""
    table = Table("step", "", "what happens", padding=(0, 1))
    for transition in TRANSITIONS:
        verdict = one.outcomes[transition.name].verdict
        table.add_row(transition.name, f"{SIGNS[verdict]} {verdict}", transition.what)
    return table


def legend() -> Iterator[str]:
    yield "  ".join(f"{sign} {verdict}" for verdict, sign in SIGNS.items())
    for number, transition in enumerate(TRANSITIONS, 1):
        yield f"{number:3} {transition.name}: {transition.what}"


def reasons(name: str, one: Certified, written: Path | None) -> Iterator[str]:
    """What is lost where, what follows, and how it is mended."""
    yield f"\n{name}"
    for transition, outcome in one.outcomes.items():
        if outcome.verdict == "broken" and outcome.at is not None:
            token = "" if outcome.at.token is None else f", token {outcome.at.token}"
            yield f"  {transition}: {outcome.why} (character {outcome.at.char}{token})"
        elif outcome.verdict != "kept":
            yield f"  {transition}: {outcome.verdict}: {outcome.why}"
    for line in told(one):
        yield f"  {line}"
    if written is not None:
        yield f"  written to {written}"
