"""The tree of what was sent against every earlier sequence compared in turn."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from duramen.experiments.why.past import Nearest, Past
from duramen.layout.blocks import common_prefix

SEQUENCES = st.lists(st.lists(st.integers(0, 2), max_size=12), max_size=12)


def array(ids: list[int]) -> "np.ndarray[tuple[int], np.dtype[np.uint32]]":
    return np.asarray(ids, np.uint32)


@given(SEQUENCES)
def test_the_longest_prefix_and_the_newest_of_equals(sequences: list[list[int]]) -> None:
    past = Past()
    for number, ids in enumerate(sequences):
        earlier = sequences[:number]
        lengths = [common_prefix(other, ids) for other in earlier]
        most = max(lengths, default=0)
        newest = max((i for i, length in enumerate(lengths) if length == most), default=-1)
        expected = Nearest(newest, most) if most else None
        assert past.nearest(array(ids)) == expected
        past.add(number, array(ids))
        for index, other in enumerate(sequences[: number + 1]):
            assert past.token_ids(index).tolist() == other


def test_nothing_is_known_of_other_beginnings() -> None:
    past = Past()
    past.add(0, array([1, 2, 3]))
    assert past.nearest(array([2, 3])) is None
    assert past.nearest(array([])) is None
    assert past.nearest(array([1])) == (0, 1)
    assert past.token_ids(7).tolist() == []
