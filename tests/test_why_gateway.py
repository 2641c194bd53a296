"""A gateway's session explained over HTTP, from a whole gateway in this process."""

from pathlib import Path
from typing import Any

import pytest
from gateway_cases import MODEL, Message, as_message, gateway, says, system, user

from duramen.experiments.why.gateway_session import explain_session, fetch_session
from duramen.layout.errors import RequestError
from duramen.layout.zones import Zone

UNIT = 16
ROOT = "You are a keeper of trees and answer in few words. " * 5


async def test_a_session_whose_client_edits_its_past(smollm2: Path) -> None:
    async with gateway(smollm2) as case, case.client() as client:
        told: list[dict[str, Any]] = []

        async def ask(messages: list[Message]) -> Message:
            answer = await client.chat.completions.create(
                model=MODEL,
                messages=messages,
                extra_headers={"x-duramen-explain": "1", "x-duramen-session": "s1"},
            )
            told.append(answer.duramen)
            return as_message(answer.choices[0].message)

        first = [system(ROOT), user("What is an oak? " * 8)]
        case.engine.script += [says(case, text) for text in ("A tree.", "A tree, too.", "No tree.")]
        second = [*first, await ask(first), user("And an elm? " * 8)]
        third = [*second, await ask(second), user("And a larch?")]
        await ask([*third[:3], user("And a pine? " * 8), *third[4:]])
        await case.settled()
        url = case.url.removesuffix("/v1")
        page = await fetch_session(url, told[0]["session"], None)
        calls = list(explain_session(page, UNIT))
        with pytest.raises(RequestError, match="no session"):
            await fetch_session(case.url, "none/such", None)
    assert [call.lcp for call in calls] == [one["bounds"]["token"] for one in told]
    assert [call.reusable for call in calls] == [one["bounds"]["unit"] for one in told]
    assert [call.delivered for call in calls] == [one["delivered_tokens"] for one in told]
    assert calls[0].broken is not None
    assert calls[0].broken.cause == "first-call"
    assert calls[1].broken is None
    broken = calls[2].broken
    assert broken is not None
    assert (broken.cause, broken.zone, broken.layer) == ("history-edited", Zone.LEAF, "request")
    assert broken.lost_tokens > 0
    assert "message 3 (user)" in broken.evidence


def page(**account: Any) -> dict[str, Any]:
    bounds = {"prompt": 200, "content": 160, "token": 160, "unit": 160}
    spans = [
        {"start": 0, "end": 100, "zone": "root", "source": "root", "sampled": False},
        {"start": 100, "end": 200, "zone": "trunk", "source": "history", "sampled": False},
    ]
    first: dict[str, Any] = {
        "turn": "a",
        "parent": None,
        "account": {"bounds": bounds},
        "replies": [],
    }
    told = {"bounds": bounds, "predicted_tokens": [160, 160], "delivered_tokens": 160, **account}
    second = {"turn": "b", "parent": "a", "account": told, "replies": [], "spans": spans}
    return {"id": "s", "calls": [first, second]}


@pytest.mark.parametrize(
    ("account", "expected"),
    [
        ({}, None),
        ({"delivered_tokens": None}, None),
        ({"delivered_tokens": 64, "mismatch": "evicted"}, ("eviction", 96, 1.0)),
        ({"delivered_tokens": 64, "predicted_tokens": [64, 64]}, ("eviction", 96, 1.0)),
        ({"delivered_tokens": 64, "mismatch": "other"}, ("eviction", 96, 0.6)),
        ({"break": "clock"}, ("clock", 32, 0.9)),
        ({"break": "something new"}, None),
        ({"bounds": None, "delivered_tokens": 0}, None),
    ],
)
def test_what_the_record_of_a_call_says(
    account: dict[str, Any], expected: tuple[str, int, float] | None
) -> None:
    broken = list(explain_session(page(**account), UNIT))[1].broken
    found = broken and (broken.cause, broken.lost_tokens, broken.confidence)
    assert found == expected


def test_calls_that_have_not_ended() -> None:
    calls = list(explain_session({"id": "s", "calls": [{"turn": "a"}, {"turn": "b"}]}, UNIT))
    assert [(call.lcp, call.delivered, call.broken) for call in calls] == [(None, None, None)] * 2
