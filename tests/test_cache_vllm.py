"""kv.cache against its oracle: vLLM's own KVCacheManager, driven side by side.

Hit tokens, block ids, events with their order, and the number of free blocks are equal after every
operation of 5,000 random streams: tiny pools, shared prefixes, salts, decoding, frees in any order,
allocations that fail, resets, match units, with and without a draft model.
"""

import os
import warnings
from random import Random
from types import ModuleType
from typing import Any

import pytest

from duramen.layout.blocks import BlockHash, block_hashes
from duramen.serving.kv.cache import BlockCache
from duramen.serving.kv.pool import Cleared, Event, Removed, Stored

NUM_STREAMS = 5_000
REQUESTS_PER_STREAM = 8
MAX_MODEL_LEN = 4_096


@pytest.fixture(scope="module")
def vllm() -> ModuleType:
    """vLLM's modules that the oracle needs, in one namespace."""
    with warnings.catch_warnings(action="ignore"):  # theirs, at import
        if os.environ.get("DURAMEN_REQUIRE_LIVE") != "1":
            pytest.importorskip(
                "vllm", reason="no vLLM: kv.cache is not compared with its KVCacheManager"
            )
        import torch
        from vllm.sampling_params import SamplingParams
        from vllm.utils.hashing import sha256
        from vllm.v1.core import kv_cache_manager, kv_cache_utils
        from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
        from vllm.v1.request import Request

    kv_cache_utils.init_none_hash(sha256)
    oracle = ModuleType("oracle")
    oracle.__dict__.update(
        KVCacheManager=kv_cache_manager.KVCacheManager,
        KVCacheConfig=KVCacheConfig,
        KVCacheGroupSpec=KVCacheGroupSpec,
        FullAttentionSpec=FullAttentionSpec,
        Request=Request,
        sampling_params=SamplingParams(max_tokens=MAX_MODEL_LEN),
        block_hasher=lambda block_size: kv_cache_utils.get_request_block_hasher(block_size, sha256),
        event_hash=kv_cache_utils.maybe_convert_block_hash,
        dtype=torch.float16,
    )
    return oracle


