"""The simulator against a live engine whose cache is too small: every call hits what it predicts.

Recorded sessions, several open at once, one call after another, so that the order is known; each
reply has as many tokens as the recorded one. The prompts are prefilled in chunks.
"""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from duramen.experiments.opening import load_model
from duramen.serving.vllm.engine import launch
from duramen.serving.vllm.launch import VllmConfig

pytestmark = pytest.mark.live

NUM_CALLS, NUM_OPEN = 60, 4
CONTEXT_TOKENS, NUM_BLOCKS = 4096, 180
MAX_STEP_TOKENS = 512


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "scripts")
    return import_module("bench_validate")


async def test_under_eviction_every_call_hits_what_was_simulated(
    bench: Any, tiny_model: Path, notice: Callable[[str], None]
) -> None:
    sessions, model = bench.read(bench.recordings()), load_model(tiny_model, None)
    rendered = await bench.render(sessions, model, CONTEXT_TOKENS, CONTEXT_TOKENS)
    calls = [*bench.interleave(rendered, NUM_OPEN)][:NUM_CALLS]
    config = VllmConfig(
        tiny_model,
        max_model_len=CONTEXT_TOKENS,
        num_kv_blocks=NUM_BLOCKS,
        max_num_seqs=32,
        max_num_batched_tokens=MAX_STEP_TOKENS,
    )
    engine = await launch(config)
    try:
        run = await bench.compare(engine, calls, bench.NO_TIMES, at_once=1)
    finally:
        await engine.close()
    notice(f"{run.num_evicted} of {len(calls)} calls lost cached tokens to eviction")
    cached = [call.cached_tokens for call in run.calls]
    assert len(cached) == len(calls)
    assert cached == [call.predicted_cached_tokens for call in run.calls]
    assert sum(cached) > 0
    assert run.num_evicted > len(calls) // 10
