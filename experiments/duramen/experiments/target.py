"""Where a replay sends its prompts: a live engine, or the cache model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from duramen.experiments.trajectory import Message, Tool
from duramen.layout.blocks import block_hashes
from duramen.serving.kv.cache import BlockCache
from duramen.serving.vllm.protocol import Engine, Sampling

RecordedReply = Callable[[], tuple[Sequence[int], Message]]


@dataclass(frozen=True)
class Outcome:
    """`cached_tokens` is what the engine reports (None: it does not), `predicted_tokens` what the
    mirror, or the model, expected. Times are None where nothing ran."""

    token_ids: Sequence[int]
    message: Message
    predicted_tokens: int | None
    cached_tokens: int | None
    mismatch: str | None = None
    ttft_s: float | None = None
    itl_s: Sequence[float] = ()


class Target(Protocol):
    """`samples_the_record`: its reply is the recorded one."""

    name: str
    unit_tokens: int
    max_model_len: int | None
    samples_the_record: bool

    async def run(
        self, token_ids: Sequence[int], tools: Sequence[Tool], recorded: RecordedReply
    ) -> Outcome:
        """One call. `recorded` gives the reply on the record."""

    async def begin_layout(self, name: str) -> None:
        """Start with nothing cached."""


class ModelTarget:
    """The cache model. The engine is taken to have sampled the recorded reply, token for token."""

    name = "simulate"
    samples_the_record = True

    def __init__(self, num_kv_tokens: int | None, unit: int, max_model_len: int | None) -> None:
        self.unit_tokens = unit
        limits = [limit for limit in (max_model_len, num_kv_tokens) if limit is not None]
        self.max_model_len = min(limits, default=None)
        # one block more than asked for: vLLM never uses its null block
        self._num_blocks = None if num_kv_tokens is None else num_kv_tokens // unit + 1
        self._cache = BlockCache(self._num_blocks, unit)

    async def begin_layout(self, name: str) -> None:
        self._cache = BlockCache(self._num_blocks, self.unit_tokens)

    async def run(
        self, token_ids: Sequence[int], tools: Sequence[Tool], recorded: RecordedReply
    ) -> Outcome:
        reply_ids, message = recorded()
        if self.max_model_len is not None:
            reply_ids = reply_ids[: self.max_model_len - len(token_ids)]
        num_decoded = max(len(reply_ids) - 1, 0)  # the last sampled token is never computed
        computed = [*token_ids, *reply_ids[:num_decoded]]
        keys = list(block_hashes(computed, self.unit_tokens))
        hit_tokens = self._cache.serve(keys, len(token_ids), num_decoded)
        assert hit_tokens is not None, "the pool holds what the context does"
        return Outcome(reply_ids, message, predicted_tokens=hit_tokens, cached_tokens=hit_tokens)


class LiveTarget:
    """A running engine. `serial`: no two calls at once, so that predictions are exact.

    With a `salt` each layout gets one of its own, for servers that are not ours to reset.
    """

    name = "live"
    samples_the_record = False

    def __init__(self, engine: Engine, sampling: Sampling, *, serial: bool, salt: str) -> None:
        self.unit_tokens = engine.info.unit_tokens
        self.max_model_len: int | None = engine.info.max_model_len
        self._engine = engine
        self._sampling = sampling
        self._serial = serial
        self._salt_of_run = salt
        self._salt = ""
        self._num_running = 0
        self._num_started = 0

    async def begin_layout(self, name: str) -> None:
        if self._salt_of_run:
            self._salt = f"{self._salt_of_run}-{name}"
        elif not await self._engine.reset_prefix_cache():
            raise AssertionError("a child of ours can always be reset between layouts")
        self._num_started = 0

    async def run(
        self, token_ids: Sequence[int], tools: Sequence[Tool], recorded: RecordedReply
    ) -> Outcome:
        mirror = self._engine.mirror
        predicted = mirror.predicted(token_ids, self._salt) if mirror else None
        removed_before = mirror.num_removed if mirror else 0
        shared = self._num_running > 0
        self._num_running += 1
        self._num_started += 1
        started_before = self._num_started
        try:
            done = await self._engine.complete(
                token_ids, self._sampling, tools=tools, salt=self._salt
            )
        finally:
            self._num_running -= 1
        shared = shared or self._num_started > started_before
        if self._serial:
            await self._engine.settle([*token_ids, *done.token_ids[:-1]], self._salt)
        mismatch = None
        if predicted is not None and done.cached_tokens is not None:
            evicted = mirror is not None and mirror.num_removed > removed_before
            mismatch = classify(predicted, done.cached_tokens, shared=shared, evicted=evicted)
        return Outcome(
            done.token_ids,
            done.message,
            predicted,
            done.cached_tokens,
            mismatch,
            done.ttft_s,
            done.itl_s,
        )


def classify(predicted: int, delivered: int, *, shared: bool, evicted: bool) -> str | None:
    """Why a prediction made when the call was sent was not what the engine found; None if it was.

    in_flight_sharing: other calls that ran meanwhile stored more of the prefix. evicted: blocks
    left between the sending and the scheduling. event_lag: the engine had stored more than the
    mirror had heard of. other: none of these can be the cause.
    """
    if predicted == delivered:
        return None
    if delivered > predicted:
        return "in_flight_sharing" if shared else "event_lag"
    return "evicted" if evicted else "other"
