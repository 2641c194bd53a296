"""experiments.timed by hand: when each token comes, what a call waited for, and what it adds up to.

A step takes a second and a tenth for each token.
"""

from itertools import count
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.experiments.timed.arrivals import Arrivals, ClosedLoop, OpenLoop
from duramen.experiments.timed.call import TimedCall
from duramen.experiments.timed.engine import TimedEngine
from duramen.experiments.timed.figures import CallFigures, Ranks, TimedFigures, figures
from duramen.experiments.timed.rules import rules_of
from duramen.experiments.timed.slo import Slo, parse_slo
from duramen.layout.errors import DuramenError, LayoutError
from duramen.serving.kv.batching.rules import Policy, Rules
from duramen.serving.kv.batching.scheduler import BatchScheduler
from duramen.serving.kv.step_time import LinearStepTime, Step
from duramen.serving.timing_profile import profile_from_fields

TIMES = LinearStepTime(1.0, 0.1, 0.0, 0.0, 0.0)
SYNC = Rules(4, 100, max_num_batched_tokens=32, max_num_seqs=4, async_scheduling=False)
ASYNC = Rules(4, 100, max_num_batched_tokens=32, max_num_seqs=4)


def call(session: str, num_prompt: int, num_outputs: int, index: int = 0) -> TimedCall:
    keys = [f"{session}, block {number}" for number in range((num_prompt + num_outputs) // 4)]
    return TimedCall(session, index, keys, num_prompt, num_outputs, num_outputs)


def run(rules: Rules, arrivals: Arrivals, slo: Slo | None = None) -> TimedFigures:
    return figures(TimedEngine(rules, TIMES).run(arrivals), slo)


def times(figures: CallFigures) -> list[float]:
    found = [figures.arrival_s, figures.queue_s, figures.ttft_s, figures.e2e_s]
    return [round(value, 6) for value in found]


BESIDE = OpenLoop([(0.5, call("b", 10, 2)), (0.0, call("a", 10, 3))])


def test_steps_one_after_another() -> None:
    """a's prompt ends at 2.0; a token of a and b's prompt take 2.1; two tokens take 1.2."""
    found = run(SYNC, BESIDE)
    a, b = found.calls
    assert times(a) == [0, 0, 2, 5.3]
    assert times(b) == [0.5, 1.5, 3.6, 4.8]
    assert (a.itl_s.p50, a.itl_s.max, b.itl_s.max) == pytest.approx((1.2, 2.1, 1.2))
    assert found.itl_s.p50 == pytest.approx(1.2)
    assert (found.num_steps, found.output_tokens, found.makespan_s) == (3, 5, pytest.approx(5.3))
    assert found.output_tokens_per_s == pytest.approx(5 / 5.3)


def test_steps_made_while_another_runs() -> None:
    """a's second step is made at 0, too, without b; the one with b's prompt at 2.0 for 3.1 to
    5.2; a needs no more, so b's last token takes 1.1."""
    a, b = run(ASYNC, BESIDE).calls
    assert times(a) == [0, 0, 2, 5.2]
    assert times(b) == [0.5, 1.5, 4.7, 5.8]
    assert (a.itl_s.p50, a.itl_s.max) == pytest.approx((1.1, 2.1))


def test_sessions_wait_for_answers_think_and_take_turns() -> None:
    sessions = [[call("a", 10, 1), call("a", 10, 1, 1)], [], [call("b", 10, 1)]]
    found = run(SYNC, ClosedLoop(sessions, concurrency=1, think_s=0.5))
    # the second call of a hits two of its blocks: 1.2 s
    assert [times(each)[::2] for each in found.calls] == [[0, 2], [2.5, 1.2], [3.7, 2]]
    assert [each.cached_tokens for each in found.calls] == [0, 8, 0]
    assert found.cached_tokens == 8


def test_a_call_that_an_answer_sets_off_misses_the_next_step() -> None:
    sessions = [[call("a", 10, 1), call("c", 10, 1, 1)], [call("b", 10, 2)]]
    found = run(SYNC, ClosedLoop(sessions, concurrency=2))
    assert [times(each)[:3] for each in found.calls] == [[0, 0, 3], [0, 0, 3], [3, 1.1, 3.1]]


def test_an_idle_engine_waits_for_the_next_call() -> None:
    found = run(ASYNC, OpenLoop([(7.0, call("a", 10, 1)), (30.0, call("b", 10, 1))]))
    assert [times(each) for each in found.calls] == [[7, 0, 2, 2], [30, 0, 2, 2]]
    assert found.makespan_s == pytest.approx(25)


def test_a_budget_for_each_step() -> None:
    asked: list[tuple[int, float]] = []

    def budget(scheduler: BatchScheduler, now_s: float) -> int:
        asked.append((scheduler.num_unfinished, round(now_s, 6)))
        return 6

    engine = TimedEngine(SYNC, TIMES, budget)
    found = figures(engine.run(OpenLoop([(0.0, call("a", 10, 1))])))
    assert times(found.calls[0]) == [0, 0, 3, 3]  # 1.6 and 1.4
    assert asked == [(1, 0), (1, 1.6)]


def test_preemptions_are_counted() -> None:
    rules = Rules(4, 5, max_num_batched_tokens=32, max_num_seqs=4, async_scheduling=False)
    found = run(rules, OpenLoop([(0.0, call("a", 7, 6)), (0.0, call("b", 7, 3))]))
    assert [each.num_preemptions for each in found.calls] == [0, 1]
    assert found.num_preemptions == 1
    # after two tokens together and four of a alone: 1.2, then 4 * 1.1, then 5 tokens
    assert found.calls[1].itl_s.max == pytest.approx(4 * 1.1 + 1.5)


def test_a_call_that_never_fits_is_refused() -> None:
    with pytest.raises(LayoutError, match="session a, call 0: 390 tokens and 9 outputs are more"):
        run(SYNC, OpenLoop([(0.0, call("a", 390, 9))]))


@pytest.mark.parametrize(
    ("slo", "num_good"),
    [
        (Slo(), 2),
        (Slo(ttft_s=2.5), 1),
        (Slo(itl_s=1.3), 1),
        (Slo(ttft_s=2.5, itl_s=1.3), 0),
        (Slo(ttft_s=4, itl_s=3), 2),
    ],
)
def test_goodput_by_hand(slo: Slo, num_good: int) -> None:
    goodput = run(SYNC, BESIDE, slo).goodput
    assert goodput is not None
    assert goodput.num_calls == num_good
    assert goodput.share == num_good / 2
    assert goodput.calls_per_s == pytest.approx(num_good / 5.3)


def test_a_call_of_one_token_has_no_gaps_to_keep() -> None:
    found = run(SYNC, OpenLoop([(0.0, call("a", 10, 1))]), Slo(itl_s=0.1))
    assert found.calls[0].itl_s == found.itl_s == Ranks(None, None, None, None)
    assert found.goodput is not None
    assert found.goodput.num_calls == 1


@given(st.lists(st.floats(0, 100), min_size=1))
def test_ranks_are_values_that_enough_others_do_not_exceed(values: list[float]) -> None:
    ranks = Ranks.of(np.array(values))
    for rank, found in ((50, ranks.p50), (90, ranks.p90), (99, ranks.p99), (100, ranks.max)):
        assert found in values
        assert sum(value <= found for value in values) * 100 >= rank * len(values)
        assert sum(value < found for value in values) * 100 < rank * len(values)


def random_sessions(seed: int) -> list[list[TimedCall]]:
    random, fresh, sessions = Random(seed), count(), []
    for name in map(str, range(40)):
        keys = [f"root {random.randint(0, 2)}, block {number}" for number in range(4)]
        num_tokens, calls = 16, []
        for index in range(random.randint(1, 8)):
            num_prompt = num_tokens + random.randint(1, 40)
            num_tokens = num_prompt + random.randint(1, 30)
            keys += [f"block {next(fresh)}" for _ in range(num_tokens // 4 - len(keys))]
            num_outputs = num_tokens - num_prompt
            limit = num_outputs + random.randint(0, 1)
            calls.append(TimedCall(name, index, (*keys,), num_prompt, num_outputs, limit))
        sessions.append(calls)
    return sessions


@pytest.mark.parametrize("policy", Policy)
@pytest.mark.parametrize("is_async", [False, True])
def test_every_run_is_the_same_and_every_token_is_paid_for(policy: Policy, is_async: bool) -> None:
    """The pool holds two of the longest calls, so calls are preempted."""
    rules = Rules(4, 180, 64, 8, 7, policy, async_scheduling=is_async)

    class Watched:
        num_tokens = 0

        def seconds(self, step: Step) -> float:
            self.num_tokens += step.num_new_tokens
            return TIMES.seconds(step)

    def outcome() -> TimedFigures:
        watched = Watched()
        timeline = TimedEngine(rules, watched).run(ClosedLoop(random_sessions(1), 12, 0.7))
        found = figures(timeline)
        sizes = [
            (each.prompt_tokens - each.cached_tokens, each.output_tokens) for each in found.calls
        ]
        num_least = sum(uncached + num_outputs - 1 for uncached, num_outputs in sizes)
        assert watched.num_tokens >= num_least
        for each in found.calls:
            assert 0 <= each.queue_s < each.ttft_s <= each.e2e_s
            gaps = each.itl_s.p50 is not None
            assert gaps == (each.output_tokens > 1)
        return found

    first, again = outcome(), outcome()
    assert first == again
    assert first.num_preemptions > 0
    calls = [each for session in random_sessions(1) for each in session]
    assert sorted((each.session, each.call) for each in first.calls) == sorted(
        (each.session, each.index) for each in calls
    )
    assert first.output_tokens == sum(each.num_outputs for each in calls)


def test_a_slower_device_changes_times_alone_in_a_closed_loop_of_one() -> None:
    sessions = random_sessions(2)
    slow = LinearStepTime(2.0, 0.2, 0.0, 0.0, 0.0)
    once = figures(TimedEngine(ASYNC, TIMES).run(ClosedLoop(sessions)))
    twice = figures(TimedEngine(ASYNC, slow).run(ClosedLoop(sessions)))
    assert [each.cached_tokens for each in once.calls] == [
        each.cached_tokens for each in twice.calls
    ]
    assert twice.makespan_s == pytest.approx(2 * once.makespan_s)
    assert twice.itl_s.p99 == pytest.approx(2 * (once.itl_s.p99 or 0))


@pytest.mark.parametrize(
    ("text", "slo"),
    [
        ("ttft=2s,itl=400ms", Slo(2.0, 0.4)),
        ("itl=0.5s", Slo(None, 0.5)),
        ("ttft=250ms", Slo(0.25, None)),
    ],
)
def test_objectives(text: str, slo: Slo) -> None:
    assert parse_slo(text) == slo


@pytest.mark.parametrize(
    "text", ["", "ttft=2", "ttft=2s,ttft=3s", "e2e=2s", "ttft=-1s", "itl=1e3s"]
)
def test_what_is_no_objective(text: str) -> None:
    with pytest.raises(DuramenError, match="is no objective: write it like ttft=2s,itl=400ms"):
        parse_slo(text)


PROFILE = {
    "device": "here",
    "model": "tiny",
    "engine": "vllm 0.32.0",
    "date": "2026-12-01",
    "origin": "prior",
    "step": {
        "fixed_s": 1.0,
        "per_token_s": 0.1,
        "per_pair_s": 0,
        "per_decode_context_token_s": 0,
        "per_sequence_s": 0,
    },
}
FLAGS = {"max_num_batched_tokens": 64, "max_num_seqs": 8, "async_scheduling": True}


def test_rules_are_those_of_the_profiles_flags() -> None:
    more = {"scheduling_policy": "priority", "watermark": 0, "tensor_parallel_size": 2}
    profile = profile_from_fields(PROFILE | {"flags": FLAGS | more}, "it")
    assert rules_of(profile, 16, 9) == Rules(16, 9, 64, 8, policy=Policy.PRIORITY)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"max_num_seqs": 8}, "the timing profile's flags lack max_num_batched_tokens"),
        (FLAGS | {"max_num_seqs": True}, "max_num_seqs must be int, not True"),
        (FLAGS | {"watermark": "high"}, "watermark must be float, not 'high'"),
        (FLAGS | {"scheduling_policy": "lifo"}, "scheduling_policy is unknown: 'lifo'"),
        (FLAGS | {"max_num_seqs": 65}, "max_num_batched_tokens 64 is below max_num_seqs 65"),
    ],
)
def test_flags_that_make_no_rules(flags: dict[str, object], message: str) -> None:
    profile = profile_from_fields(PROFILE | {"flags": flags}, "it")
    with pytest.raises(DuramenError, match=message):
        rules_of(profile, 16, None)
