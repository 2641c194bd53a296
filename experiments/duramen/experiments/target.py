"""Where a replay sends its prompts: a live engine, or the cache model."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from duramen.experiments.trajectory import Message, Tool
from duramen.layout.blocks import BlockHash, block_hashes
from duramen.layout.errors import EngineError, LayoutError
from duramen.serving.kv.attribute import Flight, Flights
from duramen.serving.kv.cache import BlockCache
from duramen.serving.vllm.protocol import Engine, Sampling
from duramen.serving.vllm.timings import EngineTimes

RecordedReply = Callable[[], tuple[Sequence[int], Message]]

WARM_UP_REPLY_TOKENS = 8

LONGER_THAN_CONTEXT = "longer_than_context"
LARGER_THAN_POOL = "larger_than_pool"


@dataclass(frozen=True)
class Outcome:
    """`cached_tokens` is what the engine reports (None: it does not), `predicted_tokens` what the
    mirror expected (None: there is none). Times are None where nothing ran.

    `sent_s`: when it was sent, on the event loop's clock. `late_s`: how long after it was due, None
    in closed loop, where nothing is due.
    """

    token_ids: Sequence[int]
    message: Message
    predicted_tokens: int | None
    cached_tokens: int | None
    mismatch: str | None = None
    ttft_s: float | None = None
    itl_s: Sequence[float] = ()
    sent_s: float | None = None
    late_s: float | None = None


class Target(Protocol):
    """`samples_the_record`: nothing runs, its reply is the recorded one and takes no time.

    `limit_reason`: what a prompt of `max_model_len` or more tokens is too long for. `settling_s`:
    seconds that went into our own checks between serial calls so far.
    """

    name: str
    unit_tokens: int
    max_model_len: int | None
    limit_reason: str
    samples_the_record: bool
    settling_s: float

    async def run(
        self, token_ids: Sequence[int], tools: Sequence[Tool], recorded: RecordedReply
    ) -> Outcome:
        """One call. `recorded` gives the reply on the record."""

    async def begin_layout(self, name: str) -> None:
        """Start with nothing cached."""

    async def warm_up(self, token_ids: Sequence[int]) -> None:
        """One call that no later one reuses anything of; `begin_layout` has to follow."""

    async def times(self) -> EngineTimes | None:
        """What the engine itself measured since it started; None if there is nothing."""


class ModelTarget:
    """The cache model. The engine is taken to have sampled the recorded reply, token for token."""

    name = "simulate"
    samples_the_record = True
    settling_s = 0.0

    def __init__(self, num_kv_tokens: int | None, unit: int, max_model_len: int | None) -> None:
        self.unit_tokens = unit
        self.max_model_len = max_model_len
        self.limit_reason = LONGER_THAN_CONTEXT
        self._num_blocks = None
        if num_kv_tokens is not None:
            num_blocks = num_pool_blocks(num_kv_tokens, unit)
            if max_model_len is None or num_blocks * unit < max_model_len:
                self.max_model_len, self.limit_reason = num_blocks * unit, LARGER_THAN_POOL
            self._num_blocks = num_blocks + 1  # vLLM never uses its null block
        self._cache = BlockCache(self._num_blocks, unit)

    async def begin_layout(self, name: str) -> None:
        self._cache = BlockCache(self._num_blocks, self.unit_tokens)

    async def warm_up(self, token_ids: Sequence[int]) -> None:
        pass

    async def times(self) -> EngineTimes | None:
        return None

    async def run(
        self, token_ids: Sequence[int], tools: Sequence[Tool], recorded: RecordedReply
    ) -> Outcome:
        await asyncio.sleep(0)  # nothing else here waits, and Ctrl-C needs a place to come in
        reply_ids, message = recorded()
        if self.max_model_len is not None:
            reply_ids = reply_ids[: self.max_model_len - len(token_ids)]
        num_decoded = max(len(reply_ids) - 1, 0)  # the last sampled token is never computed
        computed = [*token_ids, *reply_ids[:num_decoded]]
        keys = list(block_hashes(computed, self.unit_tokens))
        hit_tokens = self._cache.serve(keys, len(token_ids), num_decoded)
        assert hit_tokens is not None, "the pool holds what the context does"
        return Outcome(reply_ids, message, predicted_tokens=None, cached_tokens=hit_tokens)


def num_pool_blocks(num_kv_tokens: int, unit: int) -> int:
    """Whole blocks of a pool. Raises LayoutError if it holds none."""
    if num_kv_tokens < unit:
        raise LayoutError(f"a cache of {num_kv_tokens} tokens holds no unit of {unit}: enlarge it")
    return num_kv_tokens // unit


class LiveTarget:
    """A running engine. `serial`: no two calls at once, so that predictions are exact.

    With a `salt` each run of a layout gets one of its own, for servers that are not ours to reset.
    The seed of `sampling` is that of its first call and counts up, or all calls would draw alike.
    """

    name = "live"
    samples_the_record = False

    def __init__(
        self,
        engine: Engine,
        sampling: Sampling,
        *,
        serial: bool,
        salt: str,
        limit_reason: str = LONGER_THAN_CONTEXT,
    ) -> None:
        self.unit_tokens = engine.info.unit_tokens
        self.limit_reason = limit_reason
        self.settling_s = 0.0
        self.max_model_len: int | None = engine.info.max_model_len
        self._engine = engine
        self._sampling = sampling
        self._serial = serial
        self._salt_of_run = salt
        self._salt = ""
        self._block_tokens = engine.mirror.block_size if engine.mirror else self.unit_tokens
        self._flights = Flights(self._block_tokens)
        self._is_settled = False
        self._num_sent = 0
        self._num_begun = 0

    async def warm_up(self, token_ids: Sequence[int]) -> None:
        sampling = Sampling(min(self._sampling.max_tokens, WARM_UP_REPLY_TOKENS))
        await self._engine.complete(token_ids, sampling, salt=f"{self._salt_of_run}-warm-up")

    async def times(self) -> EngineTimes | None:
        return await self._engine.times()

    async def begin_layout(self, name: str) -> None:
        """Raises EngineError if the engine does not forget."""
        self._num_begun += 1
        if self._salt_of_run:
            self._salt = f"{self._salt_of_run}-{self._num_begun}-{name}"
        elif not await self._engine.reset_prefix_cache():
            raise EngineError("the engine did not empty its cache between two layouts")
        self._flights = Flights(self._block_tokens)
        self._is_settled = True
        self._num_sent = 0

    async def run(
        self, token_ids: Sequence[int], tools: Sequence[Tool], recorded: RecordedReply
    ) -> Outcome:
        flight = self._take_off(token_ids)
        sent_s = asyncio.get_running_loop().time()
        try:
            done = await self._engine.complete(
                token_ids, self._next_sampling(), tools=tools, salt=self._salt
            )
        finally:
            self._flights.leave(flight)
        computed = [*token_ids, *done.token_ids[:-1]]
        self._flights.remember(self._hashes(computed, flight.hashes))
        self._is_settled = self._serial and await self._settle(computed)
        return Outcome(
            done.token_ids,
            done.message,
            flight.predicted,
            done.cached_tokens,
            await self._mismatch(flight, done.cached_tokens),
            done.ttft_s,
            done.itl_s,
            sent_s,
        )

    async def _settle(self, computed: Sequence[int]) -> bool:
        started_s = time.perf_counter()
        is_settled = await self._engine.settle(computed, self._salt)
        if self._serial:  # else other calls ran meanwhile
            self.settling_s += time.perf_counter() - started_s
        return is_settled

    def _next_sampling(self) -> Sampling:
        first = self._sampling.seed
        seed = None if first is None else first + self._num_sent
        self._num_sent += 1
        return replace(self._sampling, seed=seed)

    def _take_off(self, token_ids: Sequence[int]) -> Flight:
        mirror, hashes = self._engine.mirror, self._hashes(token_ids)
        return self._flights.take_off(
            hashes,
            len(token_ids),
            mirror.resident(hashes, len(token_ids)) if mirror else None,
            num_removed=mirror.num_removed if mirror else 0,
            is_settled=self._is_settled,
        )

    def _hashes(
        self, token_ids: Sequence[int], known: Sequence[BlockHash] = ()
    ) -> Sequence[BlockHash]:
        """Of all full blocks, of which the first are `known`; none without a mirror to ask."""
        if self._engine.mirror is None:
            return ()
        if not known:
            return [*block_hashes(token_ids, self._block_tokens, self._salt)]
        rest = token_ids[len(known) * self._block_tokens :]
        return [*known, *block_hashes(rest, self._block_tokens, parent=known[-1])]

    async def _mismatch(self, flight: Flight, delivered: int | None) -> str | None:
        mirror, predicted = self._engine.mirror, flight.predicted
        if mirror is None or predicted is None or delivered is None:
            return None
        if delivered < predicted:
            await self._settle(())  # what was evicted may not have been heard of yet
        return flight.mismatch(delivered, mirror.num_removed)
