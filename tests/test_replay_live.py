"""Replay on the real engine: every prediction is delivered, and live replies show who is exact."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from duramen.experiments.accounts import Accounts
from duramen.experiments.importers.read import read_sessions
from duramen.experiments.layout_run import Overflow
from duramen.experiments.layouts.catalogue import Layout
from duramen.experiments.layouts.model import Model
from duramen.experiments.opening import Opening, load_model, open_live
from duramen.experiments.record.demo import demo_paths
from duramen.experiments.repeats import Repeats
from duramen.experiments.replay import Replay
from duramen.experiments.target import LiveTarget, ModelTarget, Outcome, RecordedReply
from duramen.experiments.trajectory import Call, Message, Session, Tool
from duramen.layout.errors import EngineError
from duramen.serving.vllm.engine import VllmEngine
from duramen.serving.vllm.protocol import Engine, Sampling

pytestmark = pytest.mark.live

CLOCK, RECORDED, STABLE = (Layout.parse(n) for n in ("clock", "recorded", "stable"))
CLASSES = {"in_flight_sharing", "evicted", "event_lag", "other"}


def demo(num_sessions: int, num_calls: int) -> list[Session]:
    return [
        replace(session, calls=session.calls[:num_calls])
        for session in islice(read_sessions(demo_paths()), num_sessions)
    ]


class Watched(LiveTarget):
    """Remembers what was sent and what came back."""

    sent: list[tuple[list[int], Outcome]]

    async def begin_layout(self, name: str) -> None:
        self.sent = []
        await super().begin_layout(name)

    async def run(
        self, token_ids: Sequence[int], tools: Sequence[Tool], recorded: RecordedReply
    ) -> Outcome:
        outcome = await super().run(token_ids, tools, recorded)
        self.sent.append((list(token_ids), outcome))
        return outcome


async def replay(
    target: LiveTarget, model_dir: Path, sessions: Sequence[Session], layout: Layout
) -> Accounts:
    run = Replay(
        sessions, load_model(model_dir, None), target, live_replies=True, concurrency=len(sessions)
    )
    await run.run([layout])
    return run.accounts[layout]


@pytest.mark.parametrize(("layout", "num_calls"), [(RECORDED, 8), (STABLE, 8), (CLOCK, 3)])
async def test_serial_replay_delivers_what_was_predicted(
    live_engine: VllmEngine, smollm2: Path, layout: Layout, num_calls: int
) -> None:
    """No seed: a seeded prefill in chunks kills vLLM 0.32's CPU build."""
    target = Watched(live_engine, Sampling(16, 1.0), serial=True, salt="")
    sums = await replay(target, smollm2, demo(1, num_calls), layout)
    assert [o.cached_tokens for _, o in target.sent] == [o.predicted_tokens for _, o in target.sent]
    assert (sums.num_calls, sums.mismatches) == (num_calls, {})
    assert sums.content >= sums.token >= sums.unit >= (sums.delivered or 0)
    assert sums.uncached_tokens is not None
    assert sums.hit_rate is not None
    if layout is CLOCK:
        assert sums.hit_rate < 0.01
        assert {found.source for found in sums.breaks} == {"message 0 (system)"}
        return
    assert all("(assistant)" in found.source for found in sums.breaks)
    if layout is STABLE:
        assert sums.breaks == []
        min_uncached = sums.prompt_tokens - sums.content
        assert sums.uncached_tokens <= 1.02 * min_uncached + sums.unit_tokens * num_calls


async def test_live_replies_break_the_recorded_layout_inside_a_reply(
    live_engine: VllmEngine, smollm2: Path, notice: Callable[[str], None]
) -> None:
    """Seeded: the first reply does not survive decoding and encoding. No prompt is long enough to
    be prefilled in chunks."""
    target = Watched(live_engine, Sampling(64, 1.0, seed=0), serial=True, salt="")
    sums = await replay(target, smollm2, demo(1, 6), RECORDED)
    notice(f"{len(sums.breaks)} of 5 calls break inside the reply before them")
    assert sums.mismatches == {}
    assert sums.breaks
    for found in sums.breaks:
        number = 2 * found.call  # of the reply to the call before, in this session
        assert found.source == f"message {number} (assistant) text"
        prompt, outcome = target.sent[found.call - 1]
        assert len(prompt) <= found.token < len(prompt) + len(outcome.token_ids)


CHAT = "You tell stories in plain words and never ask questions. " * 12


