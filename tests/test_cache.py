"""serving.kv.cache in tiny pools: exact hits, exact block ids, exact eviction order.

Block size 2 throughout; keys are the small integers in the examples, chained by being distinct.
"""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.layout.blocks import block_hashes
from duramen.layout.errors import LayoutError
from duramen.serving.kv.cache import BlockCache
from duramen.serving.kv.pool import Cleared, Removed, Stored


@pytest.fixture
def cache() -> BlockCache:
    """Four usable blocks, 1 to 4; block 0 is the null block."""
    return BlockCache(5, 2, record_events=True)


def test_a_prompt_hits_its_full_blocks_but_not_its_last_token(cache: BlockCache) -> None:
    assert cache.serve([1, 2], 5) == 0
    assert cache.match([1, 2], 4) == 2  # the last token is computed, and with it its block
    assert cache.match([1, 2], 5) == 4
    assert cache.match([1, 2, 3], 6) == 4
    assert cache.match([1, 9], 5) == 2
    assert cache.match([9, 2], 5) == 0
    assert cache.match([], 1) == 0


def test_tails_are_evicted_before_the_prefix_they_stand_on(cache: BlockCache) -> None:
    cache.serve([1, 2, 3], 6)  # blocks 1 2 3; freed 3 2 1, behind the unused block 4
    cache.serve([7], 2)  # takes block 4
    assert cache.take_events() == [Stored((1, 2, 3), None), Stored((7,), None)]
    cache.serve([8, 9], 4)
    assert cache.take_events() == [Removed(3), Removed(2), Stored((8, 9), None)]
    assert cache.match([1, 2, 3], 7) == 2


def test_a_hit_makes_a_prefix_recent(cache: BlockCache) -> None:
    cache.serve([1, 2], 4)
    cache.serve([7, 8], 4)
    assert cache.serve([1], 3) == 2  # a new block for the third token: evicts 2, the oldest tail
    assert cache.take_events()[2:] == [Removed(2)]
    cache.serve([9, 10], 4)  # that block had no key: it is first in the queue, before 8 and 7
    assert cache.take_events() == [Removed(8), Stored((9, 10), None)]


def test_blocks_are_held_until_every_request_is_done(cache: BlockCache) -> None:
    cache.allocate("a", [1, 2], 4)
    cache.allocate("b", [1], 3)
    assert cache.block_ids("a") == (1, 2)
    assert cache.block_ids("b") == (1, 3)
    assert cache.num_free_blocks == 1
    cache.free("a")
    assert cache.num_free_blocks == 2
    cache.free("b")
    assert cache.num_free_blocks == 4
    cache.check_integrity()


def test_what_does_not_fit_changes_nothing(cache: BlockCache) -> None:
    cache.serve([1, 2], 4)
    cache.allocate("a", [7, 8], 4)  # blocks 3 and 4
    cache.take_events()
    assert cache.allocate("b", [1, 2, 3], 6) is None  # two hits, but none free for the third
    assert cache.append("a", [7, 8, 9, 10, 11], 10) is False
    assert cache.take_events() == []
    assert cache.num_free_blocks == 2
    assert cache.block_ids("a") == (3, 4)
    cache.free("a")
    assert cache.serve([1, 2, 3, 4, 5], 10) is None
    assert cache.serve([1, 2, 3, 4, 5], 8, num_decoded_tokens=2) is None
    assert cache.take_events() == []
    assert cache.allocate("b", [1, 2, 3], 6) == 4
    cache.check_integrity()


def test_decoding_stores_blocks_when_they_become_full(cache: BlockCache) -> None:
    cache.allocate("a", [1], 3)
    assert cache.append("a", [1, 2], 4)
    assert cache.append("a", [1, 2], 5)
    assert cache.take_events() == [Stored((1,), None), Stored((2,), 1)]
    assert cache.block_ids("a") == (1, 2, 3)
    assert cache.append("a", [1, 2, 3, 4], 8)
    assert cache.take_events() == [Stored((3, 4), 2)]


def test_equal_blocks_are_kept_twice(cache: BlockCache) -> None:
    cache.serve([1, 2], 4)
    assert cache.serve([1, 2], 4) == 2  # block 2 is recomputed: key 2 now has blocks 2 and 3
    assert cache.take_events() == [Stored((1, 2), None), Stored((2,), 1)]
    cache.serve([7, 8], 4)  # takes block 4, then block 2, the older one
    assert cache.take_events() == [Removed(2), Stored((7, 8), None)]
    assert cache.match([1, 2], 5) == 4
    cache.check_integrity()


def test_a_draft_model_loses_one_block() -> None:
    cache = BlockCache(9, 2, draft=True)
    assert cache.serve([1, 2, 3], 7) == 0
    assert [cache.match([1, 2, 3], num_tokens) for num_tokens in (2, 3, 5, 7)] == [0, 0, 2, 4]


