"""The budget of a step beside decodes: by hand, against a slow twin, and in the simulator."""

import math
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.experiments.timed.arrivals import OpenLoop
from duramen.experiments.timed.call import TimedCall
from duramen.experiments.timed.engine import TimedEngine
from duramen.experiments.timed.figures import figures
from duramen.experiments.timed.itl_budget import itl_budget
from duramen.layout.errors import LayoutError
from duramen.serving.kv.batching.rules import Rules
from duramen.serving.kv.prefill_budget import (
    AGEING_S,
    MOST_FLOORS,
    Budget,
    Prefill,
    PrefillBudget,
    StepRatio,
)
from duramen.serving.kv.step_time import LinearStepTime, Step

PER_TOKEN = LinearStepTime(0.1, 0.001, 0.0, 0.0, 0.01)  # s: a step, a token, a sequence
WITH_PAIRS = LinearStepTime(0.05, 0.001, 1e-6, 1e-6, 0.002)
MOST = 4096


def budget(
    target_s: float,
    times: LinearStepTime = PER_TOKEN,
    *,
    floor_tokens: int = 1,
    granule_tokens: int = 1,
) -> PrefillBudget:
    """One whose predictions are taken as they are."""
    made = PrefillBudget(
        times, target_s, MOST, floor_tokens=floor_tokens, granule_tokens=granule_tokens
    )
    made.ratio.mean, made.ratio.deviation = 1.0, 0.0
    return made


def prefill(num_tokens: int, context_tokens: int = 0, arrived_s: float = 0.0) -> Prefill:
    return Prefill(num_tokens, context_tokens, arrived_s)


@pytest.mark.parametrize("decodes", [[], [10]])
def test_all_is_open_unless_prefills_and_decodes_meet(decodes: list[int]) -> None:
    waiting = [] if decodes else [prefill(9000)]
    assert budget(0.2).choose(decodes, waiting, 0.0) == Budget(MOST)


def test_the_time_that_decodes_leave_is_filled() -> None:
    # 0.1 + 2 x (0.001 + 0.01) = 0.122 for the decodes, 0.01 for the prefill: 68 tokens are left
    chosen = budget(0.2001).choose([10, 10], [prefill(9000)], 0.0)
    assert chosen == Budget(2 + 68, is_mixed=True)


def test_a_cut_prefill_fills_whole_granules() -> None:
    made = budget(0.2001, floor_tokens=20, granule_tokens=16)
    assert made.choose([10, 10], [prefill(9000)], 0.0).num_tokens == 64  # of 2 + 68
    assert made.choose([10, 10], [prefill(65)], 0.0).num_tokens == 67  # its end is not cut off
    tight = budget(0.05, floor_tokens=20, granule_tokens=16)
    assert tight.choose([10, 10], [prefill(9000)], 0.0).num_tokens == 22  # not below the floor


def test_what_is_left_by_a_short_prefill_goes_to_the_next() -> None:
    # the second sequence costs 0.01, as much as 10 tokens
    chosen = budget(0.2001).choose([10, 10], [prefill(8), prefill(9000)], 0.0)
    assert chosen == Budget(2 + 8 + 50, is_mixed=True)


def test_prefills_that_all_fit_get_no_more_than_they_need() -> None:
    assert budget(1.0).choose([10], [prefill(8), prefill(9)], 0.0) == Budget(18, is_mixed=True)


def test_draft_tokens_are_kept_for_decodes() -> None:
    made = PrefillBudget(PER_TOKEN, 0.01, MOST, tokens_per_decode=4, floor_tokens=5)
    assert made.choose([10, 10], [prefill(9000)], 0.0).num_tokens == 2 * 4 + 5


def test_a_longer_context_leaves_fewer_tokens() -> None:
    chosen = [
        budget(0.4, WITH_PAIRS).choose([10], [prefill(9000, context)], 0.0).num_tokens
        for context in (0, 1000, 4000)
    ]
    assert chosen[0] > chosen[1] > chosen[2] > 1


def test_prefills_are_read_as_far_as_the_time_goes() -> None:
    def endless() -> Iterator[Prefill]:
        while True:
            yield prefill(30)

    # 0.389 s are left, and 30 tokens cost 0.04: nine of them, and 19 tokens of the tenth
    assert budget(0.5001).choose([10], endless(), 0.0).num_tokens == 1 + 9 * 30 + 19


@pytest.mark.parametrize(
    ("waited_s", "floor"),
    [(0.0, 10), (AGEING_S / 2, 25), (AGEING_S, 40), (100 * AGEING_S, 40), (-5.0, 10)],
)
def test_no_prefill_starves_and_an_old_one_gets_more(waited_s: float, floor: int) -> None:
    assert MOST_FLOORS == 4
    made = budget(0.05, floor_tokens=10)  # less than a step of the decodes alone
    chosen = made.choose([10], [prefill(9000, arrived_s=100.0 - waited_s)], 100.0)
    assert chosen == Budget(1 + floor, is_mixed=True, is_floor=True)


def test_the_floor_is_shared_by_short_prefills() -> None:
    made = budget(0.05, floor_tokens=10)
    assert made.choose([10], [prefill(3)] * 2, 0.0).num_tokens == 1 + 6
    assert made.choose([10], [prefill(3)] * 9, 0.0).num_tokens == 1 + 10


def test_never_above_the_most_of_a_step() -> None:
    made = PrefillBudget(PER_TOKEN, 0.01, 20, floor_tokens=50)
    assert made.choose([1] * 3, [prefill(9000)], 0.0).num_tokens == 20


