"""Who holds the cache, through the whole gateway: its pages, and live against vLLM's events."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from gateway_cases import MODEL as FAKE
from gateway_cases import Case, Message, as_message, gateway, get, system, until, user
from gateway_live_cases import MODEL, LiveGateway, fresh
from prometheus_client.parser import text_string_to_metric_families

from duramen.layout.blocks import BlockHash
from duramen.serving.gateway.engine_ledger import EngineLedger, block_bytes
from duramen.serving.kv.held import KvZone
from duramen.serving.kv.mirror import KvMirror
from duramen.serving.kv.step_time import LinearStepTime

BYTES_PER_TOKEN = 23_040  # of SmolLM2
LONG = " ".join(str(number) for number in range(60))


@pytest.fixture
async def case(smollm2: Path) -> AsyncIterator[Case]:
    async with gateway(smollm2) as case:
        yield case


async def talk(client: openai.AsyncOpenAI, *texts: str, model: str = FAKE) -> str:
    """One session, a call for each text; its name."""
    history: list[Message] = [system(f"You are a tree. {LONG}")]
    for text in texts:
        history.append(user(text))
        answer = await client.chat.completions.with_raw_response.create(
            model=model,
            messages=history,  # type: ignore[arg-type]
            max_completion_tokens=40,
        )
        history.append(as_message(answer.parse().choices[0].message))
    return str(answer.headers["x-duramen-session"])


def shown(case: Case) -> dict[str, float]:
    """KV bytes on the metrics page, by zone."""
    page = case.run.gateway.metrics.render()[1].decode()
    families = {family.name: family for family in text_string_to_metric_families(page)}
    return {s.labels["zone"]: s.value for s in families["duramen_kv_bytes"].samples}


def mirror_of(case: Case) -> KvMirror:
    assert case.engine.mirror is not None
    return case.engine.mirror


def ledger_of(run: Any) -> EngineLedger:
    ledger = run.gateway.engines.members[0].ledger
    assert isinstance(ledger, EngineLedger)
    return ledger


async def test_sessions_hold_what_is_resident(case: Case) -> None:
    async with case.client() as client:
        one = await talk(client, f"First {LONG}", f"Second {LONG}")
        two = await talk(client, f"Other {LONG}")
        await case.settled()
        pages = [(await get(client, f"/duramen/sessions/{name}"))["kv"] for name in (one, two)]
    block = 16 * BYTES_PER_TOKEN
    by_zone = shown(case)
    resident = mirror_of(case).num_resident_blocks * block
    assert sum(by_zone.values()) == pytest.approx(resident)
    assert (by_zone["dead"], by_zone["unattributed"]) == (0, 0)
    for zone in ("root", "trunk", "leaf", "reply"):
        assert by_zone[zone] == pytest.approx(
            sum(page["zones"][zone]["bytes"] for page in pages), abs=2
        )
        assert by_zone[zone] > 0
    assert pages[0]["zones"]["trunk"]["byte_seconds"] > 0
    assert pages[1]["zones"]["trunk"] == {"bytes": 0, "byte_seconds": 0}
    idle = pages[0]["idle"]
    total = sum(zone["bytes"] for zone in pages[0]["zones"].values())
    assert 0 < idle["own_bytes"] < total  # its system message is shared
    assert idle["cost_s"] > 0
    assert idle["prefill_s"] is idle["break_even_s"] is None  # no timing profile was given


async def test_what_a_deleted_session_held_is_dead(case: Case) -> None:
    async with case.client() as client:
        name = await talk(client, f"First {LONG}")
        await case.settled()
        await client.delete(f"/duramen/sessions/{name}", cast_to=object)
    by_zone = shown(case)
    resident = mirror_of(case).num_resident_blocks * 16 * BYTES_PER_TOKEN
    assert {zone: value for zone, value in by_zone.items() if value} == {"dead": resident}


async def test_a_restarted_engine_begins_empty_and_totals_stay(case: Case) -> None:
    async with case.client() as client:
        await talk(client, f"First {LONG}")
        await case.settled()
        before = ledger_of(case.run).held()
        case.engine.kill()
        await until(lambda: len(case.engines) == 2 and case.run.gateway.engines.num_ready)
    after = ledger_of(case.run).held()
    assert sum(each.num_bytes for each in after.values()) == 0
    assert all(
        after[owner].byte_seconds >= before[owner].byte_seconds > 0
        for owner in before
        if before[owner].num_bytes
    )


async def test_nothing_is_shown_while_the_mirror_does_not_know(case: Case) -> None:
    mirror_of(case).break_off("lost")
    assert b"duramen_kv_bytes" not in case.run.gateway.metrics.render()[1]


async def test_a_timing_profile_prices_computing_it_again(case: Case) -> None:
    member = case.run.gateway.engines.members[0]
    old = ledger_of(case.run)
    member.ledger = EngineLedger(old.ledger, 2**30, LinearStepTime(1, 0, 0, 0, 0))
    async with case.client() as client:
        name = await talk(client, f"First {LONG}")
        await case.settled()
        idle = (await get(client, f"/duramen/sessions/{name}"))["kv"]["idle"]
    assert idle["prefill_s"] == 1
    assert idle["break_even_s"] == pytest.approx(2**30 / idle["own_bytes"])


@pytest.mark.parametrize(
    ("changes", "kv_dtype", "expected"),
    [
        ({}, "auto", 16 * 2 * 2 * 3 * 64 * 2),
        ({}, "fp8", 16 * 2 * 2 * 3 * 64),
        ({}, "a new one", None),
        ({"hidden_size": None}, "auto", None),
        (
            {"sliding_window": 64, "layer_types": ["full_attention", "sliding_attention"]},
            "auto",
            None,
        ),
    ],
)
def test_bytes_of_a_block(changes: dict[str, Any], kv_dtype: str, expected: int | None) -> None:
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 2,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "vocab_size": 1000,
        "torch_dtype": "bfloat16",
    }
    assert block_bytes(config | changes, 16, kv_dtype) == expected


class Tally:
    """Hands events on to a ledger, and sums up resident blocks over time by itself."""

    def __init__(self, ledger: EngineLedger) -> None:
        self.ledger = ledger
        self.num_blocks = self.num_removed = 0
        self.block_seconds = 0.0
        self.since_s = time.monotonic()

    def change(self, num_blocks: int) -> None:
        now_s = time.monotonic()
        self.block_seconds += self.num_blocks * (now_s - self.since_s)
        self.since_s = now_s
        self.num_blocks += num_blocks

    def stored(self, block: BlockHash, parent: BlockHash | None) -> None:
        self.change(1)
        self.ledger.stored(block, parent)

    def removed(self, block: BlockHash) -> None:
        self.change(-1)
        self.ledger.removed(block)

    def cleared(self) -> None:
        self.change(-self.num_blocks)
        self.ledger.cleared()


@contextmanager
def tallied(live: LiveGateway) -> Iterator[Tally]:
    async def watch(tally: Any) -> None:
        engine = live.run.gateway.engines.members[0].engine
        assert engine is not None
        assert engine.mirror is not None
        engine.mirror.watch(tally)

    ledger = ledger_of(live.run)
    tally = Tally(ledger)
    asyncio.run_coroutine_threadsafe(watch(tally), live.loop).result()
    try:
        yield tally
    finally:
        asyncio.run_coroutine_threadsafe(watch(ledger), live.loop).result()


@pytest.mark.live
async def test_live_byte_seconds_are_conserved(live_gateway: LiveGateway) -> None:
    """Sessions with a system message in common, and an edit, in front of vLLM."""
    ledger = ledger_of(live_gateway.run)
    assert ledger.ledger.block_bytes == 32 * BYTES_PER_TOKEN
    begin = fresh(LONG)
    edited = [begin[0], user(f"Something else: {LONG}")]
    others = [[begin[0], user(f"{text} {LONG}")] for text in ("one", "two", "three")]
    with tallied(live_gateway) as tally:
        before = sum(held.byte_seconds for held in ledger.held().values())
        tally.change(0)
        began = tally.block_seconds
        async with live_gateway.client() as client:

            async def ask(messages: list[Message], session: str) -> list[int]:
                answer = await client.chat.completions.create(
                    model=MODEL,
                    messages=messages,  # type: ignore[arg-type]
                    max_completion_tokens=70,
                    extra_headers={"x-duramen-session": session},
                    extra_body={"return_token_ids": True, "ignore_eos": True},
                )
                extra: Any = answer
                return [*extra.prompt_token_ids, *extra.choices[0].token_ids[:-1]]

            name = str(begin[0]["content"]).split()[0]
            await asyncio.gather(*(ask(each, f"{name}-{i}") for i, each in enumerate(others)))
            await live_gateway.settled(await ask(begin, name))
            await live_gateway.settled(await ask(edited, name))
            kv = (await get(client, f"/duramen/sessions/{name}"))["kv"]
        tally.change(0)
        held = ledger.held()
        total = sum(each.byte_seconds for each in held.values()) - before
        bytes_now = sum(each.num_bytes for each in held.values())
        num_bytes = ledger.ledger.block_bytes
        assert bytes_now == pytest.approx(tally.num_blocks * num_bytes)
        assert total == pytest.approx((tally.block_seconds - began) * num_bytes, rel=1e-3)
        dead = [each for owner, each in held.items() if owner.zone is KvZone.DEAD]
        assert dead[0].num_bytes >= 4 * num_bytes  # the branch that the edit left
        assert kv["zones"]["root"]["bytes"] > 0
        assert kv["zones"]["reply"]["bytes"] >= num_bytes
