"""kv.batching against its oracle: vLLM's own Scheduler and AsyncScheduler, driven side by side.

In every step of random workloads the same requests are scheduled in the same order, with as many
tokens behind as many computed ones (so with the same hits at admission); the same are preempted and
finish; and each holds the same blocks. vLLM runs without a model: what it would sample is made up.
"""

import json
import os
import warnings
from collections import deque
from dataclasses import dataclass, replace
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from duramen.layout.blocks import block_hashes
from duramen.serving.kv.batching.batch import Batch
from duramen.serving.kv.batching.request import Request
from duramen.serving.kv.batching.rules import Policy, Rules
from duramen.serving.kv.batching.scheduler import BatchScheduler

STOP_ID = 99
MAX_MODEL_LEN = 160
BLOCK_SIZE = 4
PLAIN = Rules(BLOCK_SIZE, 400, max_num_batched_tokens=48, max_num_seqs=8)
SETTINGS = {
    "plain": PLAIN,
    "small budget": replace(PLAIN, max_num_batched_tokens=9, max_num_seqs=6),
    "threshold": replace(PLAIN, long_prefill_token_threshold=7),
    "few seats": replace(PLAIN, max_num_seqs=2),
    "small pool": replace(PLAIN, num_blocks=60),
    "small pool, chunks admitted": replace(PLAIN, num_blocks=50, scheduler_reserve_full_isl=False),
    "watermark": replace(PLAIN, num_blocks=70, watermark=0.1),
    "priority": replace(PLAIN, policy=Policy.PRIORITY),
    "priority, small pool": replace(
        PLAIN, policy=Policy.PRIORITY, num_blocks=60, long_prefill_token_threshold=11
    ),
    "blocks of one token": replace(PLAIN, block_size=1, num_blocks=200),
}
NUM_SEEDS = 6
REQUESTS_PER_SEED = 40


@pytest.fixture(scope="module")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """vLLM's parts that the oracle needs, and the folder of a model that is never loaded."""
    with warnings.catch_warnings(action="ignore"):  # theirs, at import
        if os.environ.get("DURAMEN_REQUIRE_LIVE") != "1":
            pytest.importorskip(
                "vllm", reason="no vLLM: kv.batching is not compared with its Scheduler"
            )
        import torch
        from vllm import config
        from vllm.sampling_params import SamplingParams
        from vllm.utils.hashing import sha256
        from vllm.v1 import kv_cache_interface
        from vllm.v1.core import kv_cache_utils
        from vllm.v1.core.sched.async_scheduler import AsyncScheduler
        from vllm.v1.core.sched.scheduler import Scheduler
        from vllm.v1.outputs import ModelRunnerOutput
        from vllm.v1.request import Request
        from vllm.v1.structured_output import StructuredOutputManager

    kv_cache_utils.init_none_hash(sha256)
    folder = tmp_path_factory.mktemp("model")
    (folder / "config.json").write_text(json.dumps(LLAMA))
    return SimpleNamespace(
        config=config,
        model_dir=folder,
        dtype=torch.float16,
        kv=kv_cache_interface,
        schedulers={False: Scheduler, True: AsyncScheduler},
        SamplingParams=SamplingParams,
        StructuredOutputManager=StructuredOutputManager,
        ModelRunnerOutput=ModelRunnerOutput,
        Request=Request,
        block_hasher=lambda block_size: kv_cache_utils.get_request_block_hasher(block_size, sha256),
    )


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


def their_config(vllm: Any, rules: Rules) -> Any:
    config = vllm.config
    made = config.VllmConfig(
        model_config=config.ModelConfig(
            model=str(vllm.model_dir), skip_tokenizer_init=True, max_model_len=MAX_MODEL_LEN
        ),
        scheduler_config=config.SchedulerConfig(
            max_num_batched_tokens=rules.max_num_batched_tokens,
            max_num_seqs=rules.max_num_seqs,
            max_model_len=MAX_MODEL_LEN,
            is_encoder_decoder=False,
            long_prefill_token_threshold=rules.long_prefill_token_threshold,
            policy=rules.policy.value,
            scheduler_reserve_full_isl=rules.scheduler_reserve_full_isl,
            watermark=rules.watermark,
        ),
        cache_config=config.CacheConfig(block_size=rules.block_size, enable_prefix_caching=True),
    )
    made.cache_config.num_gpu_blocks = rules.num_blocks
    return made


