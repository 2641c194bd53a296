"""kv.batching by hand: who is in each step, with how many tokens behind how many."""

from collections import deque
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.layout.errors import LayoutError
from duramen.serving.kv.batching.batch import Batch
from duramen.serving.kv.batching.request import Request
from duramen.serving.kv.batching.rules import Policy, Rules
from duramen.serving.kv.batching.scheduler import BatchScheduler
from duramen.serving.kv.step_time import LinearStepTime, Step

RULES = Rules(
    block_size=4, num_blocks=100, max_num_batched_tokens=8, max_num_seqs=4, async_scheduling=False
)
TIGHT = replace(RULES, num_blocks=5, max_num_batched_tokens=32)  # four blocks to hand out
Steps = list[list[tuple[int, int, int]]]  # by step: request, new tokens, context tokens


def request(
    number: int,
    num_prompt: int,
    num_outputs: int,
    *,
    max_outputs: int | None = None,
    priority: int = 0,
    text: str | None = None,
) -> Request:
    """Prompts with the same `text` are the same as far as both go."""
    keys = [f"{number if text is None else text}, block {index}" for index in range(50)]
    limit = num_outputs if max_outputs is None else max_outputs
    return Request(number, keys, num_prompt, num_outputs, limit, float(number), priority)


def shape(batch: Batch) -> list[tuple[int, int, int]]:
    numbers = [each.request_id for each in batch.requests]
    return [*zip(numbers, batch.new_tokens, batch.context_tokens, strict=True)]


def step(scheduler: BatchScheduler, max_tokens: int | None = None) -> list[tuple[int, int, int]]:
    """One that ends before the next is made."""
    batch = scheduler.schedule(max_tokens)
    scheduler.update(batch)
    scheduler.check_integrity()
    return shape(batch)


def run(rules: Rules, *requests: Request) -> Steps:
    """All steps until everything has ended, with as many in flight as the rules say."""
    scheduler = BatchScheduler(rules)
    for each in requests:
        scheduler.add(each)
    in_flight: deque[Batch] = deque()
    steps: Steps = []
    while scheduler.num_unfinished:
        in_flight.append(scheduler.schedule())
        steps.append(shape(in_flight[-1]))
        if len(in_flight) == 1 + rules.async_scheduling:
            scheduler.update(in_flight.popleft())
    return steps


def test_a_long_prompt_is_cut_and_others_fill_what_it_leaves() -> None:
    assert run(RULES, request(0, 10, 2), request(1, 5, 1)) == [
        [(0, 8, 0)],
        [(0, 2, 8), (1, 5, 0)],
        [(0, 1, 10)],
    ]


def test_the_threshold_holds_while_there_is_somebody_to_starve() -> None:
    rules = replace(RULES, long_prefill_token_threshold=3)
    assert run(rules, request(0, 20, 1), request(1, 4, 2)) == [
        [(0, 3, 0), (1, 3, 0)],
        [(0, 3, 3), (1, 1, 3)],
        [(0, 3, 6), (1, 1, 4)],
        [(0, 8, 9)],
        [(0, 3, 17)],
    ]


def test_seats_are_given_in_the_order_of_arrival() -> None:
    rules = replace(RULES, max_num_seqs=1)
    assert run(rules, request(0, 2, 2), request(1, 2, 1)) == [
        [(0, 2, 0)],
        [(0, 1, 2)],
        [(1, 2, 0)],
    ]


def test_a_step_may_be_given_fewer_tokens() -> None:
    scheduler = BatchScheduler(RULES)
    scheduler.add(request(0, 10, 2))
    assert step(scheduler, max_tokens=3) == [(0, 3, 0)]
    assert step(scheduler, max_tokens=100) == [(0, 7, 3)]


def test_the_last_token_is_computed_even_if_all_are_cached() -> None:
    first, again = request(0, 8, 1, text="same"), request(1, 8, 1, text="same")
    assert run(replace(RULES, max_num_seqs=1), first, again) == [[(0, 8, 0)], [(1, 4, 4)]]
    assert (first.cached_tokens, again.cached_tokens) == (0, 4)


def test_blocks_are_shared_while_they_are_computed() -> None:
    rules = replace(RULES, max_num_batched_tokens=32)
    both = request(0, 9, 1, text="same"), request(1, 9, 1, text="same")
    assert run(rules, *both) == [[(0, 9, 0), (1, 1, 8)]]


def test_the_newest_is_preempted_and_starts_from_what_is_left_of_it() -> None:
    oldest, newest = request(0, 7, 6), request(1, 7, 3)
    assert run(TIGHT, oldest, newest) == [
        [(0, 7, 0), (1, 7, 0)],
        [(0, 1, 7), (1, 1, 7)],
        [(0, 1, 8)],  # takes the newest one's last block
        [(0, 1, 9)],  # it does not fit beside the oldest
        [(0, 1, 10)],
        [(0, 1, 11)],
        [(1, 5, 4)],  # two outputs are there already: nine tokens, the first block of them cached
    ]
    assert (oldest.num_preemptions, newest.num_preemptions) == (0, 1)
    assert newest.cached_tokens == 0  # what it hit when it was admitted first
    assert newest.token_runs == [(0, 1), (6, 6)]


