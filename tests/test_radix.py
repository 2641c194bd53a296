"""serving.kv.radix: matches token by token, evicts whole leaves, against a slow twin."""

from array import array
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.layout.blocks import common_prefix
from duramen.layout.errors import LayoutError
from duramen.serving.kv.radix import RadixCache, TokenIds

prompts = st.lists(st.integers(0, 1), max_size=10)


class SlowTwin:
    """The same tree as a set of paths: a node is the whole prefix up to its end."""

    def __init__(self) -> None:
        self.touched: dict[tuple[int, ...], tuple[int, bool]] = {}  # time, and late in it
        self.clock = 0

    def match(self, token_ids: tuple[int, ...]) -> int:
        self.clock += 1
        num_tokens = max((common_prefix(path, token_ids) for path in self.touched), default=0)
        end = token_ids[:num_tokens]
        if end and end not in self.touched:  # splits an edge: its lower part was touched, too
            below = min((path for path in self.touched if path[:num_tokens] == end), key=len)
            self.touched[below] = (self.clock, False)
        for length in range(1, num_tokens + 1):
            if token_ids[:length] in self.touched or length == num_tokens:
                self.touched[token_ids[:length]] = (self.clock, True)
        return num_tokens

    def insert(self, token_ids: tuple[int, ...]) -> int:
        num_tokens = self.match(token_ids)
        if token_ids:
            self.touched[token_ids] = (self.clock, True)
        return num_tokens

    @property
    def num_tokens(self) -> int:
        return len({path[:length] for path in self.touched for length in range(1, len(path) + 1)})

    def make_room(self, capacity: int, num_tokens: int) -> None:
        while capacity - self.num_tokens < num_tokens:
            leaves = [
                path
                for path in self.touched
                if not any(other != path and other[: len(path)] == path for other in self.touched)
            ]
            del self.touched[min(leaves, key=lambda leaf: self.touched[leaf])]


@given(st.lists(st.tuples(st.booleans(), prompts), max_size=30), st.integers(10, 24))
def test_equals_its_slow_twin(operations: list[tuple[bool, list[int]]], capacity: int) -> None:
    tree, twin = RadixCache(capacity), SlowTwin()
    for only_match, token_ids in operations:
        if only_match:
            assert tree.match(token_ids).num_tokens == twin.match(tuple(token_ids))
        else:
            assert tree.make_room(len(token_ids))
            twin.make_room(capacity, len(token_ids))
            assert tree.insert(token_ids) == twin.insert(tuple(token_ids))
        assert tree.num_tokens == twin.num_tokens <= capacity
        tree.check_integrity()


@given(st.lists(prompts, max_size=20), prompts)
def test_infinite_tree_finds_the_longest_common_prefix(
    inserted: list[list[int]], prompt: list[int]
) -> None:
    tree = RadixCache()
    for token_ids in inserted:
        tree.insert(token_ids)
    expected = max((common_prefix(token_ids, prompt) for token_ids in inserted), default=0)
    assert tree.match(prompt).num_tokens == expected
    tree.check_integrity()