def test_a_hit_is_a_multiple_of_the_match_unit() -> None:
    cache = BlockCache(9, 2, unit=4)
    cache.serve([1, 2, 3], 7)
    assert cache.match([1, 2, 3], 7) == 4
    assert cache.match([1, 2, 3], 4) == 0


def test_reset_forgets_unless_something_runs(cache: BlockCache) -> None:
    cache.allocate("a", [1], 2)
    assert cache.reset() is False
    cache.free("a")
    assert cache.reset() is True
    assert cache.take_events() == [Stored((1,), None), Cleared()]
    assert cache.match([1], 3) == 0
    cache.serve([7, 8, 9, 10], 8)
    assert cache.take_events() == [Stored((7, 8, 9, 10), None)]  # nothing was left to evict


def test_events_are_not_kept_unless_asked_for() -> None:
    cache = BlockCache(5, 2)
    cache.serve([1], 2)
    cache.reset()
    assert cache.take_events() == []


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda cache: BlockCache(1, 2), "1 blocks"),
        (lambda cache: BlockCache(5, 0), "block size 0"),
        (lambda cache: BlockCache(5, 2, unit=3), "match unit 3"),
        (lambda cache: BlockCache(5, 2, unit=0), "match unit 0"),
        (lambda cache: cache.match([], 2), "0 block keys do not cover 2 tokens"),
        (lambda cache: cache.match([], 0), "0 tokens"),
        (lambda cache: cache.allocate("running", [1], 2), "'running' is already running"),
        (lambda cache: cache.append("done", [1], 2), "'done' is not running"),
        (lambda cache: cache.append("running", [1], 4), "1 block keys do not cover 4 tokens"),
        (lambda cache: cache.free("done"), "'done' is not running"),
        (lambda cache: cache.serve([1], 2), "a request is running"),
    ],
)
def test_mistakes_are_named_and_change_nothing(
    cache: BlockCache, mistake: Callable[[BlockCache], object], message: str
) -> None:
    cache.allocate("running", [1], 2)
    with pytest.raises(LayoutError, match=message):
        mistake(cache)
    cache.check_integrity()
    assert cache.num_free_blocks == 3
    assert cache.take_events() == [Stored((1,), None)]


def test_serve_refuses_missing_keys_before_it_starts(cache: BlockCache) -> None:
    with pytest.raises(LayoutError, match="1 block keys do not cover 4 tokens"):
        cache.serve([1], 2, num_decoded_tokens=2)
    assert cache.take_events() == []
    assert cache.serve([1, 2], 2, num_decoded_tokens=2) == 0


requests = st.lists(
    st.tuples(st.lists(st.integers(0, 1), min_size=1, max_size=12), st.integers(0, 4)),
    max_size=20,
)


@given(requests, st.integers(3, 12), st.booleans())
def test_serve_equals_allocate_append_free(
    stream: list[tuple[list[int], int]], num_blocks: int, draft: bool
) -> None:
    whole = BlockCache(num_blocks, 2, draft=draft, record_events=True)
    steps = BlockCache(num_blocks, 2, draft=draft, record_events=True)
    for token_ids, num_decoded in stream:
        keys = [*block_hashes(token_ids + [5] * num_decoded, 2)]
        num_tokens = len(token_ids)
        fits = -(-(num_tokens + num_decoded) // 2) < num_blocks
        expected = None
        if fits:
            expected = steps.allocate("a", keys, num_tokens)
            for num_computed in range(num_tokens + 1, num_tokens + num_decoded + 1):
                assert steps.append("a", keys, num_computed)
            steps.free("a")
        assert whole.serve(keys, num_tokens, num_decoded) == expected
        whole.check_integrity()
        removed = [event for event in whole.take_events() if isinstance(event, Removed)]
        assert removed == [event for event in steps.take_events() if isinstance(event, Removed)]


@given(requests, st.booleans())
def test_infinite_equals_a_pool_that_is_large_enough(
    stream: list[tuple[list[int], int]], draft: bool
) -> None:
    infinite = BlockCache(None, 2, draft=draft, record_events=True)
    large = BlockCache(1000, 2, draft=draft, record_events=True)
    for index, (token_ids, _) in enumerate(stream):
        keys = [*block_hashes(token_ids, 2)]
        assert infinite.allocate(index, keys, len(token_ids)) == large.allocate(
            index, keys, len(token_ids)
        )
        if index % 3:  # every third one keeps running
            infinite.free(index)
            large.free(index)
        infinite.check_integrity()
    assert infinite.take_events() == large.take_events()
    for index in range(0, len(stream), 3):
        infinite.free(index)
    assert infinite.reset() is True
    infinite.check_integrity()
