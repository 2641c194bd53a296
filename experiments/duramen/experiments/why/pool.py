"""What a cache of a given size would hold for each call: one pool for each replica."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from duramen.experiments.study.keys import common_ids
from duramen.experiments.target import num_pool_blocks
from duramen.experiments.trajectory import Sending
from duramen.experiments.why.rendering import NO_IDS, Ids
from duramen.layout.blocks import BlockHash, block_hashes, reusable_tokens
from duramen.serving.kv.cache import BlockCache
from duramen.serving.kv.pool import Removed


class Served(NamedTuple):
    """`predicted`: tokens that hit, None where the pool cannot hold the call. `num_removed`: blocks
    that were evicted so far, this call's own evictions left out."""

    predicted: int | None
    num_removed: int


class _Cache(Protocol):
    num_removed: int

    def serve(self, keys: Sequence[BlockHash], num_tokens: int, num_computed: int) -> int | None:
        """As BlockCache.serve, but `num_computed` counts the prompt, too."""


@dataclass
class Endless:
    """What BlockCache says where nothing is evicted: a chained key is there only where all before
    it are, so the hit is found by halving."""

    unit_tokens: int
    draft: bool = False
    num_removed: int = 0
    _keys: set[BlockHash] = field(default_factory=set)

    def serve(self, keys: Sequence[BlockHash], num_tokens: int, num_computed: int) -> int:
        known, unknown = 0, num_computed // self.unit_tokens + 1
        while unknown - known > 1:
            middle = (known + unknown) // 2
            if keys[middle - 1] in self._keys:
                known = middle
            else:
                unknown = middle
        self._keys.update(keys[known : num_computed // self.unit_tokens])
        lcp = known * self.unit_tokens
        return reusable_tokens(lcp, num_tokens, self.unit_tokens, draft=self.draft)


class _Sized:
    """A pool of `kv_tokens`."""

    def __init__(self, kv_tokens: int, unit_tokens: int, draft: bool) -> None:
        num_blocks = num_pool_blocks(kv_tokens, unit_tokens) + 1  # vLLM never uses its null block
        self._cache = BlockCache(num_blocks, unit_tokens, draft=draft, record_events=True)
        self.num_removed = 0

    def serve(self, keys: Sequence[BlockHash], num_tokens: int, num_computed: int) -> int | None:
        predicted = self._cache.serve(keys, num_tokens, num_computed - num_tokens)
        events = self._cache.take_events()
        self.num_removed += sum(isinstance(event, Removed) for event in events)
        return predicted


@dataclass
class Pools:
    """Serves calls one after another. `kv_tokens` None: nothing is ever evicted."""

    unit_tokens: int
    kv_tokens: int | None = None
    draft: bool = False
    _pools: dict[str | None, _Cache] = field(default_factory=dict)

    def serve(
        self, keys: Sequence[BlockHash], num_tokens: int, num_computed: int, replica: str | None
    ) -> Served:
        """A call whose prompt has `num_tokens`, and which had computed `num_computed` when it
        ended: `keys` are of these."""
        pool = self._pools.get(replica)
        if pool is None:
            pool = self._pools[replica] = self._pool()
        num_removed = pool.num_removed
        return Served(pool.serve(keys, num_tokens, num_computed), num_removed)

    def _pool(self) -> _Cache:
        if self.kv_tokens is None:
            return Endless(self.unit_tokens, self.draft)
        return _Sized(self.kv_tokens, self.unit_tokens, self.draft)


@dataclass
class Keys:
    """The block keys of a session's newest call; the next one's are hashed from where it parts.
    `model`: of calls that name none, until one does."""

    unit_tokens: int
    model: str = ""
    _ids: Ids = field(default_factory=lambda: NO_IDS)
    _keys: list[BlockHash] = field(default_factory=list)
    _salt: str = ""

    def of(self, token_ids: Ids, sending: Sending) -> list[BlockHash]:
        """Of each full block. Another salt or model shares none."""
        self.model = sending.model or self.model
        salt = f"{self.model} {sending.salt or ''}".strip()
        num_same = common_ids(self._ids, token_ids) if salt == self._salt else 0
        keys = self._keys[: num_same // self.unit_tokens]
        rest = token_ids[len(keys) * self.unit_tokens :].tolist()
        if keys:
            keys += block_hashes(rest, self.unit_tokens, parent=keys[-1])
        else:
            keys += block_hashes(rest, self.unit_tokens, salt)
        self._ids, self._keys, self._salt = token_ids, keys, salt
        return keys
