"""Prices per million tokens, and what they make of a usage. Decimal throughout, never rounded."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from decimal import Context, Decimal, Inexact
from itertools import pairwise
from typing import Literal

from duramen.experiments.prices.call import Usage
from duramen.layout.errors import PriceError

EXACT = Context(prec=120, traps=[Inexact])  # far more digits than a price times tokens has

# a usage's field and the price that it is billed at
BILLED_AT = {
    "uncached": "input",
    "cached_read": "cached_read",
    "write_5m": "write_5m",
    "write_30m": "write_30m",
    "write_1h": "write_1h",
    "output": "output",
}


@dataclass(frozen=True, slots=True)
class Prices:
    """USD per million tokens; None where the source gives no price."""

    input: Decimal
    output: Decimal
    cached_read: Decimal | None = None
    write_5m: Decimal | None = None
    write_30m: Decimal | None = None
    write_1h: Decimal | None = None


@dataclass(frozen=True, slots=True)
class Tier:
    """Other prices for prompts of more than `above` tokens.

    They hold for the whole call, its output included, or for the prompt's tokens beyond `above`
    only; which tokens those are follows their order in the prompt (see Usage).
    """

    above: int
    prices: Prices
    applies_to: Literal["request", "excess"] = "request"


@dataclass(frozen=True, slots=True)
class Tariff:
    """A model's prices and its tiers, lowest first. `name` is what an error calls it.

    Raises PriceError if the tiers do not ascend or do not all apply to the same.
    """

    name: str
    prices: Prices
    tiers: tuple[Tier, ...] = ()

    def __post_init__(self) -> None:
        ascending = all(low.above < high.above for low, high in pairwise(self.tiers))
        if not ascending or any(tier.above < 1 for tier in self.tiers):
            raise PriceError(f"{self.name}: tiers must ascend from above 0 tokens")
        if len({tier.applies_to for tier in self.tiers}) > 1:
            raise PriceError(f"{self.name}: tiers apply to the request or to the excess, not both")

    def split(self, call: Usage) -> Iterator[tuple[int, Usage]]:
        """A call's tokens by level: 0 for the base prices, then the tiers from 1."""
        level = sum(call.prompt > tier.above for tier in self.tiers)
        if not level or self.tiers[0].applies_to == "request":
            yield level, call
            return
        limits = [0, *(tier.above for tier in self.tiers[:level]), call.prompt]
        for number, (start, end) in enumerate(pairwise(limits)):
            yield number, _part(call, start, end)

    def cost(self, call: Usage) -> Decimal:
        """USD of one call, exactly. Raises PriceError where a price that it needs is missing."""
        total = Decimal(0)
        for level, usage in self.split(call):
            prices = self.tiers[level - 1].prices if level else self.prices
            total = EXACT.add(total, self._cost(usage, prices, level))
        return total

    def _cost(self, usage: Usage, prices: Prices, level: int) -> Decimal:
        total = Decimal(0)
        for field, price_name in BILLED_AT.items():
            num_tokens = getattr(usage, field)
            if not num_tokens:
                continue
            price = getattr(prices, price_name)
            if price is None:
                tier = f" above {self.tiers[level - 1].above} tokens" if level else ""
                raise PriceError(
                    f"{self.name} has no price '{price_name}'{tier}, and {num_tokens} tokens need "
                    "one: add it to the price file"
                )
            total = EXACT.add(total, EXACT.multiply(price, Decimal(num_tokens)))
        return EXACT.scaleb(total, Decimal(-6))


def _part(call: Usage, start: int, end: int) -> Usage:
    """The tokens that stand in [start, end) of the prompt; output goes with its beginning."""
    order: Sequence[str] = ("cached_read", "write_5m", "write_30m", "write_1h", "uncached")
    assert {*order, "output"} == {field.name for field in fields(Usage)}
    part = {"output": 0 if start else call.output}
    begin = 0
    for name in order:
        num_tokens = getattr(call, name)
        part[name] = max(min(begin + num_tokens, end) - max(begin, start), 0)
        begin += num_tokens
    return Usage(**part)
