"""What the page's script says of a call, as JSON that it need not understand."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from duramen.experiments.study.page import figures
from duramen.experiments.why.explained import ExplainedBreak, ExplainedCall
from duramen.experiments.why.page.lanes import Lane, has_other_tokens
from duramen.experiments.why.page.spelled import forms_escaped, parted, shortened, spelled
from duramen.layout.diagnose.causes import CAUSES, Cause

NO_TOKENS = "the log holds neither messages nor token ids of it"


def lane_json(lane: Lane, place_of: Mapping[Cause, int]) -> list[dict[str, Any]]:
    """Of every call: `call`, `sums` in words, and its break with the place of its cause."""
    return [
        {
            "call": call.call,
            "sums": _sums(call),
            **({} if call.broken is None else _break(call, call.broken, place_of)),
        }
        for call in lane.calls
    ]


def _sums(call: ExplainedCall) -> str:
    if call.num_tokens is None:
        return f"tokens not known: {spelled(call.refused or NO_TOKENS)}"
    names = {
        "lcp": call.lcp,
        "reusable": call.reusable,
        "predicted": call.predicted,
        "delivered": call.delivered,
    }
    parts = [f"{call.num_tokens:,} prompt tokens"]
    parts += [f"{tokens:,} {name}" for name, tokens in names.items() if tokens is not None]
    if call.delivered is None:
        parts.append("delivered: not reported")
    elif has_other_tokens(call):
        parts[-1] += ", which are tokens of another tokenizer"
    return "; ".join(parts)


def _break(
    call: ExplainedCall, broken: ExplainedBreak, place_of: Mapping[Cause, int]
) -> dict[str, Any]:
    """`rows`: name and text each. `around`: the same
    head, what was and what is behind it, the same tail."""
    found: dict[str, Any] = {
        "cause": broken.cause,
        "place": place_of.get(broken.cause),
        "lost": broken.lost_tokens,
        "layer": broken.layer,
        "token": figures.count(broken.token),
        "rows": _rows(call, broken),
    }
    if broken.around is not None:
        found["around"] = parted(*broken.around, broken.cause)
    return found


def _rows(call: ExplainedCall, broken: ExplainedBreak) -> Sequence[tuple[str, str]]:
    if broken.cause == "first-call":
        return [("Seen", spelled(broken.evidence))]
    where = [f"{broken.layer} layer"]
    if broken.token is not None:
        where.append(f"token {broken.token:,}")
    if broken.block is not None:
        where.append(f"block {broken.block:,}")
    if broken.zone is not None:
        where.append(broken.zone.name.lower())
    lost = [f"{broken.lost_tokens:,} tokens computed again"]
    if broken.seconds is not None:
        lost.append(f"{figures.significant(broken.seconds)} s")
    if broken.dollars is not None:
        lost.append(figures.usd(Decimal(repr(broken.dollars))))
    return [
        ("What", CAUSES[broken.cause].what),
        ("Against", _against(call, broken)),
        ("Where", ", ".join(where)),
        ("Lost", ", ".join(lost)),
        ("Seen", spelled(forms_escaped(broken.evidence, broken.cause))),
        ("Confidence", f"{broken.confidence:.0%}"),
        ("Mend", spelled(broken.mend)),
    ]


def _against(call: ExplainedCall, broken: ExplainedBreak) -> str:
    if broken.vs_call is None:
        return "no earlier call"
    if broken.vs_session in (None, call.session):
        return f"call {broken.vs_call:,} of this session"
    return f"call {broken.vs_call:,} of session {shortened(str(broken.vs_session))}"
