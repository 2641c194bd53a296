"""A plan begun at one call against the same session without it, both served whole."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

from duramen.experiments.why.what_if.bills import Bill
from duramen.experiments.why.what_if.moments import break_even

Pair = tuple[Bill, Bill]


@dataclass(frozen=True)
class Net:
    """USD of one payer. `now`: paid in the call at which the plan begins; `later`: saved in all
    the `num_later` calls behind it. GPU seconds beside, None elsewhere."""

    call: int
    now: Decimal
    later: Decimal
    num_later: int
    now_s: float | None = None
    later_s: float | None = None

    @property
    def per_call(self) -> Decimal | None:
        return self.later / self.num_later if self.num_later else None

    @property
    def break_even_calls(self) -> int | None:
        return break_even(self.now, self.later, self.num_later)

    @property
    def net(self) -> Decimal:
        return self.later - self.now

    def as_json(self) -> dict[str, Any]:
        per_call_s = None
        if self.later_s is not None and self.num_later:
            per_call_s = self.later_s / self.num_later
        return {
            "call": self.call,
            "now_usd": float(self.now),
            "saved_usd_per_call": None if self.per_call is None else float(self.per_call),
            "break_even_calls": self.break_even_calls,
            "num_later_calls": self.num_later,
            "net_usd": float(self.net),
            "now_s": self.now_s,
            "saved_s_per_call": per_call_s,
        }


@dataclass(frozen=True)
class Tried:
    """`first`: the call at which the plan begins. `without`, `with_it`: all calls of the session;
    those that the template refuses on one side are left out of both."""

    first: int
    without: Sequence[Bill]
    with_it: Sequence[Bill]

    @cached_property
    def _pairs(self) -> Sequence[Pair]:
        others = {bill.call: bill for bill in self.with_it}
        return [(bill, others[bill.call]) for bill in self.without if bill.call in others]

    @cached_property
    def _later(self) -> Sequence[Pair]:
        return [pair for pair in self._pairs if pair[0].call > self.first]

    @cached_property
    def _now(self) -> Pair | None:
        return next((pair for pair in self._pairs if pair[0].call == self.first), None)

    @property
    def num_later(self) -> int:
        return len(self._later)

    @property
    def computed_now(self) -> int:
        """Tokens that the first call computes more."""
        return self._now[1].computed - self._now[0].computed if self._now else 0

    @property
    def dropped_now(self) -> int:
        """Tokens that the first call no longer reads from the cache."""
        return self._now[0].cached - self._now[1].cached if self._now else 0

    @property
    def shorter_later(self) -> int:
        """Prompt tokens that later calls are shorter by, in all."""
        return sum(a.num_tokens - b.num_tokens for a, b in self._later)

    @property
    def fewer_later(self) -> int:
        """Tokens that later calls compute less, in all."""
        return sum(a.computed - b.computed for a, b in self._later)

    def net(self, payer: str) -> Net:
        now, now_s = Decimal(0), None
        is_timed = bool(self._pairs) and payer in self._pairs[0][0].seconds
        if self._now:
            now = self._now[1].usd[payer] - self._now[0].usd[payer]
        later = sum((a.usd[payer] - b.usd[payer] for a, b in self._later), Decimal(0))
        later_s = None
        if is_timed:
            now_s = self._now[1].seconds[payer] - self._now[0].seconds[payer] if self._now else 0.0
            later_s = sum(a.seconds[payer] - b.seconds[payer] for a, b in self._later)
        return Net(self.first, now, later, self.num_later, now_s, later_s)

    def total(self, unit_tokens: int) -> Mapping[str, int]:
        """Tokens over all calls of the session, less than without the plan. A call that computes
        less than a match unit more does so by chance: it ends elsewhere in one."""
        computed = [(a.computed, b.computed) for a, b in self._pairs]
        return {
            "shorter_tokens": sum(a.num_tokens - b.num_tokens for a, b in self._pairs),
            "fewer_computed_tokens": sum(a - b for a, b in computed),
            "num_calls_that_compute_more": sum(b - a >= unit_tokens for a, b in computed),
        }

    def total_usd(self, payer: str) -> Decimal:
        return sum((a.usd[payer] - b.usd[payer] for a, b in self._pairs), Decimal(0))

    def as_json(self) -> dict[str, Any]:
        num = self.num_later
        return {
            "call": self.first,
            "computed_tokens_now": self.computed_now,
            "dropped_cached_tokens_now": self.dropped_now,
            "num_later_calls": num,
            "shorter_tokens_per_call": self.shorter_later / num if num else None,
            "fewer_computed_tokens_per_call": self.fewer_later / num if num else None,
        }
