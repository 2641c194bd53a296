"""The planner: ascending volatility, and a budget that only trunk pays for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.layout.errors import LayoutError
from duramen.layout.planner import plan
from duramen.layout.zones import Segment, Zone

ROOT = Segment("rules", Zone.ROOT, "system")
SLOW = Segment("file a", Zone.TRUNK, "a", volatility=0.1)
FAST = Segment("file bb", Zone.TRUNK, "b", volatility=0.9)
LEAF = Segment("now", Zone.LEAF, "turn")
segments = st.lists(
    st.builds(
        Segment,
        text=st.text("x", max_size=4),
        zone=st.sampled_from(Zone),
        source=st.just("s"),
        volatility=st.sampled_from([0.0, 0.5, 1.0]),
    )
)


def test_zones_ascend_and_the_slowest_comes_first() -> None:
    assert plan([LEAF, FAST, ROOT, SLOW], 100, len).segments == (ROOT, SLOW, FAST, LEAF)


@pytest.mark.parametrize(
    ("budget", "kept", "dropped"),
    [
        (21, (ROOT, SLOW, FAST, LEAF), ()),
        (20, (ROOT, SLOW, LEAF), (FAST,)),
        (14, (ROOT, SLOW, LEAF), (FAST,)),
        (13, (ROOT, LEAF), (FAST, SLOW)),
        (8, (ROOT, LEAF), (FAST, SLOW)),
    ],
)
def test_the_most_volatile_trunk_leaves_first(
    budget: int, kept: tuple[Segment, ...], dropped: tuple[Segment, ...]
) -> None:
    made = plan([LEAF, FAST, ROOT, SLOW], budget, len)
    assert (made.segments, made.dropped) == (kept, dropped)


def test_root_and_leaf_must_fit() -> None:
    with pytest.raises(LayoutError, match="need 8 tokens, the budget is 7"):
        plan([LEAF, FAST, ROOT, SLOW], 7, len)


def test_equal_segments_are_dropped_one_by_one() -> None:
    made = plan([SLOW, SLOW, SLOW], 12, len)
    assert (made.segments, made.dropped) == ((SLOW, SLOW), (SLOW,))


@given(segments, st.integers(0, 40))
def test_nothing_is_lost_and_no_more_is_dropped_than_needed(
    given_segments: list[Segment], budget: int
) -> None:
    fixed = sum(len(s.text) for s in given_segments if s.zone is not Zone.TRUNK)
    if fixed > budget:
        with pytest.raises(LayoutError):
            plan(given_segments, budget, len)
        return
    made = plan(given_segments, budget, len)
    total = sum(len(s.text) for s in made.segments)
    assert total <= budget
    if made.dropped:  # the one dropped last was needed
        assert total + len(made.dropped[-1].text) > budget
        most_kept = max((s.volatility for s in made.segments if s.zone is Zone.TRUNK), default=0.0)
        assert most_kept <= min(s.volatility for s in made.dropped)
    everything = sorted(given_segments, key=lambda s: (s.zone, s.volatility))  # stable, as plan is
    assert sorted([*made.segments, *made.dropped], key=repr) == sorted(everything, key=repr)
    assert sorted(made.segments, key=lambda s: (s.zone, s.volatility)) == list(made.segments)
