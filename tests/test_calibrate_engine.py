"""Calibration on engines: what is cached before a call, rounds within a time, flags."""

import asyncio
from dataclasses import astuple, replace
from itertools import count
from typing import Any

import pytest
from calibrate_cases import CALL_FIXED_S, STEP, SYNC, play

from duramen.experiments.calibrate import calibrate as calibrating
from duramen.experiments.calibrate import measure as measuring
from duramen.experiments.calibrate.calibrate import Subject, calibrate
from duramen.experiments.calibrate.measure import Clock, Measurement, measure
from duramen.experiments.calibrate.player import Player
from duramen.experiments.calibrate.scenes import NUM_BEFORE_LATE, Scene, Shape, design
from duramen.experiments.studies.example_models import llama_3_8b
from duramen.layout.errors import DuramenError, EngineError
from duramen.serving.timing_profile import Origin
from duramen.serving.vllm.engine import VllmEngine
from duramen.serving.vllm.fake import FakeEngine
from duramen.serving.vllm.protocol import Completion

RULES = replace(SYNC, block_size=16)


def silent(line: str, share: float) -> None:
    pass


def fake(**sizes: int) -> FakeEngine:
    return FakeEngine(lambda ids: "", **sizes)


async def test_calls_have_cached_what_their_shapes_say() -> None:
    player = Player(fake(), [64, 32], seed=0)
    await player.prime()
    shapes = (Shape(48, 10, 3), Shape(32, 5, 6))
    for _ in range(2):  # what is new in one call is not in the next
        calls = await player.play(Scene(shapes))
        assert calls is not None
        assert tuple(call.shape for call in calls) == shapes
        assert [len(call.token_s) for call in calls] == [3, 6]


async def test_a_scene_with_a_prefix_that_is_gone_is_thrown_out_and_then_mended() -> None:
    engine = fake()
    player = Player(engine, [64], seed=0)
    scene = Scene((Shape(64, 10),))
    assert await player.play(scene) is None
    assert await player.play(scene) is not None
    await engine.reset_prefix_cache()
    assert await player.play(scene) is None


async def test_the_late_call_is_sent_when_all_others_decode() -> None:
    player = Player(fake(), [0, 0, 0], seed=0)
    scene = Scene((Shape(0, 20, 12), Shape(0, 40, 8)), late=Shape(0, 30))
    calls = await player.play(scene)
    assert calls is not None
    *beside, late = calls
    assert late.sent_s >= max(call.token_s[NUM_BEFORE_LATE - 1] for call in beside)


class Failing(FakeEngine):
    async def complete(self, *arguments: Any, **options: Any) -> Completion:
        raise EngineError("it died")


async def test_an_engine_that_dies_ends_the_scene() -> None:
    player = Player(Failing(lambda ids: ""), [0, 0, 0], seed=0)
    with pytest.raises(EngineError, match="it died"):
        await player.play(Scene((Shape(0, 20, 12),) * 2, late=Shape(0, 30)))


def ticking() -> Clock:
    """A second older each time that it is read."""
    return count().__next__


async def test_rounds_until_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "LARGEST_TOP", 1024)
    shares: list[float] = []
    found = await measure(
        fake(), RULES, 5.0, lambda line, share: shares.append(share), clock=ticking()
    )
    assert found.num_rounds >= 3
    assert found.num_thrown_out == 0
    assert set(found.played) == set(found.design.scenes)
    assert {len(repeats) - found.num_rounds for repeats in found.played.values()} <= {0, 1}
    assert found.design.max_tokens > 1024
    assert shares == sorted(shares)


async def test_prompts_are_as_long_as_context_and_cache_allow() -> None:
    for small in (fake(max_model_len=1500), fake(num_kv_blocks=500)):
        found = await measure(small, RULES, 5.0, silent, clock=ticking())
        assert 512 <= found.design.max_tokens < 1500
        assert found.design.num_tokens <= 500 * 16