def their_scheduler(vllm: Any, vllm_config: Any, rules: Rules) -> Any:
    spec = vllm.kv.FullAttentionSpec(
        block_size=rules.block_size, num_kv_heads=1, head_size=1, dtype=vllm.dtype
    )
    group = vllm.kv.KVCacheGroupSpec(["layer"], spec)
    return vllm.schedulers[rules.async_scheduling](
        vllm_config,
        vllm.kv.KVCacheConfig(rules.num_blocks, [], [group]),
        vllm.StructuredOutputManager(vllm_config),
        block_size=rules.block_size,
    )


@dataclass
class Sums:
    """Over the workloads: tokens that were hit, requests that were preempted, chunks that were not
    the last of their prompt."""

    cached_tokens: int = 0
    preempted: int = 0
    cut: int = 0


class Pair:
    """Both schedulers, fed the same requests, with as many steps in flight as vLLM's engine has.
    `budgets`: where the tokens that each step may have come from; None leaves them as they are."""

    def __init__(
        self, vllm: Any, vllm_config: Any, rules: Rules, budgets: Random | None = None
    ) -> None:
        self.vllm, self.rules, self.budgets = vllm, rules, budgets
        self.ours, self.theirs = BatchScheduler(rules), their_scheduler(vllm, vllm_config, rules)
        self.block_hasher = vllm.block_hasher(rules.block_size)
        self.requests: dict[str, tuple[Request, Any]] = {}
        self.outputs: dict[str, list[int]] = {}
        self.in_flight: deque[tuple[Batch, Any, list[str]]] = deque()
        self.num_cached_tokens = self.num_preempted = self.num_cut = self.num_steps = 0

    def add(
        self, number: int, prompt: list[int], outputs: list[int], limit: int, priority: int
    ) -> None:
        name = f"{number:06}"
        theirs = self.vllm.Request(
            name,
            prompt,
            self.vllm.SamplingParams(max_tokens=limit, stop_token_ids=[STOP_ID]),
            None,
            arrival_time=float(number),
            priority=priority,
            block_hasher=self.block_hasher,
        )
        keys = [*block_hashes([*prompt, *outputs[:-1]], self.rules.block_size)]
        ours = Request(number, keys, len(prompt), len(outputs), limit, float(number), priority)
        self.requests[name], self.outputs[name] = (ours, theirs), outputs
        self.ours.add(ours)
        self.theirs.add_request(theirs)

    def step(self) -> None:
        """One turn of the engine's loop: schedule, and take in the oldest step when as many are in
        flight as there may be."""
        assert self.ours.num_unfinished == self.theirs.get_num_unfinished_requests()
        if self.ours.num_unfinished:
            self._schedule()
            is_full = len(self.in_flight) == 1 + self.rules.async_scheduling
            if not is_full:
                return
        if self.in_flight:
            self._update(*self.in_flight.popleft())

    def _schedule(self) -> None:
        if self.budgets is not None:
            limit = self.rules.max_num_batched_tokens
            self.theirs.max_num_scheduled_tokens = self.budgets.randint(1, limit)
        batch = self.ours.schedule(self.theirs.max_num_scheduled_tokens)
        output = self.theirs.schedule()
        names = [f"{request.request_id:06}" for request in batch.requests]
        theirs = [self.requests[name][1] for name in output.num_scheduled_tokens]
        assert [*zip(names, batch.new_tokens, strict=True)] == [
            *output.num_scheduled_tokens.items()
        ]
        assert batch.context_tokens == [
            each.num_computed_tokens - output.num_scheduled_tokens[each.request_id]
            for each in theirs
        ]
        assert {f"{request.request_id:06}" for request in batch.preempted} == (
            output.preempted_req_ids
        )
        sampling = [each.request_id for each in theirs if not each.is_prefill_chunk]
        assert [f"{request.request_id:06}" for request in batch.sampling] == sampling
        self.in_flight.append((batch, output, sampling))
        self.num_steps += 1
        self.num_preempted += len(batch.preempted)
        self.num_cut += len(batch.requests) - len(sampling)
        self._check()

    def _update(self, batch: Batch, output: Any, sampling: list[str]) -> None:
        names = [*output.num_scheduled_tokens]
        sampled = [[self._next_output(name)] if name in sampling else [] for name in names]
        index = {name: place for place, name in enumerate(names)}
        result = self.vllm.ModelRunnerOutput(
            req_ids=names, req_id_to_index=index, sampled_token_ids=sampled
        )
        outputs = self.theirs.update_from_output(output, result)
        done = [each.request_id for each in outputs[0].outputs if each.finished] if outputs else []
        finished = self.ours.update(batch)
        assert [f"{request.request_id:06}" for request in finished] == done
        self.num_cached_tokens += sum(request.cached_tokens or 0 for request in finished)
        self._check()

    def _next_output(self, name: str) -> int:
        """Of a request that ended while the step ran: any, nobody takes it."""
        outputs, num_had = self.outputs[name], self.requests[name][1].num_output_tokens
        return outputs[min(num_had, len(outputs) - 1)]

    def _check(self) -> None:
        assert [f"{each.request_id:06}" for each in self.ours.running] == [
            each.request_id for each in self.theirs.running
        ]
        manager = self.theirs.kv_cache_manager
        for request in self.ours.running:
            assert request.blocks == manager.get_block_ids(f"{request.request_id:06}")[0]
        assert self.ours.num_free_blocks == manager.block_pool.get_num_free_blocks()
        self.ours.check_integrity()


