"""Every block that was ever sent or sampled: what an infinite cache would hold.

The unit bound of a call asks how long its prefix was there before, whoever sent it. A block is kept
as 8 bytes of its hash (two blocks of a billion collide with a chance of 3%), sorted, with a small
set of the newest in front.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from duramen.layout.blocks import BlockHash

HASH_BYTES = 16
_MERGE_AT = 16_384


class SeenBlocks:
    """Takes and matches concatenated block hashes (layout.blocks), HASH_BYTES each."""

    def __init__(self) -> None:
        self._sorted: NDArray[np.uint64] = np.empty(0, np.uint64)
        self._recent: set[int] = set()

    def __len__(self) -> int:
        return len(self._sorted) + len(self._recent)

    @property
    def num_bytes(self) -> int:
        return self._sorted.nbytes + 96 * len(self._recent)  # an int and its place in a set

    def add(self, hashes: bytes) -> None:
        keys = _keys(hashes)
        self._recent.update(keys[~self._is_sorted(keys)].tolist())
        if len(self._recent) > _MERGE_AT:
            recent = np.fromiter(self._recent, np.uint64, len(self._recent))
            self._sorted = np.union1d(self._sorted, recent)
            self._recent.clear()

    def match(self, hashes: bytes) -> int:
        """How many leading blocks were there before."""
        keys = _keys(hashes)
        is_sorted = self._is_sorted(keys)
        num_blocks = 0
        for key, known in zip(keys.tolist(), is_sorted.tolist(), strict=True):
            if not known and key not in self._recent:
                break
            num_blocks += 1
        return num_blocks

    def _is_sorted(self, keys: NDArray[np.uint64]) -> NDArray[np.bool_]:
        if not len(self._sorted):
            return np.zeros(len(keys), np.bool_)
        places = np.searchsorted(self._sorted, keys)
        places[places == len(self._sorted)] = 0
        found: NDArray[np.bool_] = self._sorted[places] == keys
        return found


def split_hashes(hashes: bytes) -> Iterator[BlockHash]:
    for start in range(0, len(hashes), HASH_BYTES):
        yield BlockHash(hashes[start : start + HASH_BYTES])


def _keys(hashes: bytes) -> NDArray[np.uint64]:
    return np.frombuffer(hashes, "<u8")[::2].astype(np.uint64)