def test_who_was_preempted_goes_before_those_that_wait() -> None:
    scheduler = BatchScheduler(replace(TIGHT, max_num_seqs=2))
    scheduler.add(request(0, 7, 6))
    scheduler.add(request(1, 7, 9))
    scheduler.add(request(2, 1, 1))  # has no seat before the preemption
    assert [step(scheduler) for _ in range(3)][-1] == [(0, 1, 8)]
    assert step(scheduler) == [(0, 1, 9)]  # it would fit, the preempted one does not


def test_what_a_preemption_gives_back_goes_to_the_others() -> None:
    scheduler = BatchScheduler(replace(TIGHT, num_blocks=6, policy=Policy.PRIORITY))
    scheduler.add(request(0, 5, 9, priority=1))
    assert step(scheduler) == [(0, 5, 0)]
    scheduler.add(request(1, 7, 9))
    scheduler.add(request(2, 2, 9))
    assert step(scheduler) == [(0, 1, 5), (1, 7, 0), (2, 2, 0)]
    assert step(scheduler) == [(0, 1, 6), (1, 1, 7), (2, 1, 2)]
    assert step(scheduler, max_tokens=2) == [(1, 1, 8), (2, 1, 3)]


def test_the_least_urgent_is_preempted_though_it_is_in_the_step_already() -> None:
    scheduler = BatchScheduler(replace(TIGHT, policy=Policy.PRIORITY))
    scheduler.add(request(0, 5, 9, priority=1))
    assert step(scheduler) == [(0, 5, 0)]
    scheduler.add(request(1, 7, 9, priority=0))
    assert step(scheduler) == [(0, 1, 5), (1, 7, 0)]
    assert step(scheduler) == [(0, 1, 6), (1, 1, 7)]
    assert step(scheduler) == [(1, 1, 8)]


def test_who_preempts_itself_ends_the_step() -> None:
    scheduler = BatchScheduler(replace(TIGHT, policy=Policy.PRIORITY))
    scheduler.add(request(0, 7, 9, priority=1))
    assert step(scheduler) == [(0, 7, 0)]
    scheduler.add(request(1, 7, 9, priority=0))
    assert step(scheduler) == [(0, 1, 7), (1, 7, 0)]
    assert step(scheduler) == []
    assert step(scheduler) == [(1, 1, 7)]


def test_the_urgent_overtake_in_the_queue() -> None:
    rules = replace(RULES, policy=Policy.PRIORITY, max_num_seqs=1)
    late = request(0, 2, 1, priority=5), request(1, 2, 1, priority=5), request(2, 2, 1)
    assert run(rules, *late) == [[(2, 2, 0)], [(0, 2, 0)], [(1, 2, 0)]]


@pytest.mark.parametrize(
    ("changed", "admitted"),
    [
        ({}, []),  # nine tokens are three blocks, two are free
        ({"scheduler_reserve_full_isl": False}, [(1, 4, 0)]),  # the first chunk is one
        ({"scheduler_reserve_full_isl": False, "watermark": 0.5}, []),  # two must stay free
    ],
)
def test_what_must_be_free_for_one_more(
    changed: dict[str, object], admitted: list[tuple[int, int, int]]
) -> None:
    scheduler = BatchScheduler(replace(TIGHT, max_num_batched_tokens=5, **changed))
    scheduler.add(request(0, 5, 9))
    assert step(scheduler) == [(0, 5, 0)]
    scheduler.add(request(1, 9, 1))
    assert step(scheduler) == [(0, 1, 5), *admitted]


def test_the_watermark_does_not_bind_in_an_empty_engine() -> None:
    assert run(replace(TIGHT, watermark=0.9), request(0, 9, 1)) == [[(0, 9, 0)]]


def test_a_foreseen_end_takes_no_step_more() -> None:
    rules = replace(RULES, async_scheduling=True)
    assert run(rules, request(0, 4, 2)) == [[(0, 4, 0)], [(0, 1, 4)], []]


def test_a_stop_token_comes_too_late_for_the_next_step() -> None:
    rules = replace(RULES, async_scheduling=True)
    stopped = request(0, 4, 2, max_outputs=9)
    assert run(rules, stopped) == [[(0, 4, 0)], [(0, 1, 4)], [(0, 1, 5)]]
    assert stopped.token_runs == [(0, 1)]


def test_what_comes_after_a_stop_is_nobodys() -> None:
    scheduler = BatchScheduler(replace(RULES, async_scheduling=True))
    scheduler.add(stopped := request(0, 4, 1, max_outputs=9))
    first, last = scheduler.schedule(), scheduler.schedule()
    assert shape(last) == [(0, 1, 4)]
    assert scheduler.update(first) == [stopped]
    assert scheduler.update(last) == []
    assert (stopped.num_tokens, stopped.last_step) == (5, 0)


