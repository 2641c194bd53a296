"""Every call at which a plan could begin, in closed form: what it costs there and saves later.

Now: the call is laid out as if the plan began with it, and matched against the cache of what was
sent before. Later: outputs that were shortened leave each later prompt that much shorter, and what
is left out had been read from the cache, or computed, where the call did not hit so far; a plan for
the root gives each later call what it gives the same call where the plan holds from the beginning.
That is exact while calls only append, up to the rest of a match unit. Marks of providers are left
out, and that a prompt which falls below a provider's minimum is not cached any more. It is there to
choose calls by: what is told of a chosen one is served whole (see net.py).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import ceil, inf
from typing import NamedTuple

from duramen.experiments.prices.book import Entry
from duramen.experiments.prices.own_gpu import TimeModel
from duramen.experiments.study.measure import ids_of
from duramen.experiments.study.walk import Step
from duramen.experiments.why.what_if.bills import Bill, Engine

PROBE_TOKENS = 1000  # by which a GPU's time per token is measured


class Weights(NamedTuple):
    """What a prompt token costs, in any unit: computed, and read from the cache, where it lives
    `ttl_s`, if the prompt has at least `min_tokens`."""

    computed: Decimal
    read: Decimal
    ttl_s: float = inf
    min_tokens: int = 0


@dataclass(frozen=True)
class Begun:
    """Tokens, for a plan that begins with `call`.

    `computed`: more than without it, in this call. `dropped`: no longer read from the cache in this
    call. `shorter`: by which this prompt is. `later_computed`, `later_read`: that the `num_later`
    calls behind it do not compute and read any more, in all. `gap_s`: since the call before, whose
    cache entries may have expired; 0 for the first call. `num_tokens`: of the changed prompt.
    """

    call: int
    computed: int
    dropped: int
    shorter: int
    num_later: int
    later_computed: int
    later_read: int
    gap_s: float = 0.0
    num_tokens: int = 0

    def now(self, weights: Weights) -> Decimal:
        if self.gap_s > weights.ttl_s:  # all of both prompts is computed
            return -self.shorter * weights.computed
        return self.computed * weights.computed - self.dropped * weights.read

    def later(self, weights: Weights) -> Decimal:
        return self.later_computed * weights.computed + self.later_read * weights.read

    def net(self, weights: Weights) -> Decimal:
        return self.later(weights) - self.now(weights)

    def break_even(self, weights: Weights) -> int | None:
        return break_even(self.now(weights), self.later(weights), self.num_later)


def break_even(now: Decimal | int, later: Decimal | int, num_later: int) -> int | None:
    """Later calls until what is paid `now` has come back, if each saves what the `num_later` ones
    that saved `later` did on average; 0 where nothing is paid, None where it never comes back, no
    call comes later, or later calls cost more than was saved at once."""
    if now <= 0 and later >= now:
        return 0
    if later <= 0:
        return None
    return ceil(now * num_later / later)


def begun(
    rewrites_outputs: bool,
    pairs: Iterator[tuple[Step, Step]],
    engine: Engine,
    base: Sequence[Bill],
    always: Mapping[int, Bill],
) -> Iterator[Begun]:
    """For each call that the plan changes. `pairs`: each call as it is, and as if the plan began
    with it. `engine`: empty. `base`, `always`: without the plan, and with it from the first call
    on."""
    tails = _tails(base, always)
    last_s = None
    for step, fresh in pairs:
        prompt, changed = ids_of(step.prompt.token_ids), ids_of(fresh.prompt.token_ids)
        hit = engine.match(changed)
        cached = engine.serve(prompt, ids_of(step.reply_ids))
        gap_s = 0.0 if last_s is None else step.time_s - last_s
        last_s = step.time_s
        if len(prompt) == len(changed) and bool((prompt == changed).all()):
            continue
        shorter = len(prompt) - len(changed)
        num_later, later_computed, later_read = tails[step.call]
        if rewrites_outputs:
            behind = [bill for bill in base if bill.call > step.call and bill.call in always]
            num_missing = sum(bill.cached <= hit for bill in behind)  # not even the first change
            later_computed = shorter * num_missing
            later_read = shorter * (num_later - num_missing)
        computed = len(changed) - hit - (len(prompt) - cached)
        yield Begun(
            call=step.call,
            computed=computed,
            dropped=cached - hit,
            shorter=shorter,
            num_later=num_later,
            later_computed=later_computed,
            later_read=later_read,
            gap_s=gap_s,
            num_tokens=len(changed),
        )


def _tails(base: Sequence[Bill], always: Mapping[int, Bill]) -> dict[int, tuple[int, int, int]]:
    """By call: the calls behind it, and what they compute and read less where the plan holds."""
    tails = {}
    num_later = computed = read = 0
    for bill in reversed(base):
        tails[bill.call] = (num_later, computed, read)
        if (other := always.get(bill.call)) is not None:
            num_later += 1
            computed += bill.computed - other.computed
            read += bill.cached - other.cached
    return tails


def weights_of(entry: Entry) -> Weights:
    """USD per million tokens, without tiers."""
    prices, rules = entry.tariff.prices, entry.rules
    written = getattr(prices, rules.write) if rules.write else None
    read = None if rules.kind == "none" else prices.cached_read
    return Weights(
        prices.input if written is None else written,
        prices.input if read is None else read,
        rules.ttl_s if rules.ttl_s else inf,
        rules.min_tokens,
    )


def gpu_weights(device: TimeModel, bills: Sequence[Bill], num_output: int) -> Weights:
    """Seconds per token at the mean call of a session."""
    computed = sum(bill.computed for bill in bills) // len(bills)
    context = sum(bill.cached for bill in bills) // len(bills)

    def spent_s(computed: int, context: int) -> float:
        decoded = device.decode_s(num_output, computed + context)
        return device.prefill_s(computed, context) + decoded

    alone = spent_s(computed, context)
    per_computed = (spent_s(computed + PROBE_TOKENS, context) - alone) / PROBE_TOKENS
    per_read = (spent_s(computed, context + PROBE_TOKENS) - alone) / PROBE_TOKENS
    return Weights(Decimal(per_computed), Decimal(per_read))