@pytest.mark.parametrize("sizes", [{"max_model_len": 400}, {"num_kv_blocks": 60}])
async def test_an_engine_that_is_too_small(sizes: dict[str, int]) -> None:
    with pytest.raises(DuramenError, match="too small to measure: it needs a context of 561"):
        await measure(fake(**sizes), RULES, 5.0, silent)


async def test_too_little_time() -> None:
    with pytest.raises(
        DuramenError, match=r"only \d repeats of a scene in 1.0 minutes.* more time"
    ):
        await measure(fake(), RULES, 1.0, silent, clock=ticking())


async def test_an_engine_that_does_not_say_what_was_cached() -> None:
    engine = fake()
    engine.info = replace(engine.info, reports_cached=False)
    with pytest.raises(EngineError, match="--enable-prompt-tokens-details"):
        await measure(engine, RULES, 1.0, silent)


async def test_flags_that_are_not_known_are_asked_for() -> None:
    subject = Subject("a device", "a model", {"max_num_batched_tokens": 512}, None)
    with pytest.raises(DuramenError, match=r"does not say max_num_seqs .* --flag max_num_seqs="):
        await calibrate(fake(), subject, 1.0, silent)


async def test_units_of_a_hybrid_model_are_cached_all_the_same() -> None:
    found = await measure(
        fake(block_size=528), replace(RULES, block_size=528), 5.0, silent, clock=ticking()
    )
    assert found.num_thrown_out == 0
    assert min(found.design.prefix_tokens) >= 528


async def test_the_profile_of_a_device_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was played gives its own step times back, no error on what was held out, and an H200's
    shares of its peaks."""
    each = design(1024, RULES, 16)
    measurement = Measurement(
        each, {scene: [play(scene, RULES)] * 3 for scene in each.scenes}, 3, 1, 90.0
    )

    async def measured(*arguments: Any) -> Measurement:
        return measurement

    monkeypatch.setattr(calibrating, "measure", measured)
    flags = {"max_num_batched_tokens": 1024, "max_num_seqs": 64, "async_scheduling": False}
    subject = Subject("NVIDIA H200", "Llama-3-8B", flags, llama_3_8b())
    profile = await calibrate(fake(), subject, 1.5, silent)
    assert astuple(profile.step) == pytest.approx(astuple(STEP), rel=0.05)
    assert profile.call_fixed_s == pytest.approx(CALL_FIXED_S, rel=0.05)
    assert profile.validation is not None
    assert profile.validation.ttft.p90 < 0.01
    assert profile.ttft is not None
    assert profile.ttft.linear_mfu == pytest.approx(13.96e9 / STEP.per_token_s / 989.4e12, rel=0.05)
    assert profile.flags == flags | {"block_size": 16}
    assert (profile.engine, profile.origin) == ("fake 1", Origin.CALIBRATED)
    assert profile.conditions["minutes"] == 1.5
    assert profile.conditions["num_scenes_thrown_out"] == 1


@pytest.mark.live
async def test_vllm_says_its_flags(live_engine: VllmEngine) -> None:
    flags = await live_engine.flags()
    assert flags["scheduling_policy"] == "priority"
    assert flags["async_scheduling"] is False
    assert flags["kv_cache_dtype"] == "auto"
    assert {type(flags[name]) for name in ("max_num_batched_tokens", "max_num_seqs")} == {int}


@pytest.mark.live
async def test_vllm_has_cached_what_shapes_say(live_engine: VllmEngine) -> None:
    player = Player(live_engine, [256, 128, 64], seed=0)
    await player.prime()
    for scene in (
        Scene((Shape(256, 40),)),
        Scene((Shape(128, 32, 8), Shape(96, 200, 5), Shape(64, 32, 6))),
        Scene((Shape(64, 32, 40),) * 2, late=Shape(64, 600)),
    ):
        async with asyncio.timeout(120):
            calls = await player.play(scene)
        assert calls is not None
        assert tuple(call.shape for call in calls) == scene.shapes
