"""The worked examples: to the printed digits, exactly in Decimal, and against a closed form."""

from decimal import Decimal

from duramen.experiments.studies import prompt_order as example
from duramen.experiments.studies.prompt_order import Outcome, order, repetition


def closed_form_of_order():
    """What each call of the stable order repeats of the one before, without any cache."""
    root, trunk = example.ROOT_TOKENS, example.TRUNK_TOKENS
    num_rewritten = len(example.REWRITTEN_ON)
    return (example.NUM_CALLS - 1 - num_rewritten) * (root + trunk) + num_rewritten * root


def test_order():
    found = order()
    assert found.before == Outcome(655_360, 0)
    assert found.after == Outcome(655_360, 495_616)
    assert found.after.num_cached_tokens == closed_form_of_order()
    assert found.after.num_uncached_tokens == 159_744
    assert found.before.cost == Decimal("1.96608")
    assert found.after.cost == Decimal("0.6279168")


def test_order_as_printed():
    found = order()
    assert f"${found.before.cost:.2f}" == "$1.97"
    assert f"${found.after.cost:.2f}" == "$0.63"
    assert f"{found.after.num_cached_tokens / found.after.num_tokens:.1%}" == "75.6%"
    assert f"{found.times_fewer_uncached:.1f}x" == "4.1x"
    assert f"{found.times_cheaper:.1f}x" == "3.1x"


def test_repetition():
    found = repetition()
    assert found.before.cost == Decimal("1.8")
    assert found.after == Outcome(600_000, 574_096)
    assert found.after.num_uncached_tokens == 30_000 - 4_096 == 25_904
    assert found.after.cost == Decimal("0.2499408") < Decimal("0.25")
    assert found.saved == Decimal("1.5500592")


def test_repetition_as_printed():
    found = repetition()
    assert f"${found.before.cost:.2f}" == "$1.80"
    assert f"{found.times_cheaper:.1f}x" == "7.2x"
    month = found.saved * example.TASKS_A_MONTH
    assert month == Decimal("155005.92")
    assert f"${month.quantize(Decimal('1E+3')):,f}" == "$155,000"


def test_repetition_without_the_warm_root_misses_the_quarter_dollar():
    cold = Outcome(600_000, 19 * 30_000)
    assert cold.cost == Decimal("0.261")


def test_repetition_that_ends_with_its_last_block_computes_it_again():
    found = repetition(question_tokens=0)
    assert found.after.num_cached_tokens == 4_096 + 19 * (30_000 - 16)
    assert found.after.cost == Decimal("0.2507616")
