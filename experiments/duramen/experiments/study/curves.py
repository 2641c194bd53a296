"""Break-even curves around a task of the study's own typical sizes, one thing varied at a time.

A curve shows what zoned costs as a share of stable: below 1 zoned is cheaper.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from decimal import Decimal
from itertools import pairwise
from statistics import mean
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
from duramen.experiments.study.results import CallRow, LayoutResult

RATES = [number / 20 for number in range(21)]
NUM_CALLS = [5, 10, 15, 20, 30, 40, 60, 80, 120, 160, 240]
TURNS = [1, 2, 4, 8, 16]
OWN_GPU = "own GPU (tokens computed)"
TRUNKS = [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000]


def typical_task(results: Sequence[LayoutResult]) -> Task | None:
    """A task with the means of the sessions in which the first `zoned` layout lifted something;
    None where it lifted nothing. Means, because a few long outputs are most of what is read."""
    zoned = _first(results, LayoutName.ZONED)
    stable = _first(results, LayoutName.STABLE)
    rows = _by_session(zoned) if zoned else {}
    lifting = {
        name: each
        for name, each in rows.items()
        if len(each) > 1 and any(row.trunk_tokens for row in each)
    }
    if zoned is None or stable is None or not lifting:
        return None
    layout = Layout.parse(zoned.label)
    assert layout.k is not None
    assert layout.step is not None
    pairs = [pair for each in lifting.values() for pair in pairwise(each)]
    calls = [row for each in lifting.values() for row in each]
    sums = [session for session in zoned.sessions if session.session_id in lifting]
    num_changes = sum(session.num_trunk_changes for session in sums)
    reply = mean(row.output_tokens for row in calls)
    said = max(_turn_tokens(lifting.values(), layout), reply)
    num_calls = max(2, round(mean(len(each) for each in lifting.values())))
    trunk = 2 * mean(after.trunk_tokens for _, after in pairs)  # it grows evenly
    grown = [each for name, each in _by_session(stable).items() if name in lifting]
    read_again = max(_growth(grown) - said - trunk / (num_calls - 1), 0.0)
    return Task(
        root=mean(row.root_tokens for row in calls),
        trunk=trunk,
        reply=reply,
        said=said,
        num_calls=num_calls,
        k=layout.k,
        step=layout.step,
        artifact=read_again * len(pairs) / num_changes if num_changes else 0.0,
        behind=_behind(lifting.values()),
        change_rate=min(num_changes / len(pairs), 1.0),
        moves=mean(before.trunk_tokens != after.trunk_tokens for before, after in pairs),
    )


def _turn_tokens(sessions: Iterable[Sequence[CallRow]], layout: Layout) -> float:
    """Mean tokens of a turn in the leaf: of the calls in which it holds exactly k."""
    assert layout.k is not None
    leaves = [
        (rows[number].prompt_tokens - rows[number].root_tokens - rows[number].trunk_tokens) / turns
        for rows in sessions
        for number in range(1, len(rows))
        if (turns := min(number, layout.k)) and (layout.step == 1 or number <= layout.k)
    ]
    return mean(leaves) if leaves else 0.0


def measured_shares(results: Sequence[LayoutResult]) -> dict[str, float]:
    """What the first `zoned` layout was billed for the studied sessions as a share of `stable`, by
    provider/model, and in computed tokens under OWN_GPU."""
    zoned, stable = _first(results, LayoutName.ZONED), _first(results, LayoutName.STABLE)
    if zoned is None or stable is None:
        return {}
    shares = {
        model: float(zoned.usd(model) / stable.usd(model))
        for model in zoned.usage
        if stable.usd(model)
    }
    ours, theirs = (next(iter(result.arms.values())).uncached_tokens for result in (zoned, stable))
    return {**shares, OWN_GPU: ours / theirs} if theirs else shares


def _first(results: Sequence[LayoutResult], name: LayoutName) -> LayoutResult | None:
    return next((r for r in results if Layout.parse(r.label).name is name), None)


def _by_session(result: LayoutResult) -> dict[str, list[CallRow]]:
    found: dict[str, list[CallRow]] = {}
    for row in result.calls:
        found.setdefault(result.sessions[row.session].session_id, []).append(row)
    return found


def _growth(sessions: Iterable[Sequence[CallRow]]) -> float:
    """Mean tokens that a call adds to its session's prompt."""
    pairs = [pair for rows in sessions for pair in pairwise(rows)]
    return mean(after.prompt_tokens - before.prompt_tokens for before, after in pairs)


def _behind(sessions: Iterable[Sequence[CallRow]]) -> float:
    """Mean share of the trunk that stood behind a change; 1/2 where none was seen."""
    shares = []
    for rows in sessions:
        for before, after in pairwise(rows):
            kept = after.token - before.root_tokens
            if before.trunk_tokens and 0 <= kept < before.trunk_tokens:
                shares.append(1 - kept / before.trunk_tokens)
    return mean(shares) if shares else 0.5


def curves(
    task: Task, prices: Mapping[str, Rates], measured: Mapping[str, float]
) -> dict[str, Any]:
    """Costs by change rate, by length and by trunk, and break-even points, for each price, beside
    the `measured` share."""
    return {
        "task": asdict(task),
        "change_rates": RATES,
        "num_calls": NUM_CALLS,
        "ks": TURNS,
        "trunks": TRUNKS,
        "prices": {
            name: {**_curves_of(task, rates), "measured": measured.get(name)}
            for name, rates in prices.items()
        },
    }


def rates_of(entries: Sequence[Entry]) -> dict[str, Rates]:
    """USD per prompt token by provider/model; and on a GPU of one's own, in tokens computed, where
    reading costs next to nothing."""
    rates = {}
    for entry in entries:
        prices = entry.tariff.prices
        write = entry.rules.write and getattr(prices, entry.rules.write)
        read = prices.input if prices.cached_read is None else prices.cached_read
        rates[entry.name] = Rates(
            (write or prices.input) / 10**6,
            read / 10**6,
            prices.input / 10**6,
            marks=entry.rules.kind == "breakpoints",
        )
    return {**rates, OWN_GPU: Rates(Decimal(1), Decimal(0), Decimal(1))}


def _curves_of(task: Task, rates: Rates) -> dict[str, Any]:
    saving_at_none = zoned_saving(replace(task, change_rate=0.0), rates)
    return {
        "by_rate": {
            str(k): [_share(replace(task, k=k, change_rate=r), rates) for r in RATES] for k in TURNS
        },
        "by_calls": {
            str(k): [_share(replace(task, k=k).lasting(n), rates) for n in NUM_CALLS] for k in TURNS
        },
        "by_trunk": {
            str(k): [_share(replace(task, k=k, trunk=t), rates) for t in TRUNKS] for k in TURNS
        },
        "break_even_rate": break_even_rate(task, rates),
        "zoned_wins_at_rate_0": saving_at_none > 0,
        "break_even_calls": break_even_calls(task, rates),
    }


def _share(task: Task, rates: Rates) -> float | None:
    """None where the growing prompt costs nothing."""
    stable = cost(task.stable(), rates)
    return float(cost(task.zoned(rates.marks), rates) / stable) if stable else None
