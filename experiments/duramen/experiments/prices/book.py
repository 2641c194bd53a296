"""A book of prices: which models there are, at what price, under which cache rules."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from difflib import get_close_matches

from duramen.experiments.prices.call import Usage
from duramen.experiments.prices.money import Tariff
from duramen.experiments.prices.rules import CacheRules
from duramen.layout.errors import PriceError


@dataclass(frozen=True, slots=True)
class Entry:
    """One model of one provider under one set of cache rules, at the prices of one date.

    `name` is "provider/model", with "+variant" where the provider offers the model with other
    cache rules (a longer life). `key` adds the date. `caveat` is what a reader of a price must
    know: that a discount is not modelled, or ends.
    """

    name: str
    date: str
    tariff: Tariff
    rules: CacheRules
    caveat: str = ""

    @property
    def key(self) -> str:
        return f"{self.name}@{self.date}"

    def cost(self, call: Usage) -> Decimal:
        """USD of one call, exactly. Raises PriceError where a price that it needs is missing.

        Tiers go by the call's own length: cost call by call.
        """
        return self.tariff.cost(call)


@dataclass(frozen=True, slots=True)
class Book:
    """Entries by name. Raises PriceError on two entries of one name."""

    entries: tuple[Entry, ...]
    _by_name: dict[str, Entry] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        for entry in self.entries:
            if entry.name in self._by_name:
                other = self._by_name[entry.name]
                raise PriceError(f"{entry.name} is priced twice: as {other.key} and as {entry.key}")
            self._by_name[entry.name] = entry

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._by_name))

    def entry(self, name: str) -> Entry:
        """The entry of this name or key. Raises PriceError where there is none."""
        found = self._by_name.get(name) or next((e for e in self.entries if e.key == name), None)
        if found is None:
            near = get_close_matches(name, self.names(), n=5, cutoff=0.5)
            known = f"; near it: {', '.join(near)}" if near else ""
            raise PriceError(f"no price for {name!r} among {len(self.entries)}{known}")
        return found
