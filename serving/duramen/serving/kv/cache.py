"""vLLM's block cache, exact: the same hits, the same block ids, the same evictions in order.

The life of a request is match -> allocate -> append -> ... -> free. It hits the leading run of its
full blocks that are resident; the last token of a prompt is always computed. Its blocks are freed
tail first, so that a prefix outlives what was built on it.

Covers one full-attention group (vLLM 0.32: v1/core/kv_cache_manager.py,
single_type_kv_cache_manager.py). Not covered: the lookahead slots of speculative decoding, chunks
of a prefill that interleave with other requests, KV connectors.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import islice

from duramen.layout.errors import LayoutError
from duramen.serving.kv.pool import BlockPool, Event, Key

_SERVED = object()  # the request id of `serve`


@dataclass(slots=True)
class _Running:
    """The blocks that a request holds, in order; the first `num_stored` of them have keys."""

    blocks: list[int]
    num_stored: int


class BlockCache:
    """A cache of `num_blocks` blocks (vLLM's num_gpu_blocks, null block included), None = infinite.

    `keys` are the request's full blocks in order, at least num_tokens // block_size of them;
    further ones are ignored. `unit`, a multiple of `block_size` and by default equal to it, is the
    granularity of a hit. A draft model loses the last matched block. Events are kept only if
    `record_events`, and then until `take_events`.

    Methods raise LayoutError on sizes and request ids that make no sense.
    """

    def __init__(
        self,
        num_blocks: int | None,
        block_size: int,
        *,
        unit: int | None = None,
        draft: bool = False,
        record_events: bool = False,
    ) -> None:
        self.block_size = block_size
        self.unit = block_size if unit is None else unit
        self.draft = draft
        if block_size < 1 or self.unit < 1 or self.unit % block_size:
            raise LayoutError(f"match unit {self.unit} is no multiple of block size {block_size}")
        self._pool = BlockPool(num_blocks, record_events=record_events)
        self._running: dict[Hashable, _Running] = {}

    def match(self, keys: Sequence[Key], num_tokens: int) -> int:
        """Leading tokens of a `num_tokens` prompt that are resident now. Nothing changes."""
        return len(self._hits(keys, num_tokens)) * self.block_size

    def allocate(self, request_id: Hashable, keys: Sequence[Key], num_tokens: int) -> int | None:
        """Start a request: hold its resident prefix, take blocks for the rest, store the full ones.

        Returns the hit tokens, or None when the free blocks do not suffice; then nothing changed.
        """
        if request_id in self._running:
            raise LayoutError(f"request {request_id!r} is already running")
        hits = self._hits(keys, num_tokens)
        num_hits = len(hits)
        if not self._pool.can_take(self._num_blocks(num_tokens) - num_hits, beside=hits):
            return None
        self._pool.hold(hits)
        self._running[request_id] = request = _Running(hits, num_hits)
        self._extend(request, keys, num_tokens)
        return num_hits * self.block_size

    def append(self, request_id: Hashable, keys: Sequence[Key], num_tokens: int) -> bool:
        """Grow a running request to `num_tokens` computed tokens; store what became full.

        The newest sampled token is not computed yet and does not count. False when the free blocks
        do not suffice; then nothing changed, and vLLM would preempt: `free`, `allocate` later.
        """
        self._check(keys, num_tokens)
        request = self._request(request_id)
        if not self._pool.can_take(self._num_blocks(num_tokens) - len(request.blocks)):
            return False
        self._extend(request, keys, num_tokens)
        return True

    def free(self, request_id: Hashable) -> None:
        """End a request. What it stored stays resident until its blocks are taken."""
        blocks = self._request(request_id).blocks
        del self._running[request_id]
        self._pool.release(reversed(blocks))

    def serve(
        self, keys: Sequence[Key], num_tokens: int, num_decoded_tokens: int = 0
    ) -> int | None:
        """A whole request at once, none beside it: allocate the prompt, append, free.

        `num_decoded_tokens` are the outputs that were computed: all but the last one. Returns the
        hit tokens, or None when the pool cannot hold the request; then nothing changed.
        """
        if self._running:
            raise LayoutError("a request is running: serve is for one request after another")
        num_computed = num_tokens + num_decoded_tokens
        self._check(keys, num_computed)
        if not self._pool.can_take(self._num_blocks(num_computed)):
            return None
        num_hit_tokens = self.allocate(_SERVED, keys, num_tokens)
        if num_decoded_tokens:
            self.append(_SERVED, keys, num_computed)
        self.free(_SERVED)
        return num_hit_tokens

    def reset(self) -> bool:
        """Forget every key. False, and no change, while a request runs."""
        if self._running:
            return False
        self._pool.forget()
        return True

    def take_events(self) -> list[Event]:
        """What was stored and removed since the last call, in order."""
        return self._pool.take_events()

    def block_ids(self, request_id: Hashable) -> tuple[int, ...]:
        """The blocks of a running request, in order."""
        return tuple(self._request(request_id).blocks)

    @property
    def num_free_blocks(self) -> int:
        """Blocks that no request holds; an infinite cache counts only those without a key."""
        return self._pool.num_free

    def check_integrity(self) -> None:
        """Assert that every block is either held or free, and that keys and blocks agree."""
        self._pool.check_integrity(
            block for request in self._running.values() for block in request.blocks
        )

    def _hits(self, keys: Sequence[Key], num_tokens: int) -> list[int]:
        self._check(keys, num_tokens)
        num_eligible = (num_tokens - 1) // self.block_size  # the last token is computed
        hits = self._pool.leading_run(islice(keys, num_eligible))
        num_hits = max(len(hits) - self.draft, 0)
        del hits[num_hits - num_hits % (self.unit // self.block_size) :]
        return hits

    def _extend(self, request: _Running, keys: Sequence[Key], num_tokens: int) -> None:
        request.blocks += self._pool.take(self._num_blocks(num_tokens) - len(request.blocks))
        start, end = request.num_stored, num_tokens // self.block_size
        if start < end:
            parent = keys[start - 1] if start else None
            self._pool.store(request.blocks[start:end], keys[start:end], parent)
            request.num_stored = end

    def _num_blocks(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def _check(self, keys: Sequence[Key], num_tokens: int) -> None:
        if num_tokens < 1 or len(keys) < num_tokens // self.block_size:
            raise LayoutError(f"{len(keys)} block keys do not cover {num_tokens} tokens")

    def _request(self, request_id: Hashable) -> _Running:
        request = self._running.get(request_id)
        if request is None:
            raise LayoutError(f"request {request_id!r} is not running")
        return request
