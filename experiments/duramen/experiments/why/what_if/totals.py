"""Sums of a whole log, by payer."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from duramen.experiments.why.what_if.moments import break_even
from duramen.experiments.why.what_if.what_if import Considered


@dataclass(frozen=True)
class Total:
    """Each session at the call that is best for the payer. USD. `net_of_gains`: if the plan is
    left where it loses; `always`: as a rule in all sessions. Calls are those of all sessions
    together, the ones until all of `now` has come back, too."""

    num_sessions: int
    num_gaining: int
    now: Decimal
    later: Decimal
    num_later: int
    net_of_gains: Decimal
    always: Decimal

    @property
    def net(self) -> Decimal:
        return self.later - self.now

    @property
    def per_call(self) -> Decimal | None:
        return self.later / self.num_later if self.num_later else None

    @property
    def break_even_calls(self) -> int | None:
        return break_even(self.now, self.later, self.num_later)

    def as_json(self) -> dict[str, Any]:
        return {
            "num_sessions": self.num_sessions,
            "num_sessions_that_gain": self.num_gaining,
            "now_usd": float(self.now),
            "saved_usd_per_call": None if self.per_call is None else float(self.per_call),
            "break_even_calls": self.break_even_calls,
            "num_later_calls": self.num_later,
            "net_usd": float(self.net),
            "net_usd_where_it_gains": float(self.net_of_gains),
            "always_net_usd": float(self.always),
        }


def totals(considered: Sequence[Considered]) -> dict[str, Total]:
    """By payer, of the sessions that the plan changes."""
    changed = [each for each in considered if each.always is not None]
    names = changed[0].payers.names if changed else []
    return {name: _total(changed, name) for name in names}


def _total(changed: Sequence[Considered], payer: str) -> Total:
    nets = [each.best[payer] for each in changed if payer in each.best]
    gains = [net.net for net in nets if net.net > 0]
    always = (each.always.total_usd(payer) for each in changed if each.always)
    return Total(
        num_sessions=len(nets),
        num_gaining=len(gains),
        now=sum((net.now for net in nets), Decimal(0)),
        later=sum((net.later for net in nets), Decimal(0)),
        num_later=sum(net.num_later for net in nets),
        net_of_gains=sum(gains, Decimal(0)),
        always=sum(always, Decimal(0)),
    )
