"""What a plan comes to, in a line for a reader who has to decide."""

from collections.abc import Callable, Iterator
from decimal import Decimal

from duramen.experiments.why.what_if.moments import break_even
from duramen.experiments.why.what_if.net import Net, Tried
from duramen.experiments.why.what_if.plan import ALWAYS, DOING, Plan
from duramen.experiments.why.what_if.what_if import Considered

Amount = Callable[[Decimal | int], str]


def verdicts(considered: Considered) -> Iterator[str]:
    """For the first payer: in tokens, in money, and as a rule."""
    always = considered.always
    if always is None:
        yield "nothing to do in this session"
        return
    payer = next(iter(considered.payers.names), None)
    net = considered.best.get(payer) if payer is not None else None
    if net is None or considered.tried is None:
        yield "no call of this session could begin it: nothing that was sent before changes"
    else:
        yield in_tokens(considered.plan, considered.tried[net.call])
        yield f"{payer}: {in_money(net)}"
    yield as_rule(considered, always, payer)


def told(considered: Considered) -> str:
    """For the first payer, in money alone."""
    payer = next(iter(considered.payers.names), None)
    net = considered.best.get(payer) if payer is not None else None
    if net is None:
        return "no call of this session could begin it: nothing that was sent before changes"
    doing = f"{DOING[considered.plan.name]} at call {net.call}"
    paid = _told(net.now, net.later, net.num_later, dollars)
    return f"{payer}: {doing} {paid if net.now or net.later else 'changes nothing'}"


def in_tokens(plan: Plan, tried: Tried) -> str:
    """Token for token: one that is computed again now against one that later prompts are shorter
    by, or do not compute any more. In money they are not the same."""
    later = tried.shorter_later if plan.rewrites_outputs else tried.fewer_later
    told = _told(tried.computed_now, later, tried.num_later, lambda n: f"{round(n):,}", " tokens")
    line = f"token for token, {DOING[plan.name]} at call {tried.first} {told}"
    return f"{line} ({tried.dropped_now:,} cached tokens are dropped)"


def in_money(net: Net) -> str:
    return f"it {_told(net.now, net.later, net.num_later, dollars)}"


def as_rule(considered: Considered, always: Tried, payer: str | None) -> str:
    total = always.total(considered.payers.unit_tokens)
    fewer, num_worse = total["fewer_computed_tokens"], total["num_calls_that_compute_more"]
    computes = f"{abs(fewer):,} tokens {'fewer' if fewer >= 0 else 'more'} computed in all"
    line = f"{ALWAYS[considered.plan.name]}: {num_worse:,} calls compute more, {computes}"
    if payer is None:
        return line
    usd = always.total_usd(payer)
    return f"{line}; {payer}: {'saves' if usd >= 0 else 'costs'} {dollars(abs(usd))}"


def dollars(amount: Decimal | int) -> str:
    return f"{'-' if amount < 0 else ''}${abs(amount):,.6f}"


def _told(
    now: Decimal | int, later: Decimal | int, num_later: int, amount: Amount, what: str = ""
) -> str:
    """`later`: saved by all the later calls."""
    if now > 0:
        paid = f"costs {amount(now)}{what} now"
    else:
        paid = f"saves {amount(-now)}{what} now" if now else "costs nothing now"
    if not num_later:
        return f"{paid}: no call came after it in this session"
    if later <= 0:
        lost = f"costs {amount(Decimal(-later) / num_later)} a call" if later else "saves nothing"
        return f"{paid} and {lost} later" + (": leave it" if now >= 0 else "")
    saved = f"{paid} and saves {amount(Decimal(later) / num_later)} a call"
    if now <= 0:
        return f"{saved}: it pays at once"
    after = break_even(now, later, num_later)
    calls = "1 call" if after == 1 else f"{after:,} calls"
    return f"{saved}: it pays after {calls}, this session had {num_later:,} more"
