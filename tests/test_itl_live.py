"""Our scheduler in a real vLLM: a long prompt is cut beside a stream, and reported."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from duramen.serving.vllm.engine import launch
from duramen.serving.vllm.itl_target import ItlTarget
from duramen.serving.vllm.launch import VllmConfig
from duramen.serving.vllm.protocol import Sampling

pytestmark = pytest.mark.live

NUM_LONG = 2000
# at the least ratio that is believed, 0.8 s are predicted as 0.2: 699 tokens beside a decode
TIMING = """
device: none
model: none
engine: none
date: 2026-12-01
origin: prior
step: {fixed_s: 0.1, per_token_s: 0.001, per_pair_s: 0.0, per_decode_context_token_s: 0.0,
  per_sequence_s: 0.0}
"""
LONG = [1000 + number % 3000 for number in range(NUM_LONG)]


async def test_a_long_prompt_beside_a_stream(tiny_model: Path, tmp_path: Path) -> None:
    (tmp_path / "timing.yaml").write_text(TIMING)
    itl = ItlTarget(200.0, tmp_path / "timing.yaml")
    config = VllmConfig(tiny_model, max_model_len=16_384, max_num_batched_tokens=8192, itl=itl)
    engine = await launch(config)
    try:
        assert engine.itl_report() is None
        begun = asyncio.Event()
        stream = asyncio.create_task(
            engine.complete(
                [1, 2, 3],
                Sampling(max_tokens=10_000, min_tokens=10_000),
                on_tokens=lambda ids, text: begun.set(),
            )
        )
        await begun.wait()
        done = await engine.complete(LONG, Sampling(max_tokens=1))
        assert not stream.done()
        stream.cancel()
        with suppress(asyncio.CancelledError):
            await stream
        report = engine.itl_report()
        assert (done.prompt_tokens, len(done.token_ids)) == (NUM_LONG, 1)
        assert report is not None
        assert report.num_steps >= NUM_LONG // 699
        assert report.computed_tokens >= NUM_LONG + report.num_steps
        assert report.budget_tokens >= report.computed_tokens
        assert report.predicted_s == pytest.approx(
            0.1 * report.num_steps + 0.001 * report.computed_tokens
        )
    finally:
        await engine.close()
