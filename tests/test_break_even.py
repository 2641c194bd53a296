"""The break-even model against real caches over the same task, and hand-worked points."""

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.experiments.study.break_even import (
    Rates,
    Task,
    Work,
    break_even_calls,
    break_even_rate,
    cost,
    zoned_saving,
)
from duramen.layout.errors import LayoutError
from duramen.serving.kv.radix import RadixCache

TASK = Task(root=40, trunk=60, reply=7, observation=13, num_calls=9, k=3, artifact=15)
RATES = Rates(Decimal(3), Decimal("0.3"), Decimal(3))


def served(prompts: Iterator[tuple[list[int], list[int]]]) -> Work:
    """What a radix tree that holds everything computes and reads; (prompt, reply) in order. The
    last sampled token and the last prompt token are computed again: they are left out here."""
    tree, computed, read = RadixCache(), 0, 0
    for prompt, reply in prompts:
        hit = tree.match([*prompt]).num_tokens
        computed += len(prompt) - hit
        read += hit
        tree.insert([*prompt, *reply])
    return Work(computed, read)


def stable_prompts(task: Task) -> Iterator[tuple[list[int], list[int]]]:
    fresh = count()
    prompt = [next(fresh) for _ in range(round(task.root + task.trunk))]
    for _ in range(task.num_calls):
        reply = [next(fresh) for _ in range(round(task.reply))]
        yield list(prompt), reply
        new = task.observation + task.change_rate * task.artifact
        prompt += [*reply, *(next(fresh) for _ in range(round(new)))]


def zoned_prompts(task: Task) -> Iterator[tuple[list[int], list[int]]]:
    fresh = count()
    root = [next(fresh) for _ in range(round(task.root))]
    trunk = [next(fresh) for _ in range(round(task.trunk))]
    turns: list[list[int]] = []
    for call in range(task.num_calls):
        if call and task.change_rate:  # 1: in every call
            kept = round(task.trunk * (1 - task.behind))
            trunk = trunk[:kept] + [next(fresh) for _ in range(round(task.trunk) - kept)]
        num_old = max(len(turns) - task.k, 0)
        leaf = [token for turn in turns[num_old // task.step * task.step :] for token in turn]
        reply = [next(fresh) for _ in range(round(task.reply))]
        yield [*root, *trunk, *leaf], reply
        turns.append([*reply, *(next(fresh) for _ in range(round(task.observation)))])


@pytest.mark.parametrize("change_rate", [0.0, 1.0])
@given(
    st.integers(1, 30),
    st.integers(1, 5),
    st.integers(1, 9),
    st.integers(1, 9),
    st.integers(1, 12),
    st.integers(1, 5),
    st.integers(1, 4),
)
def test_both_layouts_are_what_a_cache_computes(
    change_rate, root, quarters, reply, observation, num_calls, k, step
):
    task = Task(
        root, 4.0 * quarters, reply, observation, num_calls, k, quarters, step, 0.5, change_rate
    )
    assert task.stable() == served(stable_prompts(task))
    assert task.zoned() == served(zoned_prompts(task))


def test_hand_worked():
    """Root 40 and trunk 60, then 8 calls of 13 new tokens behind what grew by 20 each."""
    stable = TASK.stable()
    assert stable.computed == 100 + 8 * 13
    assert stable.read == sum(100 + 7 + 20 * i for i in range(8))
    zoned = TASK.zoned()
    assert zoned.computed == 100 + 3 * 13 + 5 * 60
    assert zoned.read == (107 + 127 + 147) + 5 * 100
    assert cost(stable, RATES) == 3 * 204 + Decimal("0.3") * Decimal(1416)


def test_where_nothing_is_cheap_to_read_zoned_wins_by_sending_less():
    """Reads at the price of computing: only the prompt's length counts."""
    even = Rates(Decimal(1), Decimal(1), Decimal(1))
    assert zoned_saving(replace(TASK, num_calls=40), even) > 0
    assert break_even_calls(TASK, even) == 5  # the first call whose leaf has lost a turn
    free = Rates(Decimal(1), Decimal(0), Decimal(1))
    assert break_even_calls(TASK, free) is None  # reads are free: growing costs nothing


def test_a_leaf_that_slides_is_not_marked_for_the_cache():
    """Root and trunk are written and read at their prices, each call's turns are plain input."""
    marked = Rates(Decimal("3.75"), Decimal("0.3"), Decimal(3), marks=True)
    work = TASK.zoned(marks=True)
    assert work == (100, 8 * 100, (20 + 40 + 60) + 5 * 60)
    dollars = Decimal("3.75") * 100 + Decimal("0.3") * 800 + Decimal(3) * 420
    assert cost(work, marked) == dollars
    assert replace(TASK, step=2).zoned(marks=True) == replace(TASK, step=2).zoned()


@given(st.floats(0, 1), st.integers(2, 60), st.integers(1, 6))
def test_the_break_even_rate_is_where_both_cost_the_same(behind, num_calls, k):
    task = replace(TASK, behind=behind, num_calls=num_calls, k=k)
    rate = break_even_rate(task, RATES)
    savings = [zoned_saving(replace(task, change_rate=r), RATES) for r in (0.0, 1.0)]
    if rate is None:
        assert (savings[0] > 0) == (savings[1] > 0)
    else:
        assert 0 <= rate <= 1
        assert abs(zoned_saving(replace(task, change_rate=rate), RATES)) < Decimal("1e-6")


@given(st.integers(1, 6), st.floats(0, 1))
def test_the_break_even_length_is_the_first_one(k, change_rate):
    task = replace(TASK, k=k, change_rate=change_rate)
    saves = [zoned_saving(replace(task, num_calls=n), RATES) > 0 for n in range(1, 61)]
    expected = saves.index(True) + 1 if True in saves else None
    assert break_even_calls(task, RATES, limit=60) == expected


@pytest.mark.parametrize("wrong", [{"root": -1}, {"k": 0}, {"behind": 1.5}, {"num_calls": 0}])
def test_tasks_that_make_no_sense(wrong):
    with pytest.raises(LayoutError, match="is no task"):
        replace(TASK, **wrong)