def test_a_block_can_be_hit_once_its_tokens_are_known() -> None:
    """Its last token is sampled while the step that computes it is made already."""
    scheduler = BatchScheduler(replace(RULES, async_scheduling=True))
    scheduler.add(request(0, 3, 9, text="same"))
    scheduler.schedule()
    scheduler.add(request(1, 6, 9, text="same"))
    assert shape(scheduler.schedule()) == [(0, 1, 3), (1, 6, 0)]


def test_the_last_full_block_can_be_hit_when_its_request_has_ended() -> None:
    scheduler = BatchScheduler(replace(RULES, async_scheduling=True))
    scheduler.add(ended := request(0, 3, 2, text="same"))
    first, last = scheduler.schedule(), scheduler.schedule()
    assert scheduler.update(first) == []
    assert scheduler.update(last) == [ended]
    scheduler.add(request(1, 6, 9, text="same"))
    assert shape(scheduler.schedule()) == [(1, 2, 4)]


def test_a_token_still_comes_after_a_preemption() -> None:
    scheduler = BatchScheduler(replace(TIGHT, async_scheduling=True))
    oldest, newest = request(0, 8, 6), request(1, 8, 2)
    scheduler.add(oldest)
    scheduler.add(newest)
    before, last = scheduler.schedule(), scheduler.schedule()
    assert shape(before) == [(0, 8, 0), (1, 8, 0)]
    assert shape(last) == [(0, 1, 8)]
    assert last.preempted == [newest]
    assert scheduler.update(before) == []
    assert (newest.num_tokens, newest.num_pending) == (9, 0)
    assert scheduler.num_unfinished == 2


def test_a_preempted_request_can_end() -> None:
    scheduler = BatchScheduler(replace(TIGHT, async_scheduling=True))
    scheduler.add(request(0, 8, 6))
    scheduler.add(newest := request(1, 8, 1, max_outputs=9))
    before, last = scheduler.schedule(), scheduler.schedule()
    assert last.preempted == [newest]
    assert scheduler.update(before) == [newest]
    assert scheduler.num_unfinished == 1
    scheduler.check_integrity()


def test_an_infinite_pool_preempts_nobody() -> None:
    everybody = [request(number, 40, 40) for number in range(4)]
    rules = replace(RULES, num_blocks=None, max_num_batched_tokens=200)
    assert len(run(rules, *everybody)) == 40


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"block_size": 0}, "block_size must be at least 1, not 0"),
        ({"max_num_seqs": 9}, "max_num_batched_tokens 8 is below max_num_seqs 9"),
        ({"long_prefill_token_threshold": -1}, "long_prefill_token_threshold -1 is below 0"),
        ({"watermark": 1.0}, r"watermark 1.0 is no share in \[0, 1\)"),
    ],
)
def test_rules_that_vllm_would_refuse(changed: dict[str, object], message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        replace(RULES, **changed)


@pytest.mark.parametrize(("num_prompt", "num_outputs", "limit"), [(0, 1, 1), (1, 0, 1), (1, 3, 2)])
def test_what_is_no_request(num_prompt: int, num_outputs: int, limit: int) -> None:
    with pytest.raises(LayoutError, match="make no request"):
        request(0, num_prompt, num_outputs, max_outputs=limit)


def test_what_a_pool_can_hold() -> None:
    assert TIGHT.can_hold(16)
    assert not TIGHT.can_hold(17)
    assert replace(TIGHT, num_blocks=None).can_hold(10**9)


def test_linear_step_time_by_hand() -> None:
    # a prefill of 3 behind 10: 3 * 10 + 6 pairs; a decode behind 20: 21 pairs
    made = Step(new_tokens=[3, 1], context_tokens=[10, 20])
    assert (made.num_new_tokens, made.num_pairs, made.num_decode_context_tokens) == (4, 57, 20)
    assert (made.num_sequences, made.num_decodes, made.num_prefills) == (2, 1, 1)
    times = LinearStepTime(
        fixed_s=100,
        per_token_s=10,
        per_pair_s=1,
        per_decode_context_token_s=0.5,
        per_sequence_s=0.25,
    )
    assert times.seconds(made) == 100 + 40 + 57 + 10 + 0.5


CHUNKS = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 40)), min_size=1)


@given(CHUNKS)
def test_pairs_are_those_that_attention_sees(chunks: list[tuple[int, int]]) -> None:
    new_tokens, context_tokens = zip(*chunks, strict=True)
    seen = [
        position + 1
        for new, context in chunks
        for position in range(context, context + new)  # each token sees itself and all before it
    ]
    assert Step(new_tokens, context_tokens).num_pairs == sum(seen)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"fixed_s": 0.0}, "fixed_s must be above 0: no step is for free"),
        ({"per_pair_s": -1.0}, "per_pair_s must be a finite number from 0, not -1.0"),
        ({"per_token_s": float("nan")}, "per_token_s must be a finite number from 0, not nan"),
    ],
)
def test_times_that_make_no_sense(changed: dict[str, float], message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        replace(LinearStepTime(1.0, 0.0, 0.0, 0.0, 0.0), **changed)
