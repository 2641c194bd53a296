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

TASK = Task(root=40, trunk=64, reply=7, said=20, num_calls=9, k=3, artifact=15, moves=0.0)
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
    prompt = [next(fresh) for _ in range(round(task.root))]
    lifted = task.trunk / (task.num_calls - 1)
    for _ in range(task.num_calls):
        reply = [next(fresh) for _ in range(round(task.reply))]
        yield list(prompt), reply
        new = task.said - task.reply + lifted + task.change_rate * task.artifact
        prompt += [*reply, *(next(fresh) for _ in range(round(new)))]


def zoned_prompts(task: Task) -> Iterator[tuple[list[int], list[int]]]:
    """Everything behind the kept part of the trunk is new in a call that changes or adds to it."""
    fresh = count()
    root = [next(fresh) for _ in range(round(task.root))]
    lifted = round(task.trunk / (task.num_calls - 1))
    trunk: list[int] = []
    turns: list[list[int]] = []
    for call in range(task.num_calls):
        if call:
            kept = round(len(trunk) * (1 - task.behind * task.change_rate))
            trunk = trunk[:kept] + [next(fresh) for _ in range(len(trunk) - kept + lifted)]
        num_old = max(len(turns) - task.k, 0)
        leaf = [token for turn in turns[num_old // task.step * task.step :] for token in turn]
        reply = [next(fresh) for _ in range(round(task.reply))]
        yield [*root, *trunk, *leaf], reply
        turns.append([*reply, *(next(fresh) for _ in range(round(task.said - task.reply)))])


@pytest.mark.parametrize("change_rate", [0.0, 1.0])
@given(
    st.integers(1, 30),
    st.integers(0, 5),
    st.integers(1, 9),
    st.integers(1, 9),
    st.integers(2, 12),
    st.integers(1, 5),
    st.integers(1, 4),
)
def test_both_layouts_are_what_a_cache_computes(
    change_rate, root, lifted, reply, observation, num_calls, k, step
):
    """Lifted in each call, or in none: then the trunk moves in all calls or in none."""
    task = Task(
        root,
        2 * lifted * (num_calls - 1),
        reply,
        reply + observation,
        num_calls,
        k,
        step,
        artifact=3,
        change_rate=change_rate,
        moves=float(lifted > 0),
    )
    assert task.stable() == served(stable_prompts(task))
    assert task.zoned() == served(zoned_prompts(task))


def test_hand_worked():
    """Root 40, then 8 calls: 13 new tokens of the turn and 8 that are lifted."""
    stable = TASK.stable()
    assert stable.computed == 40 + 8 * 21
    assert stable.read == sum(40 + 7 + 28 * i for i in range(8))
    zoned = TASK.zoned()
    assert zoned.computed == 40 + 8 * 8 + 3 * 13 + 5 * 60
    in_trunk = sum(40 + 8 * i for i in range(8))
    assert zoned.read == in_trunk + (7 + 27 + 47)
    assert cost(stable, RATES) == 3 * 208 + Decimal("0.3") * Decimal(stable.read)


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
    in_trunk = sum(40 + 8 * i for i in range(8))
    assert work == (40 + 8 * 8, in_trunk, (20 + 40 + 60) + 5 * 60)
    dollars = Decimal("3.75") * 104 + Decimal("0.3") * in_trunk + Decimal(3) * 420
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
def test_the_break_even_length_is_the_one_from_which_on_it_holds(k, change_rate):
    """Longer tasks lift as much per call."""
    task = replace(TASK, k=k, change_rate=change_rate)
    longer = [task.lasting(n) for n in range(1, 61)]
    assert [each.trunk for each in longer] == [8.0 * (n - 1) for n in range(1, 61)]
    saves = [zoned_saving(each, RATES) > 0 for each in longer]
    num_losing = max((n + 1 for n, saving in enumerate(saves) if not saving), default=0)
    expected = num_losing + 1 if num_losing < 60 else None
    assert break_even_calls(task, RATES, limit=60) == expected


@pytest.mark.parametrize(
    "wrong", [{"root": -1}, {"k": 0}, {"behind": 1.5}, {"num_calls": 0}, {"said": 1}]
)
def test_tasks_that_make_no_sense(wrong):
    with pytest.raises(LayoutError, match="is no task"):
        replace(TASK, **wrong)
