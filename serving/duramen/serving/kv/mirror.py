"""What is resident in the engine's prefix cache, rebuilt from its event stream.

The engine names blocks by hashes of its own. The mirror hashes the same tokens again, as
layout.blocks does, so residency can be asked for by token ids. A block that two requests computed
at once is stored twice and removed twice; it is resident while at least one copy is.

A mirror that may have missed an event says "not known" (None) until the cache is cleared, never a
number that may be wrong.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Protocol

from duramen.layout.blocks import BlockHash, block_hashes


class BlockWatcher(Protocol):
    """Hears of each copy of a block that comes and goes."""

    def stored(self, block: BlockHash, parent: BlockHash | None) -> None:
        """`parent`: the block before it, None if there is none or it is not known."""

    def removed(self, block: BlockHash) -> None: ...

    def cleared(self) -> None:
        """Nothing is resident, or what is resident is not known any more."""


class KvMirror:
    """Resident blocks of one engine. `sequence`: event batches that were applied so far;
    `num_removed`: blocks that were evicted so far."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.sequence = 0
        self.num_removed = 0
        self.broken: str | None = None  # why predictions are None
        self._hash_of: dict[Hashable, BlockHash] = {}  # the engine's hash -> ours
        self._num_copies: Counter[BlockHash] = Counter()
        self._num_named: Counter[Hashable] = Counter()  # copies under one of the engine's hashes
        self._watcher: BlockWatcher | None = None

    def watch(self, watcher: BlockWatcher) -> None:
        """Tell it what is resident now, and from now on what changes."""
        watcher.cleared()
        for own_hash in self._num_copies.elements():
            watcher.stored(own_hash, None)
        self._watcher = watcher

    @property
    def num_resident_blocks(self) -> int:
        return len(self._num_copies)

    def store(
        self,
        engine_hashes: Sequence[Hashable],
        parent: Hashable | None,
        token_ids: Sequence[int],
        salt: str = "",
    ) -> None:
        """Add consecutive full blocks, `block_size` of `token_ids` for each hash.

        `parent` is the engine's hash of the block before; `salt` counts only where there is none.
        """
        if self.broken:
            return
        if len(token_ids) != len(engine_hashes) * self.block_size:
            self.break_off("the engine caches blocks in groups that the mirror does not model")
            return
        if parent is not None and parent not in self._hash_of:
            self.break_off("a block was stored behind one that the mirror never saw")
            return
        before = None if parent is None else self._hash_of[parent]
        if before is None:
            own_hashes = block_hashes(token_ids, self.block_size, salt)
        else:
            own_hashes = block_hashes(token_ids, self.block_size, parent=before)
        for engine_hash, own_hash in zip(engine_hashes, own_hashes, strict=True):
            self._hash_of[engine_hash] = own_hash
            self._num_copies[own_hash] += 1
            self._num_named[engine_hash] += 1
            if self._watcher is not None:
                self._watcher.stored(own_hash, before)
            before = own_hash

    def remove(self, engine_hashes: Sequence[Hashable]) -> None:
        """Take one copy of each block away."""
        if self.broken:
            return
        for engine_hash in engine_hashes:
            own_hash = self._hash_of.get(engine_hash)
            if own_hash is None:
                self.break_off("a block was removed that the mirror never saw")
                return
            self.num_removed += 1
            if self._watcher is not None:
                self._watcher.removed(own_hash)
            self._num_copies[own_hash] -= 1
            if self._num_copies[own_hash] == 0:
                del self._num_copies[own_hash]
            self._num_named[engine_hash] -= 1
            if self._num_named[engine_hash] == 0:
                del self._num_named[engine_hash]
                del self._hash_of[engine_hash]

    def clear(self) -> None:
        """The cache is empty: whatever was missed before no longer matters."""
        self._empty()
        self.broken = None

    def break_off(self, reason: str) -> None:
        """Predict nothing until the next clear()."""
        self._empty()
        self.broken = self.broken or reason

    def resident(self, hashes: Sequence[BlockHash], num_tokens: int) -> int | None:
        """Leading tokens that the engine would find resident now of a prompt of `num_tokens` whose
        full blocks have these hashes; None if that is not known."""
        if self.broken:
            return None
        num_blocks = 0
        for own_hash in hashes[: (num_tokens - 1) // self.block_size]:
            if own_hash not in self._num_copies:
                break
            num_blocks += 1
        return num_blocks * self.block_size

    def has(self, own_hash: BlockHash) -> bool:
        return own_hash in self._num_copies

    def holds_all(self, token_ids: Sequence[int], salt: str = "") -> bool:
        """Whether every full block of `token_ids` is known to be resident."""
        own_hashes = block_hashes(token_ids, self.block_size, salt)
        return not self.broken and all(own_hash in self._num_copies for own_hash in own_hashes)

    def _empty(self) -> None:
        self._hash_of.clear()
        self._num_copies.clear()
        self._num_named.clear()
        if self._watcher is not None:
            self._watcher.cleared()
