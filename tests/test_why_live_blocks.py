"""Blocks that the real engine withholds from a prompt that goes on with what was there: another
salt, a last unit, calls at the same time, evictions. None of them is called a divergence."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic

import pytest
from why_cases import ids_of
from why_live_cases import FILE, TEXT, UNIT, Asked, cached, complete

from duramen.experiments.layouts.model import Model
from duramen.experiments.opening import load_model
from duramen.experiments.trajectory import Call, Message, Sending, Session, Usage
from duramen.experiments.why.explain import Settings, explain
from duramen.experiments.why.explained import ExplainedCall
from duramen.layout.blocks import reusable_tokens
from duramen.serving.vllm.engine import VllmEngine, attach, wait_until_ready
from duramen.serving.vllm.launch import VllmConfig, VllmProcess
from duramen.serving.vllm.protocol import Completion, Engine, Sampling

pytestmark = pytest.mark.live

NUM_BLOCKS = 100
CHUNK = 64  # tokens that a step of the small server computes; half of that beside another call


@pytest.fixture(scope="module")
def small_server(tiny_model: Path) -> Iterator[VllmProcess]:
    """The two-layer model with a pool of NUM_BLOCKS and short steps."""
    config = VllmConfig(
        tiny_model,
        block_size=UNIT,
        max_model_len=NUM_BLOCKS * UNIT,
        num_kv_blocks=NUM_BLOCKS + 1,
        max_num_seqs=4,
        max_num_batched_tokens=CHUNK,
        long_prefill_token_threshold=CHUNK // 2,
    )
    process = VllmProcess(config)
    try:
        asyncio.run(wait_until_ready(process, lambda line: None))
        yield process
    finally:
        process.stop()


@pytest.fixture
async def small_engine(small_server: VllmProcess) -> AsyncIterator[VllmEngine]:
    engine = await attach(
        small_server.url, events=small_server.events, model_dir=small_server.model_dir
    )
    try:
        assert await engine.reset_prefix_cache()
        yield engine
    finally:
        await engine.close()


def sent(ids: Sequence[int], done: Completion, salt: str = "", time_s: float | None = None) -> Call:
    """A call of a log that has no messages."""
    sending = Sending(
        salt=salt or None,
        token_ids=tuple(ids),
        reply_ids=tuple(done.token_ids),
        duration_s=None if time_s is None else done.elapsed_s,
    )
    return Call((), None, time_s, Usage(len(ids), done.cached_tokens), sending=sending)


def explained(
    model: Model,
    calls: Sequence[Call],
    settings: Settings = Settings(UNIT),  # noqa: B008
) -> list[ExplainedCall]:
    return list(explain([Session("s", tuple(calls), start_time_s=1e9)], model, settings))


async def test_another_salt_shares_nothing(
    live_engine: VllmEngine, smollm2: Path, notice: Callable[[str], None]
) -> None:
    model = load_model(smollm2, None)
    first = Asked().ids(model)
    done = await complete(live_engine, first, salt="one")
    second = [*first, *done.token_ids, *first[-4:]]
    came = await complete(live_engine, second, salt="two")
    twin = await complete(live_engine, second, salt="one")
    calls = sent(first, done, "one"), sent(second, came, "two")
    found = explained(model, calls)[1]
    assert found.predicted == found.delivered == 0
    assert found.broken is not None
    assert (found.broken.cause, found.broken.layer) == ("salt-or-model-changed", "block")
    assert found.broken.lost_tokens == cached(twin) - cached(came) > 0
    kept = explained(model, [calls[0], sent(second, twin, "one")])[1]
    assert (kept.broken, kept.predicted) == (None, twin.cached_tokens)
    notice(f"why, live: another salt lost {found.broken.lost_tokens} tokens, as said")


@pytest.mark.parametrize(
    ("num_tokens", "cause", "lost"),
    [(20, "shorter-than-unit", 0), (320, "last-token", UNIT), (321, None, 0), (351, None, 0)],
)
async def test_the_same_prompt_again(
    live_engine: VllmEngine,
    smollm2: Path,
    notice: Callable[[str], None],
    num_tokens: int,
    cause: str | None,
    lost: int,
) -> None:
    """Whole units alone are reused, and never the last token."""
    model = load_model(smollm2, None)
    ids = Asked().ids(model)[:num_tokens]
    done = await complete(live_engine, ids, 1)
    again = await complete(live_engine, ids, 1)
    twin = await complete(live_engine, [*ids, ids[-1]], 1)
    found = explained(model, [sent(ids, done), sent(ids, again)])[1]
    assert found.predicted == found.delivered == again.cached_tokens
    assert cached(twin) - cached(again) == lost
    found_lost = found.broken and (found.broken.cause, found.broken.lost_tokens)
    assert found_lost == (cause and (cause, lost))
    notice(f"why, live: {num_tokens} tokens again lost {lost} tokens, as said")


async def at_once(engine: Engine, ids: Sequence[int], num_calls: int) -> list[Call]:
    """The same prompt in calls that begin together, the first of which is served first."""
    begun_s = monotonic()

    async def one() -> Call:
        time_s = monotonic() - begun_s
        return sent(ids, await engine.complete(ids, Sampling(4)), time_s=time_s)

    return await asyncio.gather(*(one() for _ in range(num_calls)))


async def test_calls_at_once_share_what_one_of_them_computes(
    live_engine: VllmEngine, smollm2: Path
) -> None:
    """A block can be hit as soon as the step is planned that computes it: nothing is lost."""
    model = load_model(smollm2, None)
    ids = Asked().ids(model)
    calls = await at_once(live_engine, ids, 3)
    first, *others = explained(model, calls)
    assert first.delivered == 0
    for found in others:
        assert found.predicted == found.delivered == reusable_tokens(len(ids), len(ids), UNIT)
        assert found.broken is None


async def test_a_call_is_not_measured_against_a_later_one(
    live_engine: VllmEngine, smollm2: Path
) -> None:
    """The log has the session first whose call came second."""
    model = load_model(smollm2, None)
    ids = Asked().ids(model)
    calls = [sent(ids, await complete(live_engine, ids, 1), time_s=0.0) for _ in range(2)]
    late, early = (
        Session(name, (call,), start_time_s=start_s)
        for name, call, start_s in (("late", calls[1], 1000.0), ("early", calls[0], 900.0))
    )
    found = list(explain([late, early], model, Settings(UNIT)))
    assert (found[1].delivered, found[1].broken) == (0, None)
    in_time = list(explain([late, early], model, Settings(UNIT, kv_tokens=1_000_000)))
    assert [call.predicted for call in in_time] == [call.delivered for call in found]


async def test_calls_at_once_where_prompts_are_computed_in_turns(
    small_engine: VllmEngine, tiny_model: Path, notice: Callable[[str], None]
) -> None:
    """Beside another call a step computes only a part of a prompt: what the first has not reached
    by then the second computes as well."""
    model = load_model(tiny_model, None)
    ids = Asked().ids(model)
    ids = ids + ids[::-1]
    first, found = explained(model, await at_once(small_engine, ids, 2))
    assert first.delivered == 0
    assert found.delivered is not None
    attainable = reusable_tokens(len(ids), len(ids), UNIT)
    assert found.broken is not None
    assert found.broken.cause == "in-flight"
    assert found.broken.lost_tokens == attainable - found.delivered > 0
    notice(f"why, live: in flight lost {found.broken.lost_tokens} of {attainable}, as said")


async def test_a_preemption_is_told_from_a_divergence(
    small_engine: VllmEngine, tiny_model: Path, notice: Callable[[str], None]
) -> None:
    """Two calls that outgrow the pool while they run: one gives its blocks up, and what goes on
    with either finds less than was computed."""
    model = load_model(tiny_model, None)
    head = Asked().ids(model)
    before = await small_engine.num_preemptions()
    assert before is not None
    sampling = Sampling(12 * UNIT, min_tokens=12 * UNIT)  # long enough to run side by side
    for start in range(100, 200, 10):  # on a busy machine one may end before the other begins
        prompts = [(head[at:] + head[:at]) * 3 for at in (start, start + 5)]
        prompts = [ids[: (NUM_BLOCKS // 2 - 2) * UNIT] for ids in prompts]
        dones = await asyncio.gather(*(small_engine.complete(ids, sampling) for ids in prompts))
        if (await small_engine.num_preemptions() or 0) > before:
            break
    else:
        pytest.fail("ten pairs of calls never ran at once")
    lost = []
    for ids, done in zip(prompts, dones, strict=True):
        second = [*ids, *done.token_ids, ids[0]]
        came = await complete(small_engine, second, 1)
        found = explained(model, [sent(ids, done), sent(second, came)])[1]
        computed = len(ids) + len(done.token_ids) - 1
        missing = reusable_tokens(computed, len(second), UNIT) - cached(came)
        found_lost = found.broken and (found.broken.cause, found.broken.lost_tokens)
        assert found_lost == (("eviction", missing) if missing else None)
        lost.append(missing)
    assert any(lost)
    notice(f"why, preempted: {lost} tokens lost, as said")


def growing(number: int, num_calls: int, edit_at: int) -> list[tuple[Message, ...]]:
    """A conversation with a root of its own, whose first question is edited at one call."""
    system: Message = {"role": "system", "content": f"You keep lighthouse {number}. " + TEXT * 8}
    prompts: list[tuple[Message, ...]] = []
    messages: list[Message] = [system, {"role": "user", "content": "Who lit the lamp? " + FILE}]
    for index in range(num_calls):
        if index == edit_at:
            messages[1] = {"role": "user", "content": "Who put out the lamp? " + FILE}
        prompts.append(tuple(messages))
        messages += [
            {"role": "assistant", "content": f"Keeper {index} did, as the log says."},
            {"role": "user", "content": f"What did watch {index} see? " + FILE[:200]},
        ]
    return prompts


async def test_evictions_are_told_from_divergences(
    small_engine: VllmEngine, tiny_model: Path, notice: Callable[[str], None]
) -> None:
    """Four sessions in turn in a small pool: who comes back finds less than was sent."""
    model = load_model(tiny_model, None)
    edits = [3, 2, 5, 4]
    prompts = [growing(number, 7, edit_at) for number, edit_at in enumerate(edits)]
    order = [(call, number) for call in range(7) for number in range(4) if (call + number) % 5]
    calls: dict[int, list[tuple[float, Call]]] = {number: [] for number in range(4)}
    for time_s, (call, number) in enumerate(order):
        messages = prompts[number][call]
        done = await complete(small_engine, ids_of(model, messages), 1)
        usage = Usage(done.prompt_tokens, done.cached_tokens)
        calls[number].append((float(time_s), Call(messages, None, usage=usage)))
    sessions = []
    for number, timed in calls.items():
        start_s = timed[0][0]
        moved = tuple(replace(call, time_s=time_s - start_s) for time_s, call in timed)
        sessions.append(Session(f"s{number}", moved, start_time_s=1e9 + start_s))
    seen = {"evicted": 0, "parted": 0, "whole": 0}
    sized = Settings(UNIT, kv_tokens=NUM_BLOCKS * UNIT)
    for settings in (Settings(UNIT), sized):
        for found in explain(sessions, model, settings):
            if settings is sized:
                assert found.predicted == found.delivered
            if found.call == 0:
                continue
            session = sessions[int(found.session[1:])]
            before, after = (session.calls[i].messages for i in (found.call - 1, found.call))
            parted = before != after[: len(before)]
            assert found.lcp is not None
            assert found.delivered is not None
            attainable = reusable_tokens(found.lcp, found.num_tokens or 0, UNIT)
            if parted:
                assert found.broken is not None
                assert found.broken.cause == "history-edited"
                seen["parted"] += 1
            elif found.delivered < attainable:
                assert found.broken is not None
                assert found.broken.cause == "eviction"
                assert found.broken.lost_tokens == attainable - found.delivered
                assert found.broken.confidence == (1.0 if settings is sized else 0.6)
                seen["evicted"] += 1
            else:
                assert found.broken is None
                seen["whole"] += 1
    notice(f"why, small pool: {seen}")
    assert min(seen.values()) > 0
