"""Gateways with keys and with policies, through the SDK."""

from pathlib import Path

import openai
import pytest
from gateway_cases import (
    MODEL,
    READ_FILE,
    RUN,
    Message,
    gateway,
    get,
    put_together,
    says,
    streamed,
    system,
    user,
)

from duramen.serving.gateway.key_file import add_key
from duramen.serving.gateway.settings import PolicySettings, Settings

EXPLAIN = {"x-duramen-explain": "1"}


async def test_keys_tell_tenants_apart(smollm2: Path, tmp_path: Path) -> None:
    path = tmp_path / "keys"
    ann, bob = add_key(path, "ann"), add_key(path, "bob")
    async with (
        gateway(smollm2, api_key_file=path) as case,
        case.client(ann) as as_ann,
        case.client(bob) as as_bob,
        case.client("wrong") as as_nobody,
    ):
        for call in (as_nobody.models.list(), get(as_nobody, "/duramen/sessions")):
            with pytest.raises(openai.AuthenticationError) as refused:
                await call
            assert refused.value.code == "invalid_api_key"
        named = EXPLAIN | {"x-duramen-session": "mine"}
        messages = [system("A root of many words. " * 10), user("hi")]
        case.engine.script.append(says(case, "", ids=[*case.encode("He"), *case.encode("llo")]))
        reply = put_together(await streamed(as_ann, messages=messages, extra_headers=named))
        messages += [reply, user("and?")]
        told = []
        for client in (as_bob, as_ann):
            answer = await client.chat.completions.create(
                model=MODEL, messages=messages, extra_headers=named, max_tokens=1
            )
            told.append(answer.duramen)
        assert [t["relation"] for t in told] == ["new", "extends"]
        assert [t["delivered_tokens"] > 0 for t in told] == [False, True]
        assert [t["bounds"]["token"] > 0 for t in told] == [False, True]
        assert [t["bounds"]["content"] > 0 for t in told] == [False, True]
        assert len({body["cache_salt"] for body in case.engine.bodies}) == 2
        calls = (await get(as_ann, "/duramen/sessions/mine"))["calls"]
        assert len(calls) == 2
        await as_bob.delete("/duramen/sessions/mine", cast_to=object)
        with pytest.raises(openai.NotFoundError):
            await get(as_bob, "/duramen/sessions/mine")
        assert (await get(as_ann, "/duramen/sessions/mine"))["calls"] == calls
        await case.settled()


POLICIES: dict[str, tuple[PolicySettings, str]] = {
    "volatile": (PolicySettings(volatile="leaf"), "volatile fields moved"),
    "tools": (PolicySettings(freeze_tools=True), "tools "),
    "reminder": (PolicySettings(reminder_tokens=60), "reminder"),
    "frame": (PolicySettings(frame_tool_results=True), "framed"),
}


@pytest.mark.parametrize("name", [*POLICIES, "all"])
async def test_a_policy_shows_and_breaks_nothing(smollm2: Path, name: str) -> None:
    if name == "all":
        policies, shown = PolicySettings("leaf", True, 60, True), "framed"
    else:
        policies, shown = POLICIES[name]
    async with gateway(smollm2, Settings(policies=policies)) as case, case.client() as client:
        acted: list[str] = []
        past: list[int] = []
        messages: list[Message] = []
        for turn in range(4):
            clock = f"09:{turn:02d}:11" if policies.volatile == "leaf" else "09:00:11"
            messages[:1] = [system(f"You must answer. Now is 2026-11-30 {clock}.")]
            said = says(case, "", ids=[*case.encode("He"), *case.encode("llo")])
            if turn == 1:
                messages.append({"role": "tool", "tool_call_id": "x", "content": "result"})
            else:
                messages.append(user(f"turn {turn}"))
            case.engine.script.append(said)
            tools = [RUN, READ_FILE]
            chunks = await streamed(
                client,
                messages=messages,
                tools=tools[:: 1 if turn % 2 or not policies.freeze_tools else -1],
                extra_headers=EXPLAIN,
            )
            told = chunks[-1].duramen
            assert (told["relation"], told["break"]) == ("extends" if turn else "new", None)
            assert case.sent()[: len(past)] == past
            past = [*case.sent(), *said.token_ids]
            acted += told["policies"]
            messages.append(put_together(chunks))
        assert any(shown in line for line in acted)
        assert "09:" not in "".join(acted)
        await case.settled()