def run_workload(pair: Pair, random: Random) -> None:
    prompts: list[list[int]] = [[]]
    for number in range(REQUESTS_PER_SEED):
        shared = random.choice(prompts)
        prompt = shared[: random.randint(0, len(shared))]
        prompt = [*prompt, *random.choices((0, 1), k=random.randint(1, 60))][: MAX_MODEL_LEN - 1]
        most = MAX_MODEL_LEN - len(prompt)
        outputs = random.choices((0, 1), k=random.randint(1, min(30, most)))
        limit = len(outputs)
        if random.random() < 0.5 and len(outputs) < most:
            limit = random.randint(len(outputs) + 1, most)
            outputs[-1] = STOP_ID
        prompts.append([*prompt, *outputs])
        pair.add(number, prompt, outputs, limit, priority=random.randint(0, 2))
        for _ in range(random.choice((0, 0, 1, 3, 12))):
            pair.step()
    while pair.ours.num_unfinished or pair.in_flight:
        pair.step()


def compare(vllm: SimpleNamespace, rules: Rules, name: str, *, vary_budgets: bool = False) -> Sums:
    vllm_config, sums = their_config(vllm, rules), Sums()
    for seed in range(NUM_SEEDS):
        budgets = Random(seed) if vary_budgets else None
        pair = Pair(vllm, vllm_config, rules, budgets)
        try:
            run_workload(pair, Random(f"{seed} {name}"))
        except AssertionError as difference:
            difference.add_note(f"in the workload of seed {seed}, step {pair.num_steps}")
            raise
        sums.cached_tokens += pair.num_cached_tokens
        sums.preempted += pair.num_preempted
        sums.cut += pair.num_cut
    return sums


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("name", SETTINGS)
def test_equals_vllm_in_every_step(vllm: SimpleNamespace, name: str, is_async: bool) -> None:
    sums = compare(vllm, replace(SETTINGS[name], async_scheduling=is_async), name)
    # the workloads do reach what they are meant to compare
    assert min(sums.cached_tokens, sums.cut) > 0
    assert sums.preempted > NUM_SEEDS or "pool" not in name


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_equals_vllm_with_another_budget_in_each_step(
    vllm: SimpleNamespace, is_async: bool
) -> None:
    rules = replace(PLAIN, num_blocks=60, async_scheduling=is_async)
    sums = compare(vllm, rules, "budgets", vary_budgets=True)
    assert sums.cut > NUM_SEEDS
    assert sums.preempted > 0