class Pair:
    """One BlockCache and one KVCacheManager that do the same; each step asserts that they agree."""

    def __init__(self, vllm: Any, random: Random, *, draft: bool) -> None:
        self.vllm, self.random = vllm, random
        self.block_size = random.choice((1, 2, 3))
        unit = self.block_size * random.choice((1, 1, 2, 3))
        num_blocks = random.randint(4, 20)
        self.ours = BlockCache(
            num_blocks, self.block_size, unit=unit, draft=draft, record_events=True
        )
        spec = vllm.FullAttentionSpec(
            block_size=self.block_size, num_kv_heads=1, head_size=1, dtype=vllm.dtype
        )
        self.theirs = vllm.KVCacheManager(
            vllm.KVCacheConfig(num_blocks, [], [vllm.KVCacheGroupSpec(["layer"], spec)]),
            max_model_len=MAX_MODEL_LEN,
            scheduler_block_size=self.block_size,
            hash_block_size=self.block_size,
            use_eagle=draft,
            enable_kv_cache_events=True,
        )
        # vLLM derives a coarser unit from hybrid models only; the lookup takes it from here
        self.theirs.coordinator.block_size = unit
        self.block_hasher = vllm.block_hasher(self.block_size)
        self.running: dict[str, Any] = {}
        self.our_key: dict[
            Any, bytes
        ] = {}  # by vLLM's hash of the same block, as its events have it
        self.num_hit_tokens = self.num_evicted = self.num_refused = 0

    def start(self, request_id: str, token_ids: list[int], salt: str) -> None:
        request = self.vllm.Request(
            request_id,
            token_ids,
            self.vllm.sampling_params,
            None,
            cache_salt=salt or None,
            block_hasher=self.block_hasher,
        )
        computed, num_hit, _ = self.theirs.get_computed_blocks(request)
        taken = self.theirs.allocate_slots(request, len(token_ids) - num_hit, num_hit, computed)

        keys = self.keys(request)
        assert self.ours.match(keys, len(token_ids)) == num_hit
        ours = self.ours.allocate(request_id, keys, len(token_ids))
        assert ours == (None if taken is None else num_hit)
        if taken is None:
            self.num_refused += 1
            return
        self.num_hit_tokens += num_hit
        request.num_computed_tokens = len(token_ids)
        self.running[request_id] = request

    def decode(self, request_id: str, token_ids: list[int]) -> None:
        request = self.running[request_id]
        request.append_output_token_ids(token_ids)
        taken = self.theirs.allocate_slots(request, len(token_ids))
        ours = self.ours.append(request_id, self.keys(request), request.num_tokens)
        assert ours == (taken is not None)
        if taken is None:  # what the scheduler does: preempt
            self.num_refused += 1
            self.free(request_id)
        else:
            request.num_computed_tokens += len(token_ids)

    def free(self, request_id: str) -> None:
        self.theirs.free(self.running.pop(request_id))
        self.ours.free(request_id)

    def reset(self) -> None:
        assert self.ours.reset() == self.theirs.reset_prefix_cache() == (not self.running)

    def keys(self, request: Any) -> list[BlockHash]:
        keys = [*block_hashes(request.all_token_ids, self.block_size, request.cache_salt or "")]
        self.our_key.update(zip(map(self.vllm.event_hash, request.block_hashes), keys, strict=True))
        return keys

    def check(self) -> None:
        events = self.ours.take_events()
        assert events == [self.translated(event) for event in self.theirs.take_events()]
        self.num_evicted += sum(isinstance(event, Removed) for event in events)
        for request_id in self.running:
            assert self.ours.block_ids(request_id) == (*self.theirs.get_block_ids(request_id)[0],)
        assert self.ours.num_free_blocks == self.theirs.block_pool.get_num_free_blocks()
        self.ours.check_integrity()

    def translated(self, event: Any) -> Event:
        match type(event).__name__:
            case "BlockStored":
                parent = event.parent_block_hash
                return Stored(
                    tuple(self.our_key[block_hash] for block_hash in event.block_hashes),
                    None if parent is None else self.our_key[parent],
                )
            case "BlockRemoved":
                (block_hash,) = event.block_hashes
                return Removed(self.our_key[block_hash])
            case "AllBlocksCleared":
                return Cleared()
        raise AssertionError(event)


def run_stream(pair: Pair, random: Random) -> None:
    prompts: list[list[int]] = [[]]
    for request_id in map(str, range(REQUESTS_PER_STREAM)):
        shared = random.choice(prompts)
        prompt = shared[: random.randint(0, len(shared))]
        prompt = prompt + random.choices((0, 1), k=random.randint(1, 5 * pair.block_size))
        prompts.append(prompt)
        pair.start(request_id, prompt, salt=random.choice(("", "", "tenant")))
        pair.check()
        while pair.running and random.random() < 0.6:
            running = random.choice([*pair.running])
            if random.random() < 0.4:
                pair.decode(running, random.choices((0, 1), k=random.randint(1, 4)))
                if running in pair.running:
                    prompts.append([*pair.running[running].all_token_ids])
            else:
                pair.free(running)
            pair.check()
        if random.random() < 0.05:
            pair.reset()
            pair.check()


@pytest.mark.parametrize("draft", [False, True], ids=["plain", "draft"])
def test_equals_vllm_on_random_streams(vllm: ModuleType, draft: bool) -> None:
    num_hit_tokens = num_evicted = num_refused = 0
    for seed in range(NUM_STREAMS // 2):
        random = Random(f"{seed} {draft}")
        pair = Pair(vllm, random, draft=draft)
        try:
            run_stream(pair, random)
        except AssertionError as difference:
            difference.add_note(f"in the stream of seed {seed}")
            raise
        num_hit_tokens += pair.num_hit_tokens
        num_evicted += pair.num_evicted
        num_refused += pair.num_refused
    # the streams do reach what they are meant to compare
    assert min(num_hit_tokens, num_evicted, num_refused) > NUM_STREAMS // 2
