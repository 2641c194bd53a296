"""Break-even curves around a task of the study's own typical sizes, one thing varied at a time.

A curve shows what zoned costs as a share of stable: below 1 zoned is cheaper.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from decimal import Decimal
from statistics import median
from typing import Any

from duramen.experiments.layouts.catalogue import Layout, LayoutName
from duramen.experiments.prices.book import Entry
from duramen.experiments.study.break_even import (
    Rates,
    Task,
    break_even_calls,
    break_even_rate,
    cost,
    zoned_saving,
)
from duramen.experiments.study.results import LayoutResult

RATES = [number / 20 for number in range(21)]
NUM_CALLS = [5, 10, 15, 20, 30, 40, 60, 80, 120, 160, 240]
TURNS = [1, 2, 4, 8, 16]
OWN_GPU = "own GPU (tokens computed)"
TRUNKS = [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000]


def typical_task(results: Sequence[LayoutResult]) -> Task | None:
    """The medians over the sessions of the first `zoned` layout; None where there is none that
    lifted an artifact."""
    zoned = next((r for r in results if r.label.startswith(LayoutName.ZONED.value)), None)
    if zoned is None or not any(row.trunk_tokens for row in zoned.calls):
        return None
    grown = next((r for r in results if r.label == LayoutName.STABLE.value), None)
    layout = Layout.parse(zoned.label)
    assert layout.k is not None
    assert layout.step is not None
    last = {row.session: row for row in zoned.calls}.values()
    num_calls = sum(session.num_calls for session in zoned.sessions)
    num_changes = sum(session.num_trunk_changes for session in zoned.sessions)
    reply = median(row.output_tokens for row in zoned.calls)
    trunk = median(row.trunk_tokens for row in last)
    return Task(
        root=median(row.root_tokens for row in last),
        trunk=trunk,
        reply=reply,
        observation=max(_growth(grown or zoned) - reply, 0.0),
        num_calls=max(2, round(median(session.num_calls for session in zoned.sessions))),
        k=layout.k,
        step=layout.step,
        artifact=trunk / 4,
        change_rate=num_changes / num_calls,
    )


def _growth(result: LayoutResult) -> float:
    """Median tokens that a call adds to its session's prompt."""
    growths = [
        after.prompt_tokens - before.prompt_tokens
        for before, after in zip(result.calls, result.calls[1:], strict=False)
        if before.session == after.session
    ]
    return median(growths) if growths else 0.0


def curves(task: Task, prices: Mapping[str, Rates]) -> dict[str, Any]:
    """Costs by change rate, and break-even points, for each price."""
    return {
        "task": asdict(task),
        "change_rates": RATES,
        "num_calls": NUM_CALLS,
        "ks": TURNS,
        "trunks": TRUNKS,
        "prices": {name: _curves_of(task, rates) for name, rates in prices.items()},
    }


def rates_of(entries: Sequence[Entry]) -> dict[str, Rates]:
    """What computed and read prompt tokens cost, USD each, by provider/model; and on a GPU of
    one's own, in tokens computed, where reading costs next to nothing."""
    rates = {}
    for entry in entries:
        prices = entry.tariff.prices
        write = entry.rules.write and getattr(prices, entry.rules.write)
        read = prices.input if prices.cached_read is None else prices.cached_read
        rates[entry.name] = Rates((write or prices.input) / 10**6, read / 10**6)
    return {**rates, OWN_GPU: Rates(Decimal(1), Decimal(0))}


def _curves_of(task: Task, rates: Rates) -> dict[str, Any]:
    saving_at_none = zoned_saving(replace(task, change_rate=0.0), rates)
    return {
        "by_rate": {
            str(k): [_share(replace(task, k=k, change_rate=r), rates) for r in RATES] for k in TURNS
        },
        "by_calls": {
            str(k): [_share(replace(task, k=k, num_calls=n), rates) for n in NUM_CALLS]
            for k in TURNS
        },
        "by_trunk": {
            str(k): [_share(replace(task, k=k, trunk=t, artifact=t / 4), rates) for t in TRUNKS]
            for k in TURNS
        },
        "break_even_rate": break_even_rate(task, rates),
        "zoned_wins_at_rate_0": saving_at_none > 0,
        "break_even_calls": break_even_calls(task, rates),
    }


def _share(task: Task, rates: Rates) -> float:
    return float(cost(task.zoned(), rates) / cost(task.stable(), rates))
