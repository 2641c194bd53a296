"""Our scheduler on top of vLLM's own, without a model: what it schedules, step by step."""

import json
import os
import warnings
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from duramen.layout.errors import DuramenError, EngineError
from duramen.serving.vllm.itl_report import read_report

MAX_MODEL_LEN, BLOCK_SIZE, MOST_TOKENS = 4096, 16, 2048
# 0.1 s a step and 0.001 a token: 99 tokens beside one decode keep 0.2001 s
TIMING = """
device: none
model: none
engine: none
date: 2026-12-01
origin: prior
step: {fixed_s: 0.1, per_token_s: 0.001, per_pair_s: 0.0, per_decode_context_token_s: 0.0,
  per_sequence_s: 0.0}
"""
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "num_hidden_layers": 1,
    "vocab_size": 128,
    "max_position_embeddings": MAX_MODEL_LEN,
}


@pytest.fixture(scope="module")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    with warnings.catch_warnings(action="ignore"):  # theirs, at import
        if os.environ.get("DURAMEN_REQUIRE_LIVE") != "1":
            pytest.importorskip("vllm", reason="no vLLM: its scheduler cannot be extended")
        import torch
        from vllm import config
        from vllm.sampling_params import SamplingParams
        from vllm.v1 import kv_cache_interface
        from vllm.v1.outputs import ModelRunnerOutput
        from vllm.v1.request import Request
        from vllm.v1.structured_output import StructuredOutputManager

        from duramen.serving.vllm.scheduler import ItlScheduler

    folder = tmp_path_factory.mktemp("model")
    (folder / "config.json").write_text(json.dumps(LLAMA))
    vllm_config = config.VllmConfig(
        model_config=config.ModelConfig(
            model=str(folder), skip_tokenizer_init=True, max_model_len=MAX_MODEL_LEN
        ),
        scheduler_config=config.SchedulerConfig(
            max_num_batched_tokens=MOST_TOKENS,
            max_num_seqs=8,
            max_model_len=MAX_MODEL_LEN,
            is_encoder_decoder=False,
        ),
        cache_config=config.CacheConfig(block_size=BLOCK_SIZE, enable_prefix_caching=False),
    )
    vllm_config.cache_config.num_gpu_blocks = 2000
    spec = kv_cache_interface.FullAttentionSpec(
        block_size=BLOCK_SIZE, num_kv_heads=1, head_size=1, dtype=torch.float16
    )
    group = kv_cache_interface.KVCacheGroupSpec(["layer"], spec)
    return SimpleNamespace(
        make=lambda: ItlScheduler(
            vllm_config,
            kv_cache_interface.KVCacheConfig(2000, [], [group]),
            StructuredOutputManager(vllm_config),
            block_size=BLOCK_SIZE,
        ),
        config=vllm_config,
        Request=Request,
        SamplingParams=SamplingParams,
        ModelRunnerOutput=ModelRunnerOutput,
    )


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """0.2001 s. Returns where the scheduler reports."""
    (tmp_path / "timing.yaml").write_text(TIMING)
    monkeypatch.setenv("DURAMEN_ITL_TARGET_MS", "200.1")
    monkeypatch.setenv("DURAMEN_TIMING_PROFILE", str(tmp_path / "timing.yaml"))
    monkeypatch.setenv("DURAMEN_ITL_REPORT", str(tmp_path / "report"))
    return tmp_path / "report"


class Engine:
    """The loop around a scheduler: every step's tokens are made up. `depth` steps in flight."""

    def __init__(self, vllm: Any, depth: int) -> None:
        self.vllm, self.scheduler = vllm, vllm.make()
        self.scheduler._budget.ratio.deviation = 0.0  # predictions are taken as they are
        self.scheduler._budget.observe = lambda predicted_s, measured_s: None
        self.depth = depth
        self.in_flight: deque[tuple[Any, list[str]]] = deque()

    def add(self, name: str, num_prompt: int, max_tokens: int = 1000) -> None:
        parameters = self.vllm.SamplingParams(max_tokens=max_tokens, ignore_eos=True)
        prompt = [1] * num_prompt
        self.scheduler.add_request(self.vllm.Request(name, prompt, parameters, None))

    def step(self) -> dict[str, int]:
        """One step is made, and the oldest ends once there are `depth`."""
        output = self.scheduler.schedule()
        names = [*output.num_scheduled_tokens]
        requests = self.scheduler.requests
        sampling = [name for name in names if not requests[name].is_prefill_chunk]
        self.in_flight.append((output, sampling))
        if len(self.in_flight) == self.depth:
            self._update(*self.in_flight.popleft())
        made: dict[str, int] = output.num_scheduled_tokens
        return made

    def _update(self, output: Any, sampling: list[str]) -> None:
        names = [*output.num_scheduled_tokens]
        result = self.vllm.ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: place for place, name in enumerate(names)},
            sampled_token_ids=[[2] if name in sampling else [] for name in names],
        )
        self.scheduler.update_from_output(output, result)


