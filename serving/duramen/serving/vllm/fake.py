"""A deterministic engine without a model: sampled ids are a hash of the prompt, the cache is exact.

For tests and dry runs. The block cache is the one that models vLLM's (serving.kv.cache), and its
events go through a mirror as the real ones do.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from hashlib import blake2b
from itertools import count, pairwise

from duramen.layout.blocks import BlockHash, block_hashes
from duramen.layout.errors import RequestError
from duramen.serving.kv.cache import BlockCache
from duramen.serving.kv.mirror import KvMirror
from duramen.serving.kv.pool import Cleared, Removed
from duramen.serving.vllm.protocol import Completion, EngineInfo, OnTokens, Sampling, Tool
from duramen.serving.vllm.timings import EngineTimes

Decode = Callable[[Sequence[int]], str]

EOS = 2
FIRST_PLAIN_ID = 100  # ids below are left to control tokens
NUM_IDS = 1000
EOS_EVERY = 64  # one sampled token in so many ends the answer


class FakeEngine:
    """Implements protocol.Engine. `decode` turns sampled ids into the message's text."""

    def __init__(
        self,
        decode: Decode,
        *,
        num_kv_blocks: int = 4096,
        block_size: int = 16,
        max_model_len: int = 8192,
    ) -> None:
        self.info = EngineInfo(
            name="fake",
            version="1",
            model="fake",
            max_model_len=max_model_len,
            unit_tokens=block_size,
            num_kv_blocks=num_kv_blocks,
            eos_token_ids=(EOS,),
            reports_cached=True,
        )
        self._decode = decode
        self._max_tokens = min(max_model_len, (num_kv_blocks - 1) * block_size)
        self._request_ids = count()
        self.mirror: KvMirror | None = KvMirror(block_size)
        self._cache = BlockCache(num_kv_blocks, block_size, record_events=True)

    async def complete(
        self,
        token_ids: Sequence[int],
        sampling: Sampling,
        *,
        tools: Sequence[Tool] = (),
        salt: str = "",
        on_tokens: OnTokens | None = None,
    ) -> Completion:
        room = self._max_tokens - len(token_ids)
        if room < 1 or not token_ids:
            raise RequestError(f"a prompt of {len(token_ids)} tokens leaves no room", status=400)
        sampled, by_eos = sample(token_ids, sampling, min(sampling.max_tokens, room))
        started_s = time.perf_counter()
        cached_tokens = await self._run(token_ids, sampled, salt)
        arrivals_s = []
        for sampled_id in sampled:
            arrivals_s.append(time.perf_counter() - started_s)
            if on_tokens:
                on_tokens((sampled_id,), "" if sampled_id == EOS else self._decode([sampled_id]))
        shown = sampled[:-1] if by_eos else sampled
        return Completion(
            token_ids=tuple(sampled),
            message={"role": "assistant", "content": self._decode(shown) or None},
            finish_reason="stop" if by_eos else "length",
            stop_reason=None,
            prompt_tokens=len(token_ids),
            cached_tokens=cached_tokens,
            ttft_s=arrivals_s[0],
            itl_s=tuple(b - a for a, b in pairwise(arrivals_s)),
            elapsed_s=time.perf_counter() - started_s,
        )

    async def settle(self, token_ids: Sequence[int], salt: str = "") -> bool:
        return self.mirror is not None and self.mirror.holds_all(token_ids, salt)

    async def reset_prefix_cache(self) -> bool:
        done = self._cache.reset()
        self._publish([], [], "")
        return done

    async def times(self) -> EngineTimes | None:
        return None

    async def close(self) -> None:
        pass

    async def _run(self, prompt: Sequence[int], sampled: Sequence[int], salt: str) -> int:
        """Hold the blocks as a running request does; returns the tokens that were cached."""
        request_id = next(self._request_ids)
        token_ids = [*prompt, *sampled[:-1]]  # the last one is sampled, never computed
        keys = list(block_hashes(token_ids, self.info.unit_tokens, salt))
        while (cached_tokens := self._cache.allocate(request_id, keys, len(prompt))) is None:
            await asyncio.sleep(0)  # until a running request frees its blocks
        for num_tokens in range(len(prompt) + 1, len(token_ids) + 1):
            while not self._cache.append(request_id, keys, num_tokens):
                self._cache.free(request_id)  # preempted: its blocks may be taken meanwhile
                await asyncio.sleep(0)
                while self._cache.allocate(request_id, keys, num_tokens) is None:
                    await asyncio.sleep(0)
            self._publish(token_ids, keys, salt)
            await asyncio.sleep(0)
        self._cache.free(request_id)
        self._publish(token_ids, keys, salt)
        return cached_tokens

    def _publish(self, token_ids: Sequence[int], keys: Sequence[BlockHash], salt: str) -> None:
        """Bring the mirror up to date; all blocks stored since the last time are of `keys`."""
        assert self.mirror is not None
        for event in self._cache.take_events():
            if isinstance(event, Cleared):
                self.mirror.clear()
            elif isinstance(event, Removed):
                self.mirror.remove([event.key])
            else:
                start = keys.index(event.parent) + 1 if event.parent else 0
                end = start + len(event.keys)
                tokens = token_ids[start * self.info.unit_tokens : end * self.info.unit_tokens]
                self.mirror.store(event.keys, event.parent, tokens, salt)
        self.mirror.sequence += 1


def sample(prompt: Sequence[int], sampling: Sampling, max_tokens: int) -> tuple[list[int], bool]:
    """Ids that depend on prompt, temperature and seed alone; whether the last one is the EOS."""
    seed = sampling.seed if sampling.temperature else None
    state = blake2b(repr((list(prompt), sampling.temperature, seed)).encode()).digest()
    sampled: list[int] = []
    while len(sampled) < max_tokens:
        state = blake2b(state).digest()
        draw = int.from_bytes(state[:8], "big")
        if draw % EOS_EVERY == 0 and len(sampled) >= sampling.min_tokens:
            return [*sampled, EOS], True
        sampled.append(FIRST_PLAIN_ID + draw % NUM_IDS)
    return sampled, False
