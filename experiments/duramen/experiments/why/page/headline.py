"""The log in a few numbers, and what was lost to each cause."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from duramen.experiments.study.page import figures
from duramen.experiments.why.explained import ExplainedCall, totals
from duramen.layout.diagnose.causes import CAUSES, Cause


@dataclass(frozen=True)
class Figure:
    name: str
    tokens: str
    note: str


@dataclass(frozen=True)
class CauseRow:
    """`width`: of its bar, in percent. `share`: of all lost tokens."""

    cause: Cause
    what: str
    mend: str
    tokens: str
    share: str
    breaks: str
    width: float


def headline(calls: Sequence[ExplainedCall], lost_tokens: int) -> list[Figure]:
    """Sums over the calls of which a number is known. The note says when those are not all."""
    prompt = sum(call.num_tokens or 0 for call in calls)
    kinds = {
        "Prompt tokens": [call.num_tokens for call in calls],
        "Reusable": [call.reusable for call in calls],
        "Predicted": [call.predicted for call in calls],
        "Delivered": [call.delivered for call in calls],
    }
    shown = [_figure(name, values, prompt) for name, values in kinds.items()]
    return [*shown, Figure("Lost", figures.count(lost_tokens), "tokens computed again")]


def _figure(name: str, values: Sequence[int | None], prompt: int) -> Figure:
    known = [value for value in values if value is not None]
    if not known:
        said = "not reported" if name == "Delivered" else "not known"
        return Figure(name, figures.ABSENT, said)
    notes = []
    if len(known) < len(values):
        notes.append(f"of {len(known):,} of {len(values):,} calls")
    elif name != "Prompt tokens" and prompt and sum(known) <= prompt:
        notes.append(f"{figures.share(sum(known) / prompt)} of the prompt tokens")
    return Figure(name, figures.count(sum(known)), ", ".join(notes))


def lost_to(calls: Iterable[ExplainedCall]) -> dict[Cause, int]:
    """Lost tokens by cause, the most first; that a session begins is none."""
    return {cause: lost for cause, lost in totals(calls).items() if cause != "first-call"}


def cause_rows(calls: Sequence[ExplainedCall], lost: dict[Cause, int]) -> list[CauseRow]:
    times = Counter(call.broken.cause for call in calls if call.broken is not None)
    most, total = max(lost.values(), default=0), sum(lost.values())
    return [
        CauseRow(
            cause,
            CAUSES[cause].what,
            CAUSES[cause].mend,
            figures.count(tokens),
            figures.share(tokens / total if total else None),
            figures.count(times[cause]),
            round(100 * tokens / most, 2) if most else 0,
        )
        for cause, tokens in lost.items()
    ]