def test_steps_that_take_longer_than_predicted_get_less() -> None:
    made = budget(0.4)
    before = made.choose([10], [prefill(9000)], 0.0).num_tokens
    for _ in range(500):
        made.observe(0.2, 0.3)
    assert made.ratio.mean == pytest.approx(1.5, rel=1e-3)
    assert made.ratio.deviation < 1e-3  # always by as much
    # 0.4 s hold what is predicted to take 0.2667: 0.111 for the decode, 0.01 for the prefill
    assert before == 1 + 279
    assert made.choose([10], [prefill(9000)], 0.0).num_tokens == 1 + 145


def test_steps_that_vary_get_less_than_steady_ones() -> None:
    varied, steady = StepRatio(), StepRatio()
    for number in range(500):
        varied.observe(1.5 if number % 2 else 0.5)
        steady.observe(1.0)
    assert varied.mean == pytest.approx(1.0, abs=0.02)
    assert varied.usual_most > 2 > 1.01 > steady.usual_most


@pytest.mark.parametrize(("ratio", "believed"), [(1e9, 4.0), (0.0, 0.25)])
def test_odd_measurements_are_bounded(ratio: float, believed: float) -> None:
    found = StepRatio()
    for _ in range(2000):
        found.observe(ratio)
    assert found.mean == pytest.approx(believed)


@pytest.mark.parametrize("target_s", [0.0, -1.0, math.inf, math.nan])
def test_a_target_that_is_none(target_s: float) -> None:
    with pytest.raises(LayoutError, match="the target of a step must be seconds above 0"):
        PrefillBudget(PER_TOKEN, target_s, MOST)


@pytest.mark.parametrize("name", ["tokens_per_decode", "floor_tokens", "granule_tokens"])
def test_counts_below_one(name: str) -> None:
    with pytest.raises(LayoutError, match="must all be at least 1"):
        PrefillBudget(PER_TOKEN, 1.0, MOST, **{name: 0})


def slow_twin(
    times: LinearStepTime, target_s: float, decodes: Sequence[int], prefills: Sequence[Prefill]
) -> int:
    """Token by token, as long as the whole step keeps the target."""
    new, contexts = [1] * len(decodes), [*decodes]
    for each in prefills:
        chunk = 0
        while chunk < each.num_tokens:
            longer = Step([*new, chunk + 1], [*contexts, each.context_tokens])
            # a chunk of one token is priced as a decode, which reads its context as well
            if chunk and times.seconds(longer) > target_s:
                break
            if not chunk and times.seconds(longer) + 1e-12 > target_s:
                break
            chunk += 1
        if chunk:
            new, contexts = [*new, chunk], [*contexts, each.context_tokens]
        if chunk < each.num_tokens:
            break
    return sum(new)


seconds = st.floats(0, 1e-2)
TIMES = st.builds(
    LinearStepTime, st.floats(1e-3, 0.1), seconds, st.floats(0, 1e-5), st.just(0.0), seconds
)
PREFILLS = st.lists(
    st.builds(Prefill, st.integers(1, 200), st.integers(0, 5000), st.just(0.0)),
    min_size=1,
    max_size=4,
)


@given(
    TIMES, st.floats(0.01, 1.0), st.lists(st.integers(0, 5000), min_size=1, max_size=4), PREFILLS
)
def test_equals_its_slow_twin(
    times: LinearStepTime, target_s: float, decodes: list[int], prefills: list[Prefill]
) -> None:
    expected = slow_twin(times, target_s, decodes, prefills)
    chosen = budget(target_s, times).choose(decodes, prefills, 0.0).num_tokens
    # rounding may cost a token of each prefill, and the floor is one token
    assert abs(chosen - max(expected, len(decodes) + 1)) <= len(prefills)


def served(is_async: bool, target_s: float | None) -> tuple[float, float]:
    """The longest ITL of two streams, and the longest TTFT of three long prompts beside them."""
    rules = Rules(16, None, MOST, 8, async_scheduling=is_async)
    sendings = [(0.1 * number, call(f"stream {number}", 20, 300)) for number in range(2)]
    sendings += [(2.0 + 4.0 * number, call(f"long {number}", 2000, 2)) for number in range(3)]
    made = None if target_s is None else itl_budget(WITH_PAIRS, target_s, MOST)
    timeline = TimedEngine(rules, WITH_PAIRS, made).run(OpenLoop(sendings))
    streams, longs = [], []
    for each in figures(timeline, None).calls:
        assert each.itl_s.max is not None
        if each.session.startswith("stream"):
            streams.append(each.itl_s.max)
        else:
            longs.append(each.ttft_s)
    assert (len(streams), len(longs)) == (2, 3)
    return max(streams), max(longs)


def call(name: str, num_prompt: int, num_outputs: int) -> TimedCall:
    keys = [f"{name}, block {index}" for index in range(num_prompt + num_outputs)]
    return TimedCall(name, 0, keys, num_prompt, num_outputs, num_outputs, 0)


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_streams_keep_their_target_beside_long_prompts(is_async: bool) -> None:
    free_itl_s, free_ttft_s = served(is_async, None)
    assert free_itl_s > 2.0  # 2,000 tokens in one step
    itl_s, ttft_s = served(is_async, 0.3)
    assert 0.28 < itl_s <= 0.3 + 1e-9
    assert ttft_s < 3 * free_ttft_s
