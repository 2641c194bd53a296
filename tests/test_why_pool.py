"""What calls find in the cache, against the exact model of vLLM's; and chained keys, against all of
them hashed."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from duramen.experiments.trajectory import Sending
from duramen.experiments.why.pool import Keys, Pools
from duramen.layout.blocks import block_hashes
from duramen.serving.kv.cache import BlockCache

UNIT = 2
CALLS = st.lists(
    st.tuples(st.lists(st.integers(0, 1), min_size=1, max_size=11), st.integers(0, 4)), max_size=9
)


@given(CALLS, st.booleans())
def test_without_a_size_nothing_is_evicted(calls: list[tuple[list[int], int]], draft: bool) -> None:
    pools, twin = Pools(UNIT, draft=draft), BlockCache(None, UNIT, draft=draft)
    for prompt, num_decoded in calls:
        computed = [*prompt, *[1] * num_decoded]
        keys = list(block_hashes(computed, UNIT))
        served = pools.serve(keys, len(prompt), len(computed), None)
        assert served == (twin.serve(keys, len(prompt), num_decoded), 0)


@given(CALLS)
def test_a_pool_of_some_size_is_the_exact_one(calls: list[tuple[list[int], int]]) -> None:
    pools = Pools(UNIT, kv_tokens=9)
    twin = BlockCache(5, UNIT, record_events=True)
    num_removed = 0
    for prompt, num_decoded in calls:
        computed = [*prompt, *[1] * num_decoded]
        keys = list(block_hashes(computed, UNIT))
        assert pools.serve(keys, len(prompt), len(computed), None) == (
            twin.serve(keys, len(prompt), num_decoded),
            num_removed,
        )
        num_removed += sum(type(event).__name__ == "Removed" for event in twin.take_events())


def test_replicas_share_nothing() -> None:
    pools = Pools(UNIT)
    keys = list(block_hashes([1, 2, 3, 4, 5], UNIT))
    assert pools.serve(keys, 5, 5, "a").predicted == 0
    assert pools.serve(keys, 5, 5, "b").predicted == 0
    assert pools.serve(keys, 5, 5, "a").predicted == 4


@given(st.lists(st.tuples(st.lists(st.integers(0, 1), max_size=9), st.sampled_from(["", "s"]))))
def test_keys_of_calls_in_turn(calls: list[tuple[list[int], str]]) -> None:
    keys = Keys(UNIT)
    for ids, salt in calls:
        found = keys.of(np.asarray(ids, np.uint32), Sending(salt=salt))
        assert found == list(block_hashes(ids, UNIT, salt))


def test_a_model_that_is_not_named_is_the_one_that_was() -> None:
    keys = Keys(UNIT, "m")
    ids = np.asarray([1, 2, 3, 4], np.uint32)
    unnamed, named, other = (keys.of(ids, Sending(model=model)) for model in (None, "m", "n"))
    assert unnamed == named
    assert not set(named) & set(other)
