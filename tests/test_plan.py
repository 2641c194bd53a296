"""The sweep of `duramen plan`: its pick against all settings, its order, its reasons."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_cases import BLOCK, PRESENT, SLO, poisson, profile, sessions, space, trials

from duramen.experiments.plan.kv_pool import Blocks, KvPool
from duramen.experiments.plan.limit import Limit, find_limit
from duramen.experiments.plan.order import Order
from duramen.experiments.plan.plan import Plan, make_plan, new_search
from duramen.experiments.plan.setting import AXES, Setting, Space, space_of
from duramen.experiments.plan.traffic import ClosedTraffic, Traffic
from duramen.experiments.plan.trial import Trial
from duramen.experiments.studies.example_models import llama_3_8b
from duramen.experiments.timed.figures import Goodput, Ranks
from duramen.experiments.timed.slo import Slo
from duramen.layout.errors import DuramenError
from duramen.serving.kv.footprint import KvDtype

WITH_TARGET = space(
    max_num_batched_tokens=(128, 256, 512, 2048),
    long_prefill_token_threshold=(256, 0),
    max_num_seqs=(4, 64),
    itl_target_ms=(None, 400.0),
)


def planned(traffic: Traffic, over: Space, slo: Slo = SLO) -> Plan:
    return make_plan(new_search(trials(slo), over, traffic, lambda line: None))


def everything(traffic: Traffic, over: Space, slo: Slo = SLO) -> list[Trial]:
    simulated = trials(slo)
    return [simulated.run(setting, traffic) for setting in over.everything()]


def trial(
    ttft_s: float, itl_s: float, tokens_per_s: float, share: float = 1.0, setting: Setting = PRESENT
) -> Trial:
    goodput = Goodput(SLO, int(100 * share), share, 10 * share)
    ttft, itl = (Ranks(s, s, s, s) for s in (ttft_s, itl_s))
    return Trial(setting, Blocks(BLOCK, 10), ttft, itl, tokens_per_s, goodput, 0, 0)


@pytest.mark.parametrize(
    ("traffic", "over"),
    [
        (poisson(rate_per_s=0.5), space()),  # none keeps the objectives
        (poisson(rate_per_s=0.1), space()),
        (poisson(), WITH_TARGET),
        (poisson(52, 0.05, seed=4), WITH_TARGET),  # long enough to be cut in two parts
        (ClosedTraffic(sessions(12), 2), space()),
        (ClosedTraffic(sessions(52, seed=3), 4), WITH_TARGET),
    ],
)
def test_the_pick_is_the_best_of_all_settings(traffic: Traffic, over: Space) -> None:
    plan, full = planned(traffic, over), everything(traffic, over)
    order = Order(SLO, traffic.rate_per_s is not None, PRESENT)
    assert plan.pick == order.best(full)
    assert plan.num_tried < len(full)
    assert not plan.over or all(each.over(SLO) for each in full)


@pytest.mark.parametrize("traffic", [poisson(rate_per_s=0.1), ClosedTraffic(sessions(12), 2)])
def test_a_tighter_objective_never_gives_more(traffic: Traffic) -> None:
    goodputs = []
    for factor in (0.5, 0.8, 1.0, 1.3, 2.0, 4.0):
        slo = Slo(2.0 * factor, 0.4 * factor)
        order = Order(slo, traffic.rate_per_s is not None, PRESENT)
        plan = planned(traffic, space(), slo)
        goodputs.append(0.0 if plan.over else order.goodput(plan.pick))
    assert all(tight <= loose * 1.01 for tight, loose in pairwise(goodputs))
    assert goodputs[0] == 0 < goodputs[-1]


def test_the_same_twice() -> None:
    first, second = (planned(poisson(), WITH_TARGET).as_json() for _ in range(2))
    assert first == second


def test_parts_of_the_traffic_thin_the_grid_out() -> None:
    lines: list[str] = []
    search = new_search(trials(), space(), poisson(120, 0.1), lines.append)
    cost = search.cost()
    num_coarse = len(space().coarse())
    assert lines == []
    assert cost.num_coarse == num_coarse
    search.run()
    assert lines[:2] == [
        f"{num_coarse} settings on 120 calls",
        f"{-(-num_coarse // 2)} settings on 240 calls",
    ]
    num_whole = int(lines[2].removesuffix(" settings on all 480 calls"))
    assert 0 <= num_whole - -(-num_coarse // 4) <= 1  # and what was measured, if it was out
    assert PRESENT in search.whole
    assert search.num_tried <= cost.num_coarse + cost.num_neighbours


def test_a_pool_too_small_for_a_call_is_said() -> None:
    search = new_search(trials(pool=KvPool(kv_tokens=1000)), space(), poisson(), lambda line: None)
    with pytest.raises(DuramenError, match=r"does not hold a call of \d+ tokens: enlarge it"):
        search.run()


def test_formats_that_are_too_large_are_left_out() -> None:
    """A bf16 pool of 2,000 tokens is one of 4,000 in fp8."""
    pool = KvPool(llama_3_8b(), kv_tokens=2000)
    longest = max(c.num_prompt + c.num_outputs for s in sessions(12) for c in s)
    assert 2000 < longest < 4000
    over = space(kv_dtype=(KvDtype.AUTO, KvDtype.FP8))
    plan = make_plan(new_search(trials(pool=pool), over, poisson(), lambda line: None))
    assert plan.pick.setting.kv_dtype is KvDtype.FP8
    assert plan.present is None


def test_order() -> None:
    order = Order(SLO, at_given_rate=True, present=PRESENT)
    fast, good, late, slow = (
        trial(0.5, 0.1, 90, 0.99),
        trial(1.0, 0.1, 90),
        trial(2.2, 0.1, 99),
        trial(0.1, 0.9, 99),
    )
    assert order.best([fast, good, late, slow]) is good
    assert order.best([fast, late, slow]) is fast
    assert order.best([late, slow]) is late
    assert late.over(SLO) == {"ttft": pytest.approx(0.1)}
    assert slow.over(SLO) == {"itl": pytest.approx(1.25)}


def test_ties_go_to_the_first_token_then_to_what_was_measured() -> None:
    other = replace(PRESENT, max_num_seqs=32)
    at_rate, closed = (Order(SLO, given, PRESENT) for given in (True, False))
    assert at_rate.best([trial(1.0, 0.1, 9), trial(0.5, 0.2, 9)]).ttft_p99_s == 0.5
    assert at_rate.best([trial(1.0, 0.1, 9, setting=other), trial(1.0, 0.1, 9)]).setting == PRESENT
    nearly = [trial(1.0, 0.1, 9), trial(0.5, 0.1, 9, share=0.995)]
    assert at_rate.best(nearly).ttft_p99_s == 1.0
    assert closed.best(nearly).ttft_p99_s == 0.5  # within 1%


figures = st.sampled_from([0.1, 0.2, 0.3, 0.4])


@given(st.lists(st.tuples(figures, figures, figures), min_size=1, max_size=12))
def test_the_front_is_what_nothing_betters(rows: list[tuple[float, float, float]]) -> None:
    order = Order(SLO, at_given_rate=True, present=PRESENT)
    found = [
        trial(ttft, itl, 1 / cost, setting=replace(PRESENT, max_num_seqs=number + 1))
        for number, (ttft, itl, cost) in enumerate(rows)
    ]
    best = {
        row
        for row in rows
        if not any(
            other != row and all(a <= b for a, b in zip(other, row, strict=True)) for other in rows
        )
    }
    on_it = [rows[each.setting.max_num_seqs - 1] for each in order.front(found)]
    assert sorted(on_it) == sorted(best)
    for number in range(1, len(rows) + 1):
        kept = order.survivors(found, number)
        assert len({each.setting for each in kept}) == len(kept) == number
        assert number < 2 or order.best(found) in kept


def test_the_front_takes_one_percent_for_equal() -> None:
    order = Order(SLO, at_given_rate=True, present=PRESENT)
    slower, rest = trial(0.5, 0.301, 100.1), trial(0.4, 0.301, 100)
    assert order.front([slower, rest]) == [rest]


@pytest.mark.parametrize("limit", [0.013, 0.4, 1.0, 1.01, 7.7, 900.0])
def test_limit_is_found_to_five_percent(limit: float) -> None:
    found = find_limit(lambda factor: factor <= limit)
    assert found.keeps is not None
    assert found.breaks is not None
    assert found.keeps <= limit < found.breaks <= found.keeps * 1.05


def test_limit_out_of_reach() -> None:
    assert find_limit(lambda factor: True) == Limit(1024.0, None)
    assert find_limit(lambda factor: False) == Limit(None, 1 / 1024)


def test_the_limit_of_a_plan_holds_in_the_simulator() -> None:
    plan = planned(poisson(rate_per_s=0.1), space())
    assert plan.limit is not None
    assert plan.keeps_per_s == pytest.approx(0.1 * (plan.limit.keeps or 0))

    def over_at(rate_per_s: float | None) -> dict[str, float]:
        assert rate_per_s is not None
        return trials().run(plan.pick.setting, poisson(rate_per_s=rate_per_s)).over(SLO)

    assert over_at(plan.keeps_per_s) == {}
    assert over_at(plan.breaks_per_s) != {}


def test_why_quotes_what_a_neighbour_gives() -> None:
    large = space(max_num_batched_tokens=(512, 2048), itl_target_ms=(None, 400.0))
    plan = planned(poisson(), large)
    simulated, pick = trials(), plan.pick
    assert pick.setting.itl_target_ms == 400.0
    without = simulated.run(replace(pick.setting, itl_target_ms=None), poisson())
    assert plan.why.startswith(
        f"our scheduler's target of 400 ms keeps ITL p99 at {pick.itl_p99_s * 1000:.3g} ms, "
        f"vLLM's own scheduler gives {without.itl_p99_s:.2f} s"
    )


def test_neighbours_differ_in_one_place() -> None:
    over = space()
    for setting in over.everything():
        for beside in over.neighbours(setting):
            assert beside.is_allowed
            (axis,) = beside.differences(setting)
            places = [over.axes[axis].index(getattr(each, axis)) for each in (setting, beside)]
            assert abs(places[0] - places[1]) == 1


def test_space_has_what_the_profile_was_measured_with() -> None:
    flags = {**profile().flags, "max_num_batched_tokens": 3000, "max_num_seqs": 48}
    over = space_of(profile(flags=flags), BLOCK, itl_s=0.4)
    assert over.present == Setting(3000, 0, 48, BLOCK)
    assert over.coarse()[0] == over.present
    assert {*over.coarse()} <= {*over.everything()}
    assert over.axes["itl_target_ms"] == (None, 400.0)
    assert [*over.axes] == [*AXES]
