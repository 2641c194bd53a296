"""Blocks that were there before, against a plain set of their hashes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.serving.kv import seen
from duramen.serving.kv.seen import SeenBlocks, split_hashes

blocks = st.lists(st.integers(0, 40), max_size=8)
steps = st.lists(st.tuples(st.sampled_from(["add", "match"]), blocks), max_size=40)


def hashes(numbers: list[int]) -> bytes:
    """Only the first 8 bytes of a hash tell blocks apart."""
    return b"".join(n.to_bytes(8, "little") + bytes(8) for n in numbers)


class Plain:
    """The same, slow and obvious."""

    def __init__(self) -> None:
        self.known: set[int] = set()

    def match(self, numbers: list[int]) -> int:
        num_blocks = 0
        while num_blocks < len(numbers) and numbers[num_blocks] in self.known:
            num_blocks += 1
        return num_blocks


@given(steps, st.integers(0, 12))
def test_it_knows_what_a_set_knows(steps: list[tuple[str, list[int]]], merge_at: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seen, "_MERGE_AT", merge_at)
        fast, slow = SeenBlocks(), Plain()
        for step, numbers in steps:
            if step == "add":
                fast.add(hashes(numbers))
                slow.known.update(numbers)
            assert fast.match(hashes(numbers)) == slow.match(numbers)
            assert len(fast) == len(slow.known)


def test_an_empty_one_and_its_ends() -> None:
    fast = SeenBlocks()
    assert fast.match(b"") == fast.match(hashes([1])) == len(fast) == 0
    fast.add(hashes([0, 2**64 - 1]))
    assert fast.match(hashes([2**64 - 1, 0, 5, 0])) == 2
    assert list(split_hashes(hashes([1, 2]))) == [hashes([1]), hashes([2])]
