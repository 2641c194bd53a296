"""A session of a running gateway, explained from what it remembers: numbers and names, no text.

The gateway keeps ids verbatim, so what can break is what a client sends. It names that when the
call comes; here its words become causes, and what was lost is counted from the record.
"""

from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import Any, NamedTuple
from urllib.parse import quote

from duramen.experiments.why.explained import ExplainedBreak, ExplainedCall
from duramen.layout.blocks import reusable_tokens
from duramen.layout.diagnose.causes import CAUSES, Cause, Layer
from duramen.layout.errors import EngineError, RequestError
from duramen.layout.zones import Zone
from duramen.serving.vllm.http import EngineHttp


class Named(NamedTuple):
    """A cause, as sure as the gateway can be without comparing the texts again."""

    layer: Layer
    cause: Cause
    confidence: float


BREAKS = {  # call_facts.BreakCause
    "edit": Named("request", "history-edited", 0.6),
    "tools": Named("request", "tool-set-changed", 0.7),
    "arguments": Named("request", "template-option", 0.9),
    "clock": Named("request", "clock", 0.9),
    "uuid": Named("request", "uuid-or-hash", 0.9),
    "hash": Named("request", "uuid-or-hash", 0.9),
    "counter": Named("request", "counter", 0.9),
    "root text": Named("request", "history-edited", 0.5),
    "template": Named("text", "unknown", 0.5),
    "session lost": Named("request", "unknown", 0.5),
}
MISMATCHES: dict[str, Cause] = {"evicted": "eviction"}


async def fetch_session(gateway: str, session_id: str, api_key: str | None) -> dict[str, Any]:
    """What the gateway shows of a session. Raises EngineError, RequestError."""
    http = EngineHttp(gateway.removesuffix("/v1"), str, api_key=api_key)
    try:
        page = await http.get_json(f"/v1/duramen/sessions/{quote(session_id, safe='')}")
    except RequestError:
        raise
    except EngineError as error:
        raise EngineError(
            f"no Duramen gateway answers at {gateway}: start one with `duramen serve`, or name "
            "another with --gateway URL"
        ) from error
    finally:
        await http.close()
    if not isinstance(page, dict) or not isinstance(page.get("calls"), list):
        raise EngineError(f"{gateway} shows no session of a Duramen gateway")
    return page


def explain_session(page: Mapping[str, Any], unit_tokens: int) -> Iterator[ExplainedCall]:
    """Every call of a session as `fetch_session` gives it, in the order of time."""
    session_id = str(page.get("id"))
    index_of: dict[Any, int] = {}
    for index, call in enumerate(page["calls"]):
        index_of[call.get("turn")] = index
        account = call.get("account") or {}
        bounds = account.get("bounds") or {}
        predicted = account.get("predicted_tokens") or [None]
        yield ExplainedCall(
            session_id,
            index,
            bounds.get("prompt"),
            bounds.get("token"),
            bounds.get("unit"),
            predicted[0],
            account.get("delivered_tokens"),
            _broken(page, index, index_of.get(call.get("parent")), unit_tokens),
            zones=_zones(call),
        )


def _broken(
    page: Mapping[str, Any], index: int, parent: int | None, unit_tokens: int
) -> ExplainedBreak | None:
    call = page["calls"][index]
    account = call.get("account") or {}
    bounds, named = account.get("bounds") or {}, BREAKS.get(account.get("break") or "")
    if not bounds:
        return None
    vs = index - 1 if index else None
    token, num_tokens = bounds["token"], bounds["prompt"]
    if named is None and index == 0:
        named = Named("request", "first-call", 1.0)
    if named is None:
        return _evicted(page, index, vs if parent is None else parent, unit_tokens)
    lost = 0
    if vs is not None:
        known = _num_known(page["calls"][vs])
        lost = reusable_tokens(known, known + 1, unit_tokens) - bounds["unit"]
    edit = account.get("edit")
    where = f", first in message {edit['message']} ({edit['role']})" if edit else ""
    evidence = f"the gateway saw: {account.get('break') or 'a new session'}{where}"
    return ExplainedBreak(
        str(page.get("id")) if vs is not None else None,
        vs,
        named.layer,
        token,
        token // unit_tokens,
        _zone_at(call, token if token < num_tokens else num_tokens - 1),
        named.cause,
        named.confidence,
        evidence,
        max(lost, 0),
        CAUSES[named.cause].mend,
    )


def _evicted(
    page: Mapping[str, Any], index: int, vs: int | None, unit_tokens: int
) -> ExplainedBreak | None:
    """A call that went on with what was there, and got less than it could."""
    account = page["calls"][index]["account"]
    bounds, delivered = account["bounds"], account.get("delivered_tokens")
    if delivered is None or delivered >= bounds["unit"]:
        return None
    cause = MISMATCHES.get(account.get("mismatch") or "", "eviction")
    promised = account.get("predicted_tokens")
    was_known = promised is not None and promised[0] == delivered
    said = "the mirror knew it before the call" if was_known else f"class {account.get('mismatch')}"
    return ExplainedBreak(
        str(page.get("id")),
        vs,
        "block",
        delivered,
        delivered // unit_tokens,
        _zone_at(page["calls"][index], delivered),
        cause,
        1.0 if was_known or account.get("mismatch") == "evicted" else 0.6,
        f"{delivered} of {bounds['unit']} tokens that could be reused; {said}",
        bounds["unit"] - delivered,
        CAUSES[cause].mend,
    )


def _zones(call: Mapping[str, Any]) -> tuple[int, int] | None:
    """Behind the root that comes first, and behind all that is no leaf."""
    spans = [(span["zone"], span["end"]) for span in call.get("spans", ())]
    if not spans:
        return None
    trunk = max((end for zone, end in takewhile(lambda each: each[0] == "root", spans)), default=0)
    return trunk, max((end for zone, end in spans if zone != "leaf"), default=trunk)


def _num_known(call: Mapping[str, Any]) -> int:
    """Tokens that a call computed: its prompt, and its longest reply but for the last token."""
    bounds = (call.get("account") or {}).get("bounds") or {}
    sampled = max((reply["sampled_tokens"] for reply in call.get("replies", ())), default=0)
    return int(bounds.get("prompt", 0)) + max(sampled - 1, 0)


def _zone_at(call: Mapping[str, Any], token: int) -> Zone | None:
    for span in call.get("spans", ()):
        if span["start"] <= token < span["end"]:
            return Zone[span["zone"].upper()]
    return None