@given(st.lists(prompts, max_size=20), prompts, st.integers(2, 4))
def test_pages_match_whole(inserted: list[list[int]], prompt: list[int], page_size: int) -> None:
    tree = RadixCache(page_size=page_size)
    for token_ids in inserted:
        tree.insert(token_ids)
    lcps = [
        common_prefix(token_ids[: len(token_ids) // page_size * page_size], prompt)
        for token_ids in inserted
    ]
    expected = max(lcps, default=0) // page_size * page_size
    assert tree.match(prompt).num_tokens == expected
    tree.check_integrity()


def test_the_least_recent_leaf_goes_first_and_whole() -> None:
    tree = RadixCache(8)
    tree.insert([1, 2, 3, 4])
    tree.insert([1, 2, 7, 8])  # splits: 1 2 above 3 4 and 7 8
    tree.match([1, 2, 3, 4])
    assert tree.num_tokens == 6
    assert tree.make_room(3)  # one slot is missing; the leaf 7 8 goes
    assert tree.num_tokens == 4
    assert tree.match([1, 2, 7, 8]).num_tokens == 2
    assert tree.match([1, 2, 3, 4]).num_tokens == 4
    assert tree.make_room(8)  # 3 4, then 1 2, which is a leaf by then
    assert tree.num_tokens == 0


def test_a_partial_match_makes_the_whole_edge_recent() -> None:
    tree = RadixCache(6)
    tree.insert([1, 2, 3])
    tree.insert([7, 8])
    tree.match([1, 2])  # splits the edge; its lower part counts as used, too
    assert tree.make_room(2)
    assert tree.match([1, 2, 3]).num_tokens == 3


def test_locked_prefixes_stay() -> None:
    tree = RadixCache(6)
    tree.insert([1, 2, 3])
    tree.insert([7, 8])
    prefix = tree.match([1, 2]).node  # splits off 3, which is not locked
    tree.lock(prefix)
    assert tree.num_locked_tokens == 2
    tree.match([1])  # splits a locked edge: both parts are locked
    tree.check_integrity()
    assert tree.num_locked_tokens == 2
    assert tree.make_room(5) is False
    assert tree.num_tokens == 5
    assert tree.make_room(4)
    assert (tree.match([1, 2, 3]).num_tokens, tree.match([7]).num_tokens) == (2, 0)
    with pytest.raises(LayoutError, match="one request after another"):
        tree.serve([1, 2, 3])
    tree.unlock(prefix)
    assert tree.make_room(6)
    assert (tree.num_tokens, tree.num_locked_tokens) == (0, 0)
    with pytest.raises(LayoutError, match="not locked"):
        tree.unlock(prefix)


def test_serve_computes_the_last_prompt_token_and_not_the_last_output() -> None:
    tree = RadixCache(9)
    assert tree.serve([1, 2, 3], [4, 5]) == 0
    assert tree.num_tokens == 4  # 5 was sampled, never computed
    assert tree.serve([1, 2, 3]) == 2
    assert tree.serve([1, 2, 3, 4, 5]) == 4
    assert tree.serve([1, 2, 3, 4, 5, 6, 7]) == 5
    assert tree.serve([8, 8, 8]) == 0  # evicts the leaf 6 7
    assert tree.match([1, 2, 3, 4, 5, 6, 7]).num_tokens == 5
    assert tree.serve([9] * 10) is None
    assert tree.serve([9] * 8, [9, 9, 9]) is None
    assert tree.match([1, 2, 3, 4, 5]).num_tokens == 5
    tree.check_integrity()


def test_outputs_are_evicted_apart_from_their_prompt() -> None:
    tree = RadixCache(6)
    tree.serve([1, 2, 3], [4, 5, 6])  # resident: 1 2 3, and 4 5 below
    tree.serve([7, 8])  # one slot is missing: 4 5 goes, the prompt stays
    assert tree.match([1, 2, 3, 4, 5]).num_tokens == 3


def test_decoding_does_not_evict_its_own_prompt() -> None:
    tree = RadixCache(5)
    tree.serve([1, 2])
    tree.serve([7, 8], [9, 9, 9, 9])  # the prompt fits beside 1 2, the outputs do not
    assert tree.match([7, 8, 9, 9, 9]).num_tokens == 5
    tree.check_integrity()


@given(st.lists(st.tuples(prompts, prompts), max_size=20), st.integers(4, 24), st.integers(1, 3))
def test_serve_keeps_within_its_capacity(
    stream: list[tuple[list[int], list[int]]], capacity: int, page_size: int
) -> None:
    tree = RadixCache(capacity, page_size)
    for prompt, output in stream:
        num_slots = -(-len(prompt + output[:-1]) // page_size) * page_size
        assert (tree.serve(prompt, output) is None) == (num_slots > capacity)
        tree.check_integrity()
        assert tree.num_tokens <= capacity
        assert tree.num_locked_tokens == 0


@pytest.mark.parametrize(
    "kind",
    [list, tuple, np.array, lambda ids: np.array(ids, np.int32), lambda ids: array("I", ids)],
)
def test_any_sequence_of_ids_is_taken(kind: Callable[[list[int]], TokenIds]) -> None:
    tree = RadixCache()
    tree.insert([5, 6, 7, 8])
    assert tree.match(kind([5, 6, 7, 9])).num_tokens == 3
    assert tree.insert(kind([5, 6, 7, 9])) == 3


def test_the_tree_does_not_follow_changes_to_what_was_inserted() -> None:
    tree, token_ids = RadixCache(), np.array([1, 2, 3], np.uint32)
    tree.insert(token_ids)
    token_ids[:] = 0
    assert tree.match([1, 2, 3]).num_tokens == 3


@pytest.mark.parametrize(("capacity", "page_size"), [(0, 1), (3, 4), (8, 0)])
def test_senseless_sizes_are_refused(capacity: int, page_size: int) -> None:
    with pytest.raises(LayoutError, match=f"{capacity} tokens hold no page of {page_size}"):
        RadixCache(capacity, page_size)
