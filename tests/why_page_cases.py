"""Logs and calls that the tests of the page of `duramen why` share."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from why_cases import SYSTEM, TOOLS, chat

from duramen.experiments.layouts.model import Model
from duramen.experiments.opening import load_model
from duramen.experiments.trajectory import Session
from duramen.experiments.why.explain import explain
from duramen.experiments.why.explained import ExplainedBreak, ExplainedCall
from duramen.layout.diagnose.causes import Cause
from duramen.layout.zones import Zone

FACTS: dict[str, Any] = {"model": "smollm2", "unit_tokens": 16, "kv_tokens": None, "draft": False}
HOSTILE = "</script><img src=x onerror=alert(1)>\u202e\u2066\ud800&amp;'\"\n"


def with_clock(num_calls: int) -> Session:
    """Its system prompt tells the time, to the second."""
    session = chat(num_calls, name="clock")
    calls = [
        replace(
            call,
            messages=(
                {"role": "system", "content": f"It is 10:00:{second:02}. {SYSTEM['content']}"},
                *call.messages[1:],
            ),
        )
        for second, call in enumerate(session.calls)
    ]
    return replace(session, calls=tuple(calls))


def with_tools(num_calls: int) -> Session:
    """Its last call sends the tools in another order."""
    session = chat(num_calls, name="tools")
    calls = [replace(call, tools=TOOLS) for call in session.calls]
    calls[-1] = replace(calls[-1], tools=TOOLS[::-1])
    return replace(session, calls=tuple(calls))


@cache
def model_in(folder: Path) -> Model:
    return load_model(folder, None)


def explained(smollm2: Path) -> list[ExplainedCall]:
    sessions = [chat(4), with_clock(5), with_tools(3)]
    return list(explain(sessions, model_in(smollm2)))


def call_of(session: str, index: int, **fields: Any) -> ExplainedCall:
    """Of 100 tokens, of which root, trunk and leaf are 20, 60 and 20."""
    known = {"num_tokens": 100, "lcp": 48, "reusable": 48, "predicted": 48, "delivered": None}
    return ExplainedCall(session, index, **{**known, "broken": None, "zones": (20, 80), **fields})


def break_of(cause: Cause, **fields: Any) -> ExplainedBreak:
    known = {
        "vs_session": "s",
        "vs_call": 0,
        "layer": "request",
        "token": 48,
        "block": 3,
        "zone": Zone.TRUNK,
        "confidence": 0.9,
        "evidence": "10:00 became 10:01",
        "lost_tokens": 32,
        "mend": "move it",
    }
    return ExplainedBreak(cause=cause, **{**known, **fields})


def hostile(num_sessions: int = 3) -> Sequence[ExplainedCall]:
    """Calls whose every text would do harm, or take room, if it were let."""
    bad = break_of(
        "clock",
        evidence=HOSTILE,
        mend=HOSTILE + "w" * 400,
        around=(HOSTILE + "was", HOSTILE + "is"),
        vs_session=HOSTILE,
    )
    return [
        *(
            call_of(f"{HOSTILE}{number}{'s' * 300}", 0, broken=bad)
            for number in range(num_sessions)
        ),
        call_of("refused", 0, num_tokens=None, lcp=None, reusable=None, refused=HOSTILE),
        call_of("much", 0, delivered=10**15, broken=break_of("eviction", token=10**15)),
        call_of("empty", 0, num_tokens=0, lcp=0, reusable=0, zones=(0, 0)),
    ]


def many(num_calls: int) -> list[ExplainedCall]:
    """One session in which every third call broke, with texts of a usual length."""
    text = "the harbour light stands on pier number seven and turns twice a minute " * 2
    calls = []
    for index in range(num_calls):
        tokens = 2_000 + 98 * index
        broken = None
        if index % 3 == 2:
            broken = break_of("clock" if index % 2 else "counter", token=tokens // 3, evidence=text)
            broken = replace(broken, around=(text + "was", text + "is"), lost_tokens=tokens // 2)
        zones = (1_900, max(tokens - 90, 1_900))
        reusable = tokens // 3 if broken else max(tokens - 98, 0)
        calls.append(
            call_of("long", index, num_tokens=tokens, reusable=reusable, zones=zones, broken=broken)
        )
    return [replace(call, predicted=call.reusable, lcp=call.reusable) for call in calls]
