"""Chained block keys of prompts that mostly repeat, without hashing the repeated part again."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from duramen.layout.blocks import ROOT, BlockHash, block_hashes

Ids = npt.NDArray[np.uint32]


class KeyChain:
    """The keys of each session's newest token sequence, in blocks of `unit` tokens."""

    def __init__(self, unit: int) -> None:
        self.unit = unit
        self._last: dict[str, tuple[Ids, list[BlockHash]]] = {}

    def keys(self, session_id: str, token_ids: Ids) -> Sequence[BlockHash]:
        """The key of each full block of `token_ids`, as duramen.layout.blocks has it."""
        before, known = self._last.get(session_id, (token_ids[:0], []))
        num_same = common_ids(before, token_ids) // self.unit
        keys = known[:num_same]
        rest = token_ids[num_same * self.unit :].tolist()
        keys += block_hashes(rest, self.unit, parent=keys[-1] if keys else ROOT)
        self._last[session_id] = (token_ids, keys)
        return keys

    def forget(self, session_id: str) -> None:
        self._last.pop(session_id, None)


def common_ids(a: Ids, b: Ids) -> int:
    """Length of the longest common prefix."""
    length = min(len(a), len(b))
    differs = a[:length] != b[:length]
    return int(differs.argmax()) if differs.any() else length