@pytest.fixture(params=[1, 2], ids=["sync", "async"])
def engine(vllm: SimpleNamespace, target: Path, request: pytest.FixtureRequest) -> Iterator[Engine]:
    made = Engine(vllm, request.param)
    yield made
    made.scheduler.shutdown()


def test_a_long_prompt_alone_takes_all(engine: Engine) -> None:
    engine.add("long", 3000)
    assert [engine.step(), engine.step()] == [{"long": 2048}, {"long": 952}]


def test_a_long_prompt_is_cut_beside_a_decode_and_open_after_it(engine: Engine) -> None:
    engine.add("stream", 10, max_tokens=3)
    assert engine.step() == {"stream": 10}
    engine.add("long", 3000)
    assert engine.step() == {"stream": 1, "long": 95}
    assert engine.step() == {"stream": 1, "long": 95}
    assert {"long": 2048} in [engine.step(), engine.step()]
    assert engine.scheduler.max_num_scheduled_tokens == MOST_TOKENS


def test_a_decode_keeps_its_token_beside_an_older_prefill(engine: Engine) -> None:
    engine.add("long", 4000)
    assert engine.step() == {"long": 2048}
    # both fit in one step, and the long one was first
    engine.scheduler.scheduler_config.long_prefill_token_threshold = 1000
    engine.add("stream", 10)
    assert engine.step() == {"long": 1000, "stream": 10}
    engine.scheduler.scheduler_config.long_prefill_token_threshold = 0
    assert engine.step() == {"stream": 1, "long": 95}


def test_what_one_prompt_leaves_goes_to_those_that_wait(engine: Engine) -> None:
    engine.add("stream", 10)
    engine.step()
    for name, num_prompt in (("short", 30), ("other", 40), ("long", 3000)):
        engine.add(name, num_prompt)
    assert engine.step() == {"stream": 1, "short": 30, "other": 40, "long": 25}


def test_where_the_target_cannot_be_held_prefills_go_on_slowly(engine: Engine) -> None:
    engine.scheduler._budget.target_s = 0.05
    engine.add("stream", 10)
    engine.step()
    engine.add("long", 3000)
    assert engine.step() == {"stream": 1, "long": 32}


def test_it_learns_from_its_steps_and_reports(vllm: SimpleNamespace, target: Path) -> None:
    engine = Engine(vllm, 1)
    del engine.scheduler._budget.observe
    engine.add("stream", 10)
    engine.step()
    assert read_report(target) is None  # nothing was decoded beside a prefill
    engine.add("long", 3000)
    steps = [engine.step() for _ in range(5)]
    report = read_report(target)
    assert report is not None
    assert (report.num_steps, report.num_floor) == (5, 0)
    num_tokens = sum(sum(step.values()) for step in steps)
    assert report.budget_tokens == report.computed_tokens == num_tokens
    assert report.predicted_s == pytest.approx(5 * 0.1 + 0.001 * num_tokens)
    assert 0 < report.measured_s < report.predicted_s  # without a model it is next to nothing
    assert report.ratio == engine.scheduler._budget.ratio.usual_most
    assert engine.scheduler._budget.ratio.mean < 1
    engine.scheduler.shutdown()


def test_what_it_is_not_told(vllm: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DURAMEN_ITL_TARGET_MS", raising=False)
    with pytest.raises(EngineError, match="needs DURAMEN_ITL_TARGET_MS in the environment"):
        vllm.make()


def test_a_timing_profile_that_is_gone(
    vllm: SimpleNamespace, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DURAMEN_TIMING_PROFILE", "/no/such.yaml")
    with pytest.raises(DuramenError, match=r"/no/such\.yaml cannot be read"):
        vllm.make()


def test_pipelines_are_refused(
    vllm: SimpleNamespace, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm.config.parallel_config, "pipeline_parallel_size", 2)
    with pytest.raises(EngineError, match="needs --pipeline-parallel-size 1"):
        vllm.make()
