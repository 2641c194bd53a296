"""What beginning at a call costs and saves, when that pays, and how it is said."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from what_if_cases import AUTOMATIC, DROP, MARKED

from duramen.experiments.prices.book import Entry
from duramen.experiments.prices.call import Usage
from duramen.experiments.prices.rules import CacheRules
from duramen.experiments.why.what_if.bills import Bill
from duramen.experiments.why.what_if.moments import Begun, Weights, break_even, weights_of
from duramen.experiments.why.what_if.net import Net, Tried
from duramen.experiments.why.what_if.verdict import in_money, in_tokens
from duramen.experiments.why.what_if.what_if import chosen


def test_219_thousand_cached_tokens_dropped() -> None:
    """CASES 10: the prompt got smaller and the bill went from $0.24 to $1.83."""
    before = Usage(cached_read=226_000, write_1h=24_350)
    after = Usage(cached_read=7_000, write_1h=228_575)
    assert MARKED.cost(before) == Decimal("0.24")
    assert MARKED.cost(after) == Decimal("1.83")
    assert after.prompt < before.prompt
    moment = Begun(
        call=12,
        computed=after.written - before.written,
        dropped=before.cached_read - after.cached_read,
        shorter=before.prompt - after.prompt,
        num_later=9,
        later_computed=0,
        later_read=9 * (before.prompt - after.prompt),
    )
    assert moment.dropped == 219_000
    weights = weights_of(MARKED)
    assert moment.now(weights) == Decimal("1.59") * 10**6
    assert moment.later(weights) == 9 * 14_775 * Decimal("0.20")
    assert moment.break_even(weights) == 539  # 1.59 / 0.002955 is 538.07
    assert moment.net(weights) < 0
    later = [Bill(13 + i, 250_350, 250_000, {"p": Decimal(1)}, {}) for i in range(9)]
    shorter = [replace(b, num_tokens=235_575, usd={"p": Decimal("0.997045")}) for b in later]
    tried = Tried(
        12,
        [Bill(12, before.prompt, 226_000, {"p": MARKED.cost(before)}, {}), *later],
        [Bill(12, after.prompt, 7_000, {"p": MARKED.cost(after)}, {}), *shorter],
    )
    assert in_money(tried.net("p")) == (
        "it costs $1.590000 now and saves $0.002955 a call: "
        "it pays after 539 calls, this session had 9 more"
    )


@pytest.mark.parametrize(
    ("now", "later", "num_later", "expected"),
    [
        (219_000, 9 * 3_100, 9, 71),
        (10, 10, 1, 1),
        (11, 10, 1, 2),
        (0, 0, 0, 0),
        (-5, -5, 3, 0),
        (5, 0, 3, None),
        (5, -1, 3, None),
        (5, 0, 0, None),
        (Decimal("0.3"), Decimal("0.1"), 1, 3),
    ],
)
def test_break_even(now: Any, later: Any, num_later: int, expected: int | None) -> None:
    assert break_even(now, later, num_later) == expected


def test_weights() -> None:
    assert weights_of(AUTOMATIC) == Weights(Decimal(4), Decimal("0.20"), 3600)
    assert weights_of(MARKED) == Weights(Decimal(8), Decimal("0.20"), 3600)
    none = Entry("us/none", "2026-12-01", AUTOMATIC.tariff, CacheRules("none"))
    assert weights_of(none) == Weights(Decimal(4), Decimal(4))


def test_calls_are_chosen_for_each_payer() -> None:
    """Where the best one leaves a prompt that is no longer cached, the best of the others, too."""
    early = Begun(1, 10, 110, 100, 9, 0, 900, num_tokens=900)
    late = Begun(5, 10, 60, 50, 5, 0, 250, num_tokens=1500)
    last = Begun(9, 0, 500, 500, 0, 0, 0, num_tokens=1100)
    cheap, dear = Weights(Decimal(4), Decimal(4)), Weights(Decimal(10), Decimal("0.1"))
    assert [moment.net(cheap) for moment in (early, late, last)] == [4000, 1200, 2000]
    assert [moment.net(dear) for moment in (early, late, last)] == [1, -69, 50]
    assert chosen([early, late, last], [cheap, dear]) == [1, 9]
    assert chosen([early, late], [cheap]) == [1]
    assert chosen([early, late], [cheap._replace(min_tokens=1024)]) == [1, 5]
    assert chosen([early, late], [cheap._replace(min_tokens=9999)]) == [1]
    assert chosen([early, late], [dear, cheap]) == [1]
    assert chosen([early, early], [dear]) == [1]
    assert chosen([], [dear]) == []


def test_a_net_without_later_calls() -> None:
    net = Net(3, Decimal(1), Decimal(0), 0)
    assert net.per_call is None
    assert net.break_even_calls is None
    assert net.as_json()["saved_usd_per_call"] is None


def test_the_verdict_in_words() -> None:
    def tried(now: int, per_call: int, num_later: int) -> Tried:
        without = [Bill(12 + i, 300_000, 280_000, {}, {}) for i in range(num_later + 1)]
        begun_with = Bill(12, 300_000 - per_call, 280_000 - per_call - now, {}, {})
        rest = [replace(b, num_tokens=300_000 - per_call) for b in without[1:]]
        return Tried(12, without, [begun_with, *rest])

    assert in_tokens(DROP, tried(219_000, 3_100, 9)) == (
        "token for token, pruning at call 12 costs 219,000 tokens now and saves 3,100 a call: "
        "it pays after 71 calls, this session had 9 more (222,100 cached tokens are dropped)"
    )
    assert "no call came after it" in in_tokens(DROP, tried(10, 3, 0))
    assert "pays after 1 call," in in_tokens(DROP, tried(3, 3, 2))
    assert "costs nothing now and saves 3 a call: it pays at once" in in_tokens(
        DROP, tried(0, 3, 2)
    )
    assert "and saves nothing later: leave it" in in_tokens(DROP, tried(5, 0, 2))
    assert "costs 5 tokens now and costs 2 a call later: leave it" in in_tokens(
        DROP, tried(5, -2, 2)
    )