def chats(num_sessions: int, num_calls: int) -> list[Session]:
    """Sessions with one root. The recorded replies only say where the live ones go."""
    sessions = []
    for number in range(num_sessions):
        ask: Message = {"role": "user", "content": f"Tell me about ship number {number}."}
        messages: list[Message] = [{"role": "system", "content": CHAT}, ask]
        calls = []
        for _ in range(num_calls):
            reply: Message = {"role": "assistant", "content": "recorded"}
            calls.append(Call(tuple(messages), reply))
            messages += [reply, {"role": "user", "content": "Go on."}]
        sessions.append(Session(f"chat {number}", tuple(calls)))
    return sessions


@pytest.mark.parametrize(("layout", "num_tokens"), [(RECORDED, 64), (STABLE, 24), (CLOCK, 4)])
async def test_eight_sessions_at_once(
    live_engine: VllmEngine,
    smollm2: Path,
    layout: Layout,
    num_tokens: int,
    notice: Callable[[str], None],
) -> None:
    sampling = Sampling(num_tokens, 1.0, min_tokens=num_tokens)
    target = LiveTarget(live_engine, sampling, serial=False, salt="")
    sums = await replay(target, smollm2, chats(8, 3), layout)
    notice(f"{layout.label}: mismatches {dict(sums.mismatches)}, {len(sums.breaks)} breaks")
    assert sums.num_calls == 24
    assert set(sums.mismatches) <= CLASSES
    assert sums.mismatches["other"] == 0
    assert sums.content >= sums.token >= sums.unit >= (sums.delivered or 0) > 0
    if layout is RECORDED:
        assert all("(assistant)" in found.source for found in sums.breaks)
    if layout is STABLE:
        assert sums.breaks == []


async def test_a_server_that_is_not_ours_gets_a_salt_for_each_layout(
    live_engine: VllmEngine, smollm2: Path
) -> None:
    """It publishes no events to us, so nothing is predicted, and its cache is left alone."""
    upstream = Opening(
        tokenizer_dir=smollm2,
        model_dir=None,
        chat_template=None,
        upstream=live_engine._http.url,
        port=None,
        unit=None,
        kv_tokens=None,
        sampling=Sampling(4),
        concurrency=1,
    )
    async with open_live(upstream, lambda line: None) as opened:
        assert opened.facts["unit_tokens"] == 32
        run = Replay(demo(1, 2), load_model(smollm2, None), opened.target, live_replies=True)
        await run.run([RECORDED, STABLE])
    recorded, stable = (run.accounts[layout].as_json() for layout in (RECORDED, STABLE))
    assert recorded["bounds"] == stable["bounds"]
    assert recorded["bounds"]["delivered"] == recorded["bounds"]["unit"] > 0
    assert recorded["bounds"]["predicted"] is recorded["prediction_mismatches"] is None
    with pytest.raises(EngineError, match="units of 32 tokens, not of 16"):
        async with open_live(replace(upstream, unit=16), lambda line: None):
            pass


async def test_a_small_pool_evicts_and_is_still_predicted(
    tiny_model: Path, notice: Callable[[str], None]
) -> None:
    """Against the mirror, and against the cache model of the same size fed the same ids."""
    opening = Opening(
        tokenizer_dir=tiny_model,
        model_dir=tiny_model,
        chat_template=None,
        upstream=None,
        port=None,
        unit=32,
        kv_tokens=3210,  # no whole number of units
        sampling=Sampling(16, 1.0, 7),
        concurrency=1,
    )
    async with open_live(opening, lambda line: None) as opened:
        assert isinstance(opened.target, LiveTarget)
        engine = opened.target._engine
        assert (engine.info.max_model_len, engine.info.num_kv_blocks) == (3200, 101)
        target = Watched(engine, opening.sampling, serial=True, salt="")
        run = Replay(demo(3, 10), load_model(tiny_model, None), target, live_replies=True)
        for layout in (RECORDED, STABLE):
            await run.run([layout])
            sums = run.accounts[layout]
            assert sums.num_calls == len(target.sent) > 20
            assert sums.mismatches == {}
            cached = [outcome.cached_tokens for _, outcome in target.sent]
            assert cached == [outcome.predicted_tokens for _, outcome in target.sent]
            twin = ModelTarget(opening.kv_tokens, 32, None)
            replies = iter([(outcome.token_ids, outcome.message) for _, outcome in target.sent])
            said = [await twin.run(prompt, (), replies.__next__) for prompt, _ in target.sent]
            assert cached == [outcome.cached_tokens for outcome in said]
        assert engine.mirror is not None
        assert engine.mirror.num_removed > 0
        await fill_the_pool(target, run.model)
        crowded = await crowd_the_pool(engine, tiny_model)
    notice(f"crowded pool: mismatches {crowded}")


