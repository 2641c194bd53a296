"""One offline HTML page of `duramen why`: totals by cause, and every session call by call.

The drawings are made here and shown without the script; that adds the filters, the list of breaks
and what is said of a call under the pointer or the arrow keys.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from duramen.experiments.offline_page import inline_json, make_page, read_of
from duramen.experiments.study.page import figures
from duramen.experiments.why.explained import NOTED, ExplainedCall
from duramen.experiments.why.page.headline import cause_rows, headline, lost_to
from duramen.experiments.why.page.lanes import session_lanes
from duramen.experiments.why.page.spelled import shortened
from duramen.experiments.why.page.told import lane_json

read = read_of("duramen.experiments.why.page")
read_study = read_of("duramen.experiments.study.page")


def render(calls: Sequence[ExplainedCall], facts: Mapping[str, Any]) -> str:
    """`facts`: model (None: a gateway's session), unit_tokens, kv_tokens (None: no limit), draft,
    price and notes."""
    filters: dict[str, Callable[..., Any]] = {"count": figures.count, "shortened": shortened}
    style = read_study("page.css") + read("page.css")
    return make_page(read, style, read("page.js"), filters, _content(calls, facts))


def _content(calls: Sequence[ExplainedCall], facts: Mapping[str, Any]) -> dict[str, Any]:
    lost, lanes = lost_to(calls), session_lanes(calls)
    place_of = {cause: place for place, cause in enumerate(lost)}
    broken = [call.broken for call in calls if call.broken is not None]
    data = {
        "causes": list(lost),
        "lanes": [
            {"name": shortened(lane.session), "calls": lane_json(lane, place_of)} for lane in lanes
        ],
    }
    return {
        "num_calls": len(calls),
        "num_breaks": sum(each.is_break for each in broken),
        "facts": _facts(facts),
        "notes": facts.get("notes", ()),
        "figures": headline(calls, sum(lost.values())),
        "causes": cause_rows(calls, lost),
        "place_of": place_of,
        "lanes": lanes,
        "noted": NOTED,
        "refused": sum(call.num_tokens is None for call in calls),
        "data": inline_json(data),
    }


def _facts(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    kv_tokens = facts.get("kv_tokens")
    cache = "without limit" if kv_tokens is None else f"{kv_tokens:,} tokens"
    shown = {
        "Model": facts.get("model"),
        "Match unit": f"{facts['unit_tokens']:,} tokens",
        "Cache": cache if facts.get("model") else None,
        "Draft model": "yes" if facts.get("draft") else None,
        "Price": facts.get("price"),
    }
    return [(name, shortened(str(value))) for name, value in shown.items() if value is not None]
