"""What a call costs, to the last digit: prices, tiers, and usage as providers report it."""

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.experiments.prices.call import Usage
from duramen.experiments.prices.money import Prices, Tariff, Tier
from duramen.experiments.prices.rules import CacheRules
from duramen.layout.errors import PriceError

BASE = Prices(Decimal(2), Decimal(10), Decimal("0.2"), write_5m=Decimal("2.5"))
HIGH = Prices(Decimal(4), Decimal(15), Decimal("0.4"), write_5m=Decimal(5))
WHOLE = Tariff("test/whole", BASE, (Tier(1000, HIGH, "request"),))
EXCESS = Tariff("test/excess", BASE, (Tier(1000, HIGH, "excess"),))


# What a call costs


def test_every_kind_of_token_at_its_price():
    prices = Prices(*map(Decimal, ("1", "2", "4", "8", "16", "32")))
    tariff = Tariff("test/all", prices)
    for field, price in zip(
        ("uncached", "output", "cached_read", "write_5m", "write_30m", "write_1h"),
        (1, 2, 4, 8, 16, 32),
        strict=True,
    ):
        assert tariff.cost(Usage(**{field: 1_000_000})) == price
    assert tariff.cost(Usage(1, 1, 1, 1, 1, 1)) == Decimal("0.000063")
    assert tariff.cost(Usage()) == 0


def test_money_is_never_rounded():
    price = Decimal("0.1234567890123456789012345678901234567")  # more digits than a float or 28
    tariff = Tariff("test/fine", Prices(price, Decimal(0)))
    assert tariff.cost(Usage(uncached=1_000_000)) == price
    assert str(tariff.cost(Usage(uncached=7))) == "8.641975230864197523086419752308641969E-7"


@pytest.mark.parametrize(
    ("uncached", "whole", "excess"),
    [
        (1000, "0.002", "0.002"),  # at the threshold nothing changes
        (1001, "0.004004", "0.002004"),  # all of it, or the one token beyond
        (3000, "0.012", "0.01"),
    ],
)
def test_a_tier_is_crossed(uncached, whole, excess):
    usage = Usage(uncached=uncached)
    assert WHOLE.cost(usage) == Decimal(whole)
    assert EXCESS.cost(usage) == Decimal(excess)


def test_the_whole_request_pays_the_higher_prices_with_its_output():
    """100 x 4 + 901 x 0.4 + 10 x 15; and 99 x 2 + 1 x 4 + 901 x 0.2 + 10 x 10."""
    usage = Usage(uncached=100, cached_read=901, output=10)
    assert WHOLE.cost(usage) == Decimal("0.0009104")
    assert EXCESS.cost(usage) == Decimal("0.0004822")


def test_cached_tokens_count_towards_the_tier():
    assert WHOLE.cost(Usage(cached_read=1000)) == Decimal("0.0002")
    assert WHOLE.cost(Usage(cached_read=1001)) == Decimal("0.0004004")


def test_the_excess_is_what_stands_last():
    """800 read, 300 written, 100 plain: 200 of the written and the plain lie beyond 1,000."""
    usage = Usage(uncached=100, cached_read=800, write_5m=300, output=7)
    assert dict(EXCESS.split(usage)) == {
        0: Usage(cached_read=800, write_5m=200, output=7),
        1: Usage(write_5m=100, uncached=100),
    }


def test_three_levels():
    tiers = (Tier(100, HIGH, "excess"), Tier(200, BASE, "excess"))
    parts = dict(Tariff("test/three", BASE, tiers).split(Usage(uncached=250)))
    assert parts == {0: Usage(100), 1: Usage(100), 2: Usage(50)}
    whole = replace(WHOLE, tiers=(Tier(100, HIGH), Tier(200, BASE)))
    assert dict(whole.split(Usage(uncached=201))) == {2: Usage(201)}


def test_tiers_must_ascend_and_agree():
    for tiers in [(Tier(5, HIGH), Tier(5, HIGH)), (Tier(9, HIGH), Tier(5, HIGH)), (Tier(0, HIGH),)]:
        with pytest.raises(PriceError, match="test/t: tiers must ascend"):
            Tariff("test/t", BASE, tiers)
    with pytest.raises(PriceError, match="not both"):
        Tariff("test/t", BASE, (Tier(5, HIGH), Tier(9, HIGH, "excess")))


COUNTS = st.integers(0, 2000)
USAGES = st.builds(Usage, COUNTS, COUNTS, COUNTS, st.just(0), st.just(0), COUNTS)


@given(usage=USAGES)
def test_a_split_loses_no_token(usage):
    for tariff in (WHOLE, EXCESS):
        assert sum((part for _, part in tariff.split(usage)), Usage()) == usage


@given(usage=USAGES)
def test_the_excess_token_by_token(usage):
    """The slow twin: the prompt written out, a price for each position."""
    prompt = ["cached_read"] * usage.cached_read + ["write_5m"] * usage.write_5m
    prompt += ["input"] * usage.uncached
    total = sum(
        (getattr(HIGH if place >= 1000 else BASE, name) for place, name in enumerate(prompt)),
        usage.output * BASE.output,
    )
    assert EXCESS.cost(usage) == total / 10**6


def test_a_missing_price_fails_only_where_it_is_needed():
    assert WHOLE.cost(Usage(uncached=1)) == Decimal("0.000002")
    with pytest.raises(
        PriceError, match="test/whole has no price 'write_1h', and 5 tokens need one"
    ):
        WHOLE.cost(Usage(write_1h=5))
    with pytest.raises(PriceError, match="no price 'write_1h' above 1000 tokens"):
        WHOLE.cost(Usage(write_1h=1001))


def test_negative_tokens_are_refused():
    for field in Usage.__dataclass_fields__:
        with pytest.raises(PriceError, match="negative tokens"):
            Usage(**{field: -1})


# What a provider reports


def test_reported_input_includes_the_cached_tokens_or_not():
    openai = CacheRules("breakpoints", 1024, 1800.0, write="write_30m")
    assert openai.from_report(2600, 2000, 400, 9) == Usage(200, 2000, write_30m=400, output=9)
    anthropic = replace(openai, write="write_5m", reported_input_includes_cached=False)
    assert anthropic.from_report(50, 100_000, 0, 9) == Usage(50, 100_000, output=9)


def test_a_report_that_cannot_be():
    rules = CacheRules("automatic", 1024, 300.0)
    with pytest.raises(PriceError, match="negative tokens"):
        rules.from_report(100, 101, 0, 0)
    with pytest.raises(PriceError, match="5 tokens are reported as written to a cache that bills"):
        rules.from_report(100, 0, 5, 0)
