"""`duramen why --what-if`: what a change to the prompts would cost now and save later.

The replies are taken as recorded: what a model would have said to the changed prompts is not known.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import is_
from typing import Any

from duramen.experiments.layouts.model import Model
from duramen.experiments.study.schedule import Pace, with_times
from duramen.experiments.study.walk import Step
from duramen.experiments.trajectory import Origin, Session
from duramen.experiments.why.what_if.bills import Bill, Engine, Payers, bills, steps
from duramen.experiments.why.what_if.moments import (
    Begun,
    Weights,
    begun,
    gpu_weights,
    weights_of,
)
from duramen.experiments.why.what_if.net import Net, Tried
from duramen.experiments.why.what_if.plan import Plan
from duramen.experiments.why.what_if.rewritten import Rewriter


@dataclass(frozen=True)
class Considered:
    """One session. `bills`: of its calls as they are; none where the log has no messages of a call,
    or the template refuses them all. `moments`: every call at which the plan could begin. `tried`:
    those that were served whole, by call. `always`: as a rule from the first call on; None where
    the plan changes nothing. `weights`: by payer, what `moments` are compared by."""

    session_id: str
    plan: Plan
    payers: Payers
    bills: Sequence[Bill]
    moments: Sequence[Begun] = ()
    tried: dict[int, Tried] | None = None
    always: Tried | None = None
    weights: dict[str, Weights] | None = None
    is_time_assumed: bool = False

    @property
    def num_tokens(self) -> int:
        return sum(bill.num_tokens for bill in self.bills)

    @cached_property
    def best(self) -> dict[str, Net]:
        """By payer, at the call where the recorded session gains most, or loses least; the first
        of equals."""
        tried = self.tried or {}
        nets = {name: [each.net(name) for each in tried.values()] for name in self.payers.names}
        return {
            name: max(each, key=lambda net: (net.net, -net.call))
            for name, each in nets.items()
            if each
        }

    def as_json(self) -> dict[str, Any]:
        weights = self.weights or {}
        return {
            "session": self.session_id,
            "num_calls": len(self.bills),
            "prompt_tokens": self.num_tokens,
            "is_time_assumed": self.is_time_assumed,
            "changes": self.always is not None,
            "moments": [_moment_json(each, weights) for each in self.moments],
            "tried": [each.as_json() for each in (self.tried or {}).values()],
            "best": {name: net.as_json() for name, net in self.best.items()},
            "always": self.always
            and {
                **self.always.total(self.payers.unit_tokens),
                "net_usd": {name: float(self.always.total_usd(name)) for name in self.payers.names},
            },
        }


def _moment_json(moment: Begun, weights: dict[str, Weights]) -> dict[str, Any]:
    even = {name: moment.break_even(each) for name, each in weights.items()}
    return {**vars(moment), "break_even_calls": even}


def what_if(
    plan: Plan, sessions: Iterable[Session], model: Model, payers: Payers
) -> Iterator[Considered]:
    """Each session alone, from an empty cache. Calls without a recorded time come at the layout
    study's pace. Raises PriceError where a price is missing."""
    rewriter = Rewriter.of(plan, model.tokenizer)
    for session in sessions:
        if session.calls and all(call.messages for call in session.calls):
            [timed] = with_times([session], Pace())
            is_assumed = timed.origins.get("time_s") is not Origin.RECORDED
            considered = _consider(rewriter, timed, model, payers)
            yield replace(considered, is_time_assumed=is_assumed)
        elif session.calls:
            yield Considered(session.session_id, plan, payers, ())


def _consider(rewriter: Rewriter, session: Session, model: Model, payers: Payers) -> Considered:
    def served(changed: Session) -> list[Bill]:
        return list(bills(steps(changed, model), payers))

    plan, name = rewriter.plan, session.session_id
    num_outputs: list[int] = []
    base = list(bills(_counted(steps(session, model), num_outputs), payers))
    fresh, ruled = rewriter.fresh(session), rewriter.always(session)
    if not base or (_is_same(fresh, session) and _is_same(ruled, session)):
        return Considered(name, plan, payers, base)
    always = served(ruled)
    pairs = in_step(steps(session, model), steps(fresh, model))
    by_call = {bill.call: bill for bill in always}
    moments = list(begun(plan.rewrites_outputs, pairs, Engine(payers), base, by_call))
    weights = {entry.name: weights_of(entry) for entry in payers.entries}
    num_output = sum(num_outputs) // len(num_outputs)
    for device_name, device in payers.devices.items():
        weights[device_name] = gpu_weights(device, base, num_output)
    tried = {
        call: Tried(call, base, served(rewriter.begun_at(session, call)))
        for call in chosen(moments, weights.values())
    }
    ever = Tried(-1, base, always)
    return Considered(name, plan, payers, base, moments, tried, ever, weights)


def _is_same(a: Session, b: Session) -> bool:
    return all(map(is_, a.calls, b.calls))


def chosen(moments: Sequence[Begun], weights: Iterable[Weights]) -> list[int]:
    """The calls at which the recorded session gains most, or loses least, for some payer; and
    the same among those whose prompts the payer still caches."""
    found = set()
    for each in weights:
        cached = [moment for moment in moments if moment.num_tokens >= each.min_tokens]
        for among in filter(None, (moments, cached)):
            found.add(max(among, key=lambda m: (m.net(each), -m.call)).call)
    return sorted(found)


def in_step(a: Iterator[Step], b: Iterator[Step]) -> Iterator[tuple[Step, Step]]:
    """The calls that both have."""
    x, y = next(a, None), next(b, None)
    while x is not None and y is not None:
        if x.call == y.call:
            yield x, y
        behind = y.call - x.call
        if behind >= 0:
            x = next(a, None)
        if behind <= 0:
            y = next(b, None)


def _counted(sent: Iterator[Step], num_outputs: list[int]) -> Iterator[Step]:
    for step in sent:
        num_outputs.append(len(step.reply_ids))
        yield step
