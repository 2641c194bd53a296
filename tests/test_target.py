"""The live target behind a scripted engine: each mismatch gets its class, races included."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from duramen.experiments.target import LiveTarget, Outcome
from duramen.layout.errors import EngineError
from duramen.serving.kv.attribute import classify
from duramen.serving.kv.mirror import KvMirror
from duramen.serving.vllm.protocol import Completion, EngineInfo, Sampling
from duramen.serving.vllm.timings import EngineTimes

UNIT = 4
PROMPT = list(range(13))  # 3 blocks and a token
OTHER = [99, *PROMPT]


class Scripted:
    """Implements protocol.Engine: each call ends when the test says so. `unheard` are events that
    only the next `settle` brings."""

    def __init__(self, *, settles: bool = True) -> None:
        self.info = EngineInfo("scripted", "1", "scripted", 1000, UNIT, None, (), True)
        self.mirror: KvMirror | None = KvMirror(UNIT)
        self.running: list[asyncio.Future[Completion]] = []
        self.samplings: list[Sampling] = []
        self.salts: list[str] = []
        self.resets = True
        self.unheard: list[Any] = []
        self.settled: list[list[int]] = []
        self._settles = settles

    async def complete(
        self, token_ids: Sequence[int], sampling: Sampling, *, salt: str = "", **more: Any
    ) -> Completion:
        self.samplings.append(sampling)
        self.salts.append(salt)
        end: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self.running.append(end)
        return await end

    async def settle(self, token_ids: Sequence[int], salt: str = "") -> bool:
        self.settled.append([*token_ids])
        while self.unheard:
            self.unheard.pop(0)()
        return self._settles

    async def reset_prefix_cache(self) -> bool:
        assert self.mirror is not None
        self.mirror.clear()
        return self.resets

    async def times(self) -> EngineTimes | None:
        return None

    async def close(self) -> None:
        pass

    def store(self, token_ids: Sequence[int], num_blocks: int = 3) -> None:
        """The mirror hears that leading blocks were stored."""
        assert self.mirror is not None
        hashes = [(tuple(token_ids[: (i + 1) * UNIT])) for i in range(num_blocks)]
        self.mirror.store(hashes, None, token_ids[: num_blocks * UNIT])

    def evict(self, token_ids: Sequence[int], *blocks: int) -> None:
        assert self.mirror is not None
        self.mirror.remove([tuple(token_ids[: (i + 1) * UNIT]) for i in blocks])


class Bench:
    """A layout that has begun on a scripted engine, and the calls in it."""

    def __init__(self, engine: Scripted, *, serial: bool) -> None:
        self.engine = engine
        self.target = LiveTarget(engine, Sampling(1, seed=5), serial=serial, salt="")

    async def send(self, token_ids: Sequence[int]) -> "asyncio.Task[Outcome]":
        call = asyncio.create_task(self.target.run(token_ids, (), lambda: ((), {})))
        await asyncio.sleep(0)
        return call

    async def end(self, call: "asyncio.Task[Outcome]", number: int, cached: int | None) -> Outcome:
        """End the call that was sent as number `number`."""
        done = Completion((7,), {"role": "assistant"}, "length", None, 13, cached, 0.1, (), 0.1)
        self.engine.running[number].set_result(done)
        return await call


async def bench(*, serial: bool = False, settles: bool = True) -> Bench:
    made = Bench(Scripted(settles=settles), serial=serial)
    await made.target.begin_layout("recorded")
    return made


async def test_what_was_predicted_is_no_mismatch() -> None:
    run = await bench(serial=True)
    run.engine.store(PROMPT)
    outcome = await run.end(await run.send(PROMPT), 0, 12)
    assert (outcome.predicted_tokens, outcome.cached_tokens, outcome.mismatch) == (12, 12, None)
    assert run.engine.settled == [PROMPT]  # the one sampled token was never computed


@pytest.mark.parametrize("order", ["before", "after"])
async def test_a_call_beside_it_stored_the_prefix(order: str) -> None:
    run = await bench()
    calls = [await run.send(PROMPT), await run.send([*PROMPT[:9], 50, 51])]
    late, early = (1, 0) if order == "before" else (0, 1)
    assert (await run.end(calls[early], early, 0)).mismatch is None
    assert (await run.end(calls[late], late, 8)).mismatch == "in_flight_sharing"


async def test_a_call_beside_it_that_has_no_block_in_common_is_not_the_cause() -> None:
    run = await bench()
    call = await run.send(PROMPT)
    await run.end(await run.send([*PROMPT[:3], 50, 51]), 1, 0)
    assert (await run.end(call, 0, 8)).mismatch == "other"


async def test_a_call_that_ended_before_is_not_beside() -> None:
    """What it stored was known when this one was sent, only the mirror had not heard of it."""
    run = await bench()
    await run.end(await run.send(PROMPT), 0, 0)
    assert (await run.end(await run.send(PROMPT), 1, 12)).mismatch == "event_lag"


async def test_serial_calls_lag_only_when_the_events_did_not_come() -> None:
    for settles, expected in ((False, "event_lag"), (True, "other")):
        run = await bench(serial=True, settles=settles)
        await run.end(await run.send(PROMPT), 0, 0)
        assert (await run.end(await run.send(PROMPT), 1, 12)).mismatch == expected


async def test_more_than_anybody_computed_has_no_cause() -> None:
    run = await bench()
    await run.end(await run.send(PROMPT[:6]), 0, 0)
    assert (await run.end(await run.send(PROMPT), 1, 12)).mismatch == "other"


@pytest.mark.parametrize("heard", ["in time", "late"])
async def test_blocks_that_left_while_others_ran(heard: str) -> None:
    run = await bench()
    run.engine.store(PROMPT)
    call, beside = await run.send(PROMPT), await run.send(OTHER)
    if heard == "in time":
        run.engine.evict(PROMPT, 2)
    else:
        run.engine.unheard.append(lambda: run.engine.evict(PROMPT, 2))
    outcome = await run.end(call, 0, 8)
    assert (outcome.predicted_tokens, outcome.mismatch) == (12, "evicted")
    await run.end(beside, 1, 0)


async def test_blocks_that_had_left_before_it_was_sent_alone() -> None:
    run = await bench()
    run.engine.store(PROMPT)
    await run.end(await run.send(OTHER), 0, 0)
    run.engine.unheard.append(lambda: run.engine.evict(PROMPT, 2))
    assert (await run.end(await run.send(PROMPT), 1, 8)).mismatch == "event_lag"


async def test_less_than_predicted_though_nothing_left() -> None:
    run = await bench()
    run.engine.store(PROMPT)
    call, beside = await run.send(PROMPT), await run.send(OTHER)
    assert (await run.end(call, 0, 8)).mismatch == "other"
    await run.end(beside, 1, 0)


async def test_a_call_that_was_given_up_is_not_beside_the_next() -> None:
    run = await bench()
    call = await run.send(PROMPT)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (await run.end(await run.send(PROMPT), 1, 12)).mismatch == "other"


async def test_without_mirror_or_report_nothing_is_claimed() -> None:
    run = await bench(serial=True)
    silent = await run.end(await run.send(PROMPT), 0, None)
    assert (silent.predicted_tokens, silent.cached_tokens, silent.mismatch) == (0, None, None)
    run.engine.mirror = None
    blind = await run.end(await run.send(PROMPT), 1, 8)
    assert (blind.predicted_tokens, blind.cached_tokens, blind.mismatch) == (None, 8, None)


async def test_seeds_count_up_and_begin_again_with_each_layout() -> None:
    run = await bench(serial=True)
    for number in range(2):
        await run.end(await run.send(PROMPT), number, 0)
    await run.target.begin_layout("stable")
    await run.end(await run.send(PROMPT), 2, 0)
    assert [sampling.seed for sampling in run.engine.samplings] == [5, 6, 5]


async def test_a_salt_for_each_layout_or_an_empty_cache() -> None:
    engine = Scripted()
    engine.resets = False
    salted = Bench(engine, serial=True)
    salted.target = LiveTarget(engine, Sampling(1), serial=True, salt="run")
    for number, layout in enumerate(("recorded", "stable")):
        await salted.target.begin_layout(layout)
        await salted.end(await salted.send(PROMPT), 2 * number, 0)
        await salted.target.begin_layout(layout)
        await salted.end(await salted.send(PROMPT), 2 * number + 1, 0)
    assert engine.salts == ["run-1-recorded", "run-2-recorded", "run-3-stable", "run-4-stable"]
    with pytest.raises(EngineError, match="did not empty its cache"):
        await Bench(engine, serial=True).target.begin_layout("recorded")


@pytest.mark.parametrize(
    ("predicted", "delivered", "possible", "expected"),
    [
        (0, 8, {"shared", "lagging"}, "in_flight_sharing"),
        (0, 8, {"evicted", "lagging"}, "event_lag"),
        (0, 8, {"evicted"}, "other"),
        (8, 0, {"evicted", "lagging"}, "evicted"),
        (8, 0, {"shared", "lagging"}, "event_lag"),
        (8, 0, {"shared"}, "other"),
    ],
)
def test_classify(predicted: int, delivered: int, possible: set[str], expected: str) -> None:
    causes = {cause: cause in possible for cause in ("shared", "evicted", "lagging")}
    assert classify(predicted, delivered, **causes) == expected
