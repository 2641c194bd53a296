"""What an operator sees of the gateway, for Prometheus.

One registry for each gateway. Labels are closed sets, the operator's engines, and the operator's
tenants where there are keys; never sessions, nor anything that a client wrote. vLLM's own metrics
stay on the engine's own page.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import get_args

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from duramen.kernels.device import GpuReading
from duramen.layout.volatile_patterns import Kind
from duramen.layout.zones import Zone
from duramen.serving.gateway.call_facts import BreakCause, CallFacts
from duramen.serving.gateway.series import Count, Histogram
from duramen.serving.kv.attribute import Mismatch

WAIT_S = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
TTFT_S = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0, 300.0)
ITL_S = (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 1.0, 3.0, 10.0, 30.0)
STORE_S = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


@dataclass(frozen=True)
class Levels:
    """How things stand now. `engines_up` and `num_preemptions` (None: the engine does not say): by
    the operator's name for each; `resident_tokens`: of sessions in memory, by zone, in the KV
    mirror; None where nothing is mirrored."""

    num_running: int
    num_queued: int
    engines_up: Mapping[str, bool]
    num_sessions: int
    sessions_bytes: int
    resident_tokens: Mapping[Zone, int] | None = None
    num_preemptions: Mapping[str, int | None] = field(default_factory=dict)


ReadLevels = Callable[[], Levels]
ReadGpus = Callable[[], Sequence[GpuReading]]


class Metrics:
    """`read_levels` and `read_gpus` are called at each scrape. `by_tenant`: there is a key file."""

    def __init__(
        self, read_levels: ReadLevels, read_gpus: ReadGpus, *, by_tenant: bool = False
    ) -> None:
        self._by_tenant = by_tenant
        tenant = ("tenant",) if by_tenant else ()
        self._calls = Count(
            "duramen_calls_total",
            "Calls that ended, by outcome and whether the prompt's token ids were exact.",
            ("status", "exact", *tenant),
        )
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
        self._restarts = Count(
            "duramen_engine_restarts_total", "Engines that were started again after they had died."
        )
        self._store_failures = Count(
            "duramen_store_failures_total", "Group commits that could not be written."
        )
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
        self._registry = CollectorRegistry()
        for series in list(vars(self).values()):
            if isinstance(series, Count | Histogram):
                self._registry.register(series)
        self._registry.register(_LevelGauges(read_levels))
        self._registry.register(_GpuGauges(read_gpus))

    def call_ended(self, call: CallFacts) -> None:
        tenant = (call.tenant,) if self._by_tenant else ()
        self._calls.add(1, call.status, _flag(call.is_exact), *tenant)
        self._count_prompt(call, tenant)
        self._count_reuse(call, tenant)
        self._sampled.add(call.sampled_tokens, *tenant)
        if call.mismatch is not None:
            self._mismatches.add(1, call.mismatch)
        for kind in call.volatile_kinds:
            self._volatile.add(1, kind)
        if call.break_cause is not None:
            self._breaks.add(1, call.break_cause)
        for series, seconds in (
            (self._queue, call.queue_s),
            (self._ttft, call.ttft_s),
            (self._store, call.store_s),
        ):
            if seconds is not None:
                series.observe((seconds,))
        self._itl.observe(call.itl_s)

    def engine_restarted(self) -> None:
        self._restarts.add(1)

    def store_failed(self) -> None:
        self._store_failures.add(1)

    def render(self) -> tuple[str, bytes]:
        """Content type and body of a scrape."""
        return CONTENT_TYPE_LATEST, generate_latest(self._registry)

    def _count_prompt(self, call: CallFacts, tenant: tuple[str, ...]) -> None:
        if not call.zone_tokens:
            return
        shares = call.shares
        for zone in Zone:
            name = zone.name.lower()
            if shares is None:
                self._prompt.add(call.zone_tokens.get(zone, 0), name, "unknown", *tenant)
            else:
                self._prompt.add(shares[zone].cached_tokens, name, "cached", *tenant)
                self._prompt.add(shares[zone].computed_tokens, name, "computed", *tenant)

    def _count_reuse(self, call: CallFacts, tenant: tuple[str, ...]) -> None:
        if not call.zone_tokens:
            return
        reported = _flag(call.delivered is not None)
        if call.bounds is not None:
            self._reusable.add(call.bounds.unit, reported, *tenant)
        if call.predicted_low is not None:
            self._predicted.add(call.predicted_low, reported, *tenant)
        if call.delivered is not None:
            self._delivered.add(call.delivered, *tenant)


class _LevelGauges(Collector):
    def __init__(self, read: ReadLevels) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        levels = self._read()
        for name, text, value in (
            ("running", "Calls that run now.", levels.num_running),
            ("queued", "Calls that wait to be let in.", levels.num_queued),
            ("sessions_in_memory", "Sessions that are in memory.", levels.num_sessions),
            ("sessions_in_memory_bytes", "What they take, in bytes.", levels.sessions_bytes),
        ):
            yield GaugeMetricFamily(f"duramen_{name}", text, value=value)
        up = GaugeMetricFamily("duramen_engine_up", "1 if it answers calls.", labels=("engine",))
        for engine, is_up in levels.engines_up.items():
            up.add_metric((engine,), int(is_up))
        yield up
        preempted = CounterMetricFamily(
            "duramen_engine_preemptions",
            "Requests that lost their KV blocks while they ran.",
            labels=("engine",),
        )
        for engine, num_preemptions in levels.num_preemptions.items():
            if num_preemptions is not None:
                preempted.add_metric((engine,), num_preemptions)
        yield preempted
        if levels.resident_tokens is not None:
            resident = GaugeMetricFamily(
                "duramen_kv_resident_tokens",
                "Of sessions in memory, resident in the engine's KV cache, in tokens.",
                labels=("zone",),
            )
            for zone, num_tokens in levels.resident_tokens.items():
                resident.add_metric((zone.name.lower(),), num_tokens)
            yield resident


class _GpuGauges(Collector):
    def __init__(self, read: ReadGpus) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        """Nothing at all where there is no GPU."""
        readings = self._read()
        if not readings:
            return
        for name, text, attribute in (
            ("memory_bytes", "Memory, in bytes.", "memory_bytes"),
            ("memory_used_bytes", "Memory that is used, in bytes.", "memory_used_bytes"),
            ("utilisation_ratio", "Time in which a kernel ran, 0 to 1.", "utilisation"),
            ("power_watts", "Power that is drawn, in watts.", "power_w"),
        ):
            family = GaugeMetricFamily(f"duramen_gpu_{name}", text, labels=("gpu", "name"))
            for reading in readings:
                if (value := getattr(reading, attribute)) is not None:
                    family.add_metric((str(reading.index), reading.name), value)
            yield family


def _flag(value: bool) -> str:
    return "true" if value else "false"
