"""Where a zone ends best: the net benefit of padding and moving, by hand and by trying all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.layout.align import Alignment, align, padding_tokens
from duramen.layout.errors import LayoutError


@pytest.mark.parametrize(
    ("end", "unit", "tail", "calls", "min_padding", "expected"),
    [
        (26, 16, [], [3], 1, Alignment(0, 6, 24.0)),  # 10 tokens saved 3 times for 6 now
        (26, 16, [], [0.6], 1, Alignment()),  # 6 saved for 6: no gain
        (26, 16, [], [3], 7, Alignment(0, 22, 8.0)),  # 6 are too few for a message: a unit more
        (32, 16, [], [100], 1, Alignment()),  # on the boundary already
        (30, 16, [4], [1, 9], 1, Alignment(1, 6, 84.0)),  # what is left lasts longer
        (30, 16, [4], [9, 9], 1, Alignment(0, 2, 124.0)),  # it does not: all stays
        (30, 16, [15], [1, 9], 1, Alignment(0, 2, 12.0)),  # not wholly behind the boundary
        (30, 16, [2, 4], [1, 1, 50], 1, Alignment(2, 8, 392.0)),
        (30, 16, [14], [0, 50], 1, Alignment()),  # ends on the boundary then: nothing is saved
    ],
)
def test_net_benefit(end, unit, tail, calls, min_padding, expected):
    assert align(end, unit, tail, calls, min_padding) == expected


@given(
    st.integers(0, 40),
    st.integers(1, 9),
    st.lists(st.integers(0, 6), max_size=4),
    st.lists(st.integers(0, 20), min_size=5, max_size=5),
    st.integers(1, 12),
)
def test_no_cut_is_better(rest, unit, tail, calls, min_padding):
    """The twin computes call by call what is computed again with and without each cut."""
    end = rest + sum(tail)
    calls = calls[: len(tail) + 1]
    found = align(end, unit, tail, calls, min_padding)

    def net(num_moved: int) -> float | None:
        kept = end - sum(tail[:num_moved])
        if kept < end // unit * unit:
            return None
        padded = kept
        while padded % unit or 0 < padded - kept < min_padding:
            padded += 1
        again = sum(kept - kept // unit * unit for _ in range(calls[num_moved]))
        again_padded = sum(padded - padded // unit * unit for _ in range(calls[num_moved]))
        return again - again_padded - (padded - kept)

    nets = {n: value for n in range(len(tail) + 1) if (value := net(n)) is not None}
    assert found.net_tokens == max(0, *nets.values(), 0)
    if found.net_tokens:
        assert nets[found.num_moved] == found.net_tokens
        assert all(value < found.net_tokens for n, value in nets.items() if n < found.num_moved)
        assert (end - sum(tail[: found.num_moved]) + found.num_padding) % unit == 0
        assert found.num_padding >= min_padding
    else:
        assert found == Alignment()


@pytest.mark.parametrize(("end", "expected"), [(0, 0), (16, 0), (15, 17), (10, 6), (1, 15)])
def test_padding_is_none_or_long_enough(end, expected):
    assert padding_tokens(end, 16, 5) == expected


def test_sizes_that_cannot_be():
    with pytest.raises(LayoutError, match="unit of 0"):
        align(10, 0, [], [1])
    with pytest.raises(LayoutError, match=r"ends at 10 with segments of \[11\]"):
        align(10, 4, [11], [1, 1])
    with pytest.raises(LayoutError, match="1 segments need 2 expectations: not 1"):
        align(10, 4, [1], [1])
