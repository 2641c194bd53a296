"""What is counted and timed of calls that ended: outcomes, tokens, seconds."""

from typing import get_args

from duramen.layout.volatile_patterns import Kind
from duramen.layout.zones import Zone
from duramen.serving.gateway.call_facts import BreakCause, CallFacts
from duramen.serving.gateway.series import Count, Histogram
from duramen.serving.kv.attribute import Mismatch

WAIT_S = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
TTFT_S = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0, 300.0)
ITL_S = (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 1.0, 3.0, 10.0, 30.0)
STORE_S = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)

Labels = tuple[str, ...]


class Outcomes:
    """How calls ended. `tenant`: the label that tells tenants apart, () for none."""

    def __init__(self, tenant: Labels) -> None:
        self._calls = Count(
            "duramen_calls_total",
            "Calls that ended, by outcome and whether the prompt's token ids were exact.",
            ("status", "exact", *tenant),
        )
        self._mismatches = Count(
            "duramen_prediction_mismatches_total",
            "Calls that were delivered other tokens than were promised, by class.",
            ("class",),
            [(name,) for name in get_args(Mismatch)],
        )
        self._breaks = Count(
            "duramen_breaks_total",
            "Calls whose prompt left what had been sent before, by cause.",
            ("cause",),
            [(name,) for name in get_args(BreakCause)],
        )
        self._volatile = Count(
            "duramen_volatile_roots_total",
            "Calls whose root holds a field that looks as if it changes, by kind.",
            ("kind",),
            [(kind,) for kind in get_args(Kind) if kind != "changed text"],
        )

    def add(self, call: CallFacts, tenant: Labels) -> None:
        self._calls.add(1, call.status, _flag(call.is_exact), *tenant)
        if call.mismatch is not None:
            self._mismatches.add(1, call.mismatch)
        for kind in call.volatile_kinds:
            self._volatile.add(1, kind)
        if call.break_cause is not None:
            self._breaks.add(1, call.break_cause)


class Tokens:
    """What was sent, reused and sampled. `tenant`: as in Outcomes."""

    def __init__(self, tenant: Labels) -> None:
        self._prompt = Count(
            "duramen_prompt_tokens_total",
            "Prompt tokens sent to the engine, in tokens, by zone and by where their KV came from; "
            "unknown where the engine did not report it.",
            ("zone", "source", *tenant),
        )
        self._sampled = Count(
            "duramen_sampled_tokens_total", "Tokens that were sampled, in tokens.", tenant
        )
        self._reusable = Count(
            "duramen_reusable_tokens_total",
            "Most prompt tokens that calls could have reused (whole match units of what was sent "
            "or sampled before), in tokens. reported: of calls whose delivered tokens are known.",
            ("reported", *tenant),
        )
        self._predicted = Count(
            "duramen_predicted_tokens_total",
            "Prompt tokens that the KV mirror promised at least before the calls, in tokens. "
            "reported: of calls whose delivered tokens are known.",
            ("reported", *tenant),
        )
        self._delivered = Count(
            "duramen_delivered_tokens_total",
            "Prompt tokens that the engine reported as cached, in tokens.",
            tenant,
        )

    def add(self, call: CallFacts, tenant: Labels) -> None:
        self._sampled.add(call.sampled_tokens, *tenant)
        if call.zone_tokens:
            self._add_prompt(call, tenant)
            self._add_reuse(call, tenant)

    def _add_prompt(self, call: CallFacts, tenant: Labels) -> None:
        shares = call.shares
        for zone in Zone:
            name = zone.name.lower()
            if shares is None:
                self._prompt.add(call.zone_tokens.get(zone, 0), name, "unknown", *tenant)
            else:
                self._prompt.add(shares[zone].cached_tokens, name, "cached", *tenant)
                self._prompt.add(shares[zone].computed_tokens, name, "computed", *tenant)

    def _add_reuse(self, call: CallFacts, tenant: Labels) -> None:
        reported = _flag(call.delivered is not None)
        if call.bounds is not None:
            self._reusable.add(call.bounds.unit, reported, *tenant)
        if call.predicted_low is not None:
            self._predicted.add(call.predicted_low, reported, *tenant)
        if call.delivered is not None:
            self._delivered.add(call.delivered, *tenant)


class Times:
    """How long calls took."""

    def __init__(self) -> None:
        self._ttft = Histogram(
            "duramen_ttft_seconds",
            "From a streamed call's arrival to its first token, in seconds.",
            TTFT_S,
        )
        self._itl = Histogram(
            "duramen_itl_seconds", "Between two pieces of a streamed reply, in seconds.", ITL_S
        )
        self._queue = Histogram(
            "duramen_queue_seconds", "That a call waited to be let in, in seconds.", WAIT_S
        )
        self._store = Histogram(
            "duramen_store_seconds",
            "That a call waited for the session store in all, in seconds.",
            STORE_S,
        )

    def add(self, call: CallFacts) -> None:
        for series, seconds in (
            (self._queue, call.queue_s),
            (self._ttft, call.ttft_s),
            (self._store, call.store_s),
        ):
            if seconds is not None:
                series.observe((seconds,))
        self._itl.observe(call.itl_s)


def _flag(value: bool) -> str:
    return "true" if value else "false"