async def crowd_the_pool(engine: Engine, model_dir: Path) -> dict[str, int]:
    """Sessions at once in a pool for one and a half: what was predicted leaves before its call."""
    target = LiveTarget(engine, Sampling(16, 1.0, 7), serial=False, salt="")
    sums = await replay(target, model_dir, demo(4, 8), STABLE)
    assert (sums.num_calls, sums.breaks) == (32, [])
    assert set(sums.mismatches) <= CLASSES
    assert sums.mismatches["evicted"] > 0
    assert sums.mismatches["other"] == 0
    assert sums.content >= sums.token >= sums.unit >= (sums.delivered or 0)
    return dict(sums.mismatches)


async def fill_the_pool(target: Watched, model: Model) -> None:
    """Prompts cut to all but one token of the context, which is all of the pool."""
    ask: Message = {"role": "user", "content": "word " * 4000}
    again: Message = {"role": "user", "content": "again"}
    session = Session("long", (Call((ask,), None), Call((ask, again), None)))
    run = Replay([session], model, target, live_replies=True, overflow=Overflow.TRUNCATE)
    await run.run([RECORDED])
    assert [(len(ids), len(done.token_ids)) for ids, done in target.sent] == [(3199, 1)] * 2
    assert run.accounts[RECORDED].mismatches == {}


async def test_open_loop_sends_what_the_closed_loop_sends(
    live_engine: VllmEngine, smollm2: Path, notice: Callable[[str], None]
) -> None:
    """Recorded times shrunk until all calls overlap: every one is accounted for."""
    sessions, model = demo(3, 3), load_model(smollm2, None)
    targets = [
        Watched(live_engine, Sampling(4), serial=serial, salt="") for serial in (True, False)
    ]
    closed = Replay(sessions, model, targets[0])
    opened = Replay(sessions, model, targets[1], time_scale=1e-5)
    for layout in (RECORDED, STABLE):
        for run in (closed, opened):
            await run.run([layout])
        sent = [sorted(ids for ids, _ in target.sent) for target in targets]
        assert sent[0] == sent[1]
        sums = opened.accounts[layout]
        assert (sums.num_sessions, sums.num_calls, sums.num_skipped) == (3, 9, {})
        assert len(sums.breaks) == len(closed.accounts[layout].breaks) == 0
        assert set(sums.mismatches) <= CLASSES - {"other"}
        assert sums.content >= sums.token >= sums.unit >= (sums.delivered or 0)
        assert sums.engine_times is not None
        assert sums.engine_times.ttft is not None
        assert sums.engine_times.ttft.num == 9
        assert sums.open_loop is not None
        assert sums.open_loop.max_in_flight > 1
        assert len(sums.open_loop.late_s) == len(sums.open_loop.ttft_from_due_s) == 9
        assert all(late_s >= 0 for late_s in sums.open_loop.late_s)
        notice(
            f"open loop, {layout.label}: {sums.open_loop.max_in_flight} of 9 calls in flight, "
            f"latest {max(sums.open_loop.late_s):.4f} s, mismatches {dict(sums.mismatches)}"
        )


async def test_repeats_are_delivered_alike(
    live_engine: VllmEngine, smollm2: Path, notice: Callable[[str], None]
) -> None:
    """In turn, each with an empty cache, and the warm-up in none of the figures."""
    target = LiveTarget(live_engine, Sampling(4), serial=True, salt="")
    model = load_model(smollm2, None)
    run = Replay(demo(1, 3), model, target, num_warm_ups=1, num_repeats=2)
    await run.run([CLOCK, STABLE])
    for layout, runs in run.runs.items():
        repeats = Repeats(runs)
        assert [sums.num_calls for sums in runs] == [3, 3]
        assert repeats.same_cached_tokens
        for sums in runs:
            assert sums.mismatches == {}
            assert sums.delivered == sums.predicted == runs[0].delivered
            assert sums.engine_times is not None
            for summed in vars(sums.engine_times).values():
                assert summed.num == 3
        found = repeats.as_json()["spread"]
        notice(f"{layout.label}: {found['ttft_p50_s']} s at the client, p50")
        notice(f"{layout.label}: {found['engine_ttft_mean_s']} s in the engine, mean")
