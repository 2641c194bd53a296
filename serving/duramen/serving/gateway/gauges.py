"""How things stand when a scrape asks: read then, kept nowhere."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from duramen.kernels.device import GpuReading
from duramen.layout.zones import Zone
from duramen.serving.gateway.kv_families import kv_families
from duramen.serving.kv.ledger import Held, Owner
from duramen.serving.vllm.itl_report import ItlReport


@dataclass(frozen=True)
class Levels:
    """How things stand now. `engines_up` and `num_preemptions` (None: the engine does not say): by
    the operator's name for each; `itl_reports`: of those that hold a target between tokens;
    `resident_tokens`: of sessions in memory, by zone, in the KV mirror; `kv_held`: by the ledger;
    both None where they are not known."""

    num_running: int
    num_queued: int
    engines_up: Mapping[str, bool]
    num_sessions: int
    sessions_bytes: int
    resident_tokens: Mapping[Zone, int] | None = None
    num_preemptions: Mapping[str, int | None] = field(default_factory=dict)
    itl_reports: Mapping[str, ItlReport] = field(default_factory=dict)
    kv_held: Mapping[Owner, Held] | None = None


ReadLevels = Callable[[], Levels]
ReadGpus = Callable[[], Sequence[GpuReading]]


class LevelGauges(Collector):
    def __init__(self, read: ReadLevels, *, by_tenant: bool = False) -> None:
        self._read, self._by_tenant = read, by_tenant

    def collect(self) -> Iterator[Metric]:
        levels = self._read()
        if levels.kv_held is not None:
            yield from kv_families(levels.kv_held, by_tenant=self._by_tenant)
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
        yield from _itl_families(levels.itl_reports)
        if levels.resident_tokens is not None:
            resident = GaugeMetricFamily(
                "duramen_kv_resident_tokens",
                "Of sessions in memory, resident in the engine's KV cache, in tokens.",
                labels=("zone",),
            )
            for zone, num_tokens in levels.resident_tokens.items():
                resident.add_metric((zone.name.lower(),), num_tokens)
            yield resident


def _itl_families(reports: Mapping[str, ItlReport]) -> Iterator[Metric]:
    """Nothing at all where no engine holds a target."""
    if not reports:
        return
    for name, text, attribute in (
        ("steps", "Steps that computed prefills beside decodes.", "num_steps"),
        ("steps_floor", "Of them, those that the target left no time for.", "num_floor"),
        ("steps_over", "Of them, those that took longer than the target.", "num_over"),
        ("budget_tokens", "What they might compute, in tokens.", "budget_tokens"),
        ("computed_tokens", "What they computed, in tokens.", "computed_tokens"),
        ("predicted_seconds", "What they were predicted to take, uncorrected.", "predicted_s"),
        ("measured_seconds", "What they took, in seconds.", "measured_s"),
    ):
        family = CounterMetricFamily(f"duramen_itl_{name}", text, labels=("engine",))
        for engine, report in reports.items():
            family.add_metric((engine,), getattr(report, attribute))
        yield family
    ratio = GaugeMetricFamily(
        "duramen_itl_correction_ratio",
        "What predictions are multiplied by now: measured to predicted, deviations included.",
        labels=("engine",),
    )
    for engine, report in reports.items():
        ratio.add_metric((engine,), report.ratio)
    yield ratio


class GpuGauges(Collector):
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
