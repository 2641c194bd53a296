"""The blocks behind a BlockCache: who holds them, what they hold, and which is taken next.

A block is held by requests, or free. Free blocks stand in one queue and are taken from its front.
A block that is freed with a key keeps it and goes to the back; being taken again is its eviction.
One that is freed without a key goes to the front. (vLLM 0.32: v1/core/block_pool.py)
"""

from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from duramen.layout.errors import LayoutError

Key = Hashable  # a full block's chained hash, salt included; anything but None

_NULL_BLOCK = 0  # vLLM keeps one block aside; it is never handed out


@dataclass(frozen=True, slots=True)
class Stored:
    """Blocks became full and can be hit from now on. `parent` is the key before the first one."""

    keys: tuple[Key, ...]
    parent: Key | None


@dataclass(frozen=True, slots=True)
class Removed:
    """One block with this key was evicted; another block may still have the same key."""

    key: Key


@dataclass(frozen=True, slots=True)
class Cleared:
    """All keys were forgotten."""


Event = Stored | Removed | Cleared


class BlockPool:
    """`num_blocks` blocks as vLLM counts them: one of them is the null block. None = infinite.

    An infinite pool makes new blocks rather than take one that has a key.
    """

    def __init__(self, num_blocks: int | None, *, record_events: bool) -> None:
        if num_blocks is not None and num_blocks < 2:
            raise LayoutError(f"{num_blocks} blocks: the null block leaves nothing to hand out")
        self._infinite = num_blocks is None
        self._key_of: list[Key | None] = [None] * (num_blocks or 1)  # by block id
        self._num_holders = [0] * (num_blocks or 1)  # by block id
        self._queue = OrderedDict.fromkeys(range(_NULL_BLOCK + 1, num_blocks or 1))
        self._cached: dict[Key, int] = {}  # the block that a key hits: its oldest
        self._twins: dict[Key, list[int]] = {}  # younger blocks with the same key, oldest first
        self._events: list[Event] | None = [] if record_events else None

    @property
    def num_free(self) -> int:
        """Blocks that nobody holds; an infinite pool counts only those without a key."""
        return len(self._queue)

    def leading_run(self, keys: Iterable[Key]) -> list[int]:
        """The resident blocks of `keys`, up to the first key that has none."""
        blocks: list[int] = []
        for block in map(self._cached.get, keys):
            if block is None:
                break
            blocks.append(block)
        return blocks

    def can_take(self, num_blocks: int, beside: Sequence[int] = ()) -> bool:
        """Whether `num_blocks` are free besides the blocks `beside`, which are about to be held."""
        if self._infinite:
            return True
        num_idle = sum([not self._num_holders[block] for block in beside])
        return num_blocks + num_idle <= len(self._queue)

    def hold(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            if not self._num_holders[block]:
                self._queue.pop(block, None)  # an infinite pool queues no block with a key
            self._num_holders[block] += 1

    def take(self, num_blocks: int) -> list[int]:
        """Hold blocks from the front of the queue, evicting what they had. See `can_take`."""
        if self._infinite:
            self._grow(num_blocks - len(self._queue))
        blocks = [self._queue.popitem(last=False)[0] for _ in range(num_blocks)]
        for block in blocks:
            self._num_holders[block] = 1
            if self._key_of[block] is not None:
                self._evict(block)
        return blocks

    def store(self, blocks: Sequence[int], keys: Sequence[Key], parent: Key | None) -> None:
        """Give keys to blocks that became full. A key that is resident gets a twin, as in vLLM."""
        for block, key in zip(blocks, keys, strict=True):
            self._key_of[block] = key
            if self._cached.setdefault(key, block) != block:
                self._twins.setdefault(key, []).append(block)
        if self._events is not None:
            self._events.append(Stored(tuple(keys), parent))

    def release(self, blocks: Iterable[int]) -> None:
        """Let go of blocks; those that nobody else holds are freed in the order given."""
        for block in blocks:
            self._num_holders[block] -= 1
            if self._num_holders[block]:
                continue
            if self._key_of[block] is None:
                self._queue[block] = None
                self._queue.move_to_end(block, last=False)
            elif not self._infinite:
                self._queue[block] = None

    def forget(self) -> None:
        """Take the keys of all blocks, which must be free. The queue keeps its order."""
        self._cached.clear()
        self._twins.clear()
        self._key_of = [None] * len(self._key_of)
        self._queue.update(dict.fromkeys(range(_NULL_BLOCK + 1, len(self._key_of))))
        if self._events is not None:
            self._events.append(Cleared())

    def take_events(self) -> list[Event]:
        """What happened since the last call, in order; nothing if events are not recorded."""
        if self._events is None:
            return []
        events, self._events = self._events, []
        return events

    def check_integrity(self, held: Iterable[int]) -> None:
        """Assert that each block is free or in `held` as often as counted, and keys are right."""
        holders = Counter(held)
        usable = range(_NULL_BLOCK + 1, len(self._key_of))
        assert all(self._num_holders[block] == holders[block] for block in usable)
        resident = [block for block in usable if self._key_of[block] is not None]
        unqueued = set(resident) - holders.keys() if self._infinite else set[int]()
        assert len(holders) + len(self._queue) + len(unqueued) == len(usable)
        assert not holders.keys() & self._queue.keys()
        keyed = [(key, block) for key, block in self._cached.items()]
        keyed += [(key, block) for key, twins in self._twins.items() for block in twins]
        assert sorted(block for _, block in keyed) == resident
        assert all(self._key_of[block] == key for key, block in keyed)

    def _grow(self, num_blocks: int) -> None:
        for block in range(len(self._key_of), len(self._key_of) + num_blocks):
            self._queue[block] = None
            self._key_of.append(None)
            self._num_holders.append(0)

    def _evict(self, block: int) -> None:
        key = self._key_of[block]
        self._key_of[block] = None
        twins = self._twins.get(key)
        if twins is None:
            del self._cached[key]
        else:
            if self._cached[key] == block:
                self._cached[key] = twins.pop(0)
            else:
                twins.remove(block)
            if not twins:
                del self._twins[key]
        if self._events is not None:
            self._events.append(Removed(key))
