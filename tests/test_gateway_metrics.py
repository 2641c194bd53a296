"""What is counted of calls, and what stands on the page for Prometheus."""

import math
from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client import Histogram as TheirHistogram
from prometheus_client.parser import text_string_to_metric_families

from duramen.kernels.device import GpuMonitor, GpuReading
from duramen.layout.bounds import Bounds
from duramen.layout.zones import Zone
from duramen.serving.gateway.call_facts import CallFacts, ZoneShare
from duramen.serving.gateway.call_series import ITL_S
from duramen.serving.gateway.gauges import Levels
from duramen.serving.gateway.metrics import Metrics
from duramen.serving.gateway.series import Histogram
from duramen.serving.kv.held import KvZone
from duramen.serving.kv.ledger import Held, Owner
from duramen.serving.vllm.itl_report import ItlReport

NO_LEVELS = Levels(num_running=0, num_queued=0, engines_up={}, num_sessions=0, sessions_bytes=0)


def metrics(levels: Levels = NO_LEVELS, gpus: Any = (), **options: Any) -> Metrics:
    return Metrics(lambda: levels, lambda: gpus, **options)


def call(**facts: Any) -> CallFacts:
    return CallFacts(**{"tenant": "a", "model": "m", "status": "ok", "is_exact": True} | facts)


def page(shown: Metrics) -> dict[str, float]:
    """Every sample that is not 0, as `name{label=value,...}` without the prefix."""
    _, text = shown.render()
    found = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            labels = ",".join(f"{key}={value}" for key, value in sorted(sample.labels.items()))
            name = sample.name.removeprefix("duramen_") + (f"{{{labels}}}" if labels else "")
            if sample.value:
                found[name] = sample.value
    return found


FULL = call(
    zone_tokens={Zone.ROOT: 100, Zone.TRUNK: 50, Zone.LEAF: 10},
    bounds=Bounds(num_tokens=160, content=155, token=150, unit=144),
    predicted_low=112,
    predicted_high=144,
    delivered=128,
    mismatch="in_flight_sharing",
    break_cause="clock",
    sampled_tokens=7,
)


def test_a_call_is_counted_by_zone_and_source():
    shown = metrics()
    shown.call_ended(FULL)
    assert page(shown) == {
        "calls_total{exact=true,status=ok}": 1,
        "prompt_tokens_total{source=cached,zone=root}": 100,
        "prompt_tokens_total{source=cached,zone=trunk}": 28,
        "prompt_tokens_total{source=computed,zone=trunk}": 22,
        "prompt_tokens_total{source=computed,zone=leaf}": 10,
        "reusable_tokens_total{reported=true}": 144,
        "predicted_tokens_total{reported=true}": 112,
        "delivered_tokens_total": 128,
        "sampled_tokens_total": 7,
        "prediction_mismatches_total{class=in_flight_sharing}": 1,
        "breaks_total{cause=clock}": 1,
    }


def test_what_the_engine_did_not_report_is_unknown_and_never_zero():
    shown = metrics()
    shown.call_ended(
        call(
            zone_tokens={Zone.ROOT: 5, Zone.LEAF: 3},
            bounds=Bounds(num_tokens=8, content=4, token=4, unit=4),
            predicted_low=4,
            is_exact=False,
            status="client_gone",
        )
    )
    assert page(shown) == {
        "calls_total{exact=false,status=client_gone}": 1,
        "prompt_tokens_total{source=unknown,zone=root}": 5,
        "prompt_tokens_total{source=unknown,zone=leaf}": 3,
        "reusable_tokens_total{reported=false}": 4,
        "predicted_tokens_total{reported=false}": 4,
    }


def test_a_call_that_was_never_sent_counts_as_a_call_only():
    shown = metrics()
    bounds = Bounds(num_tokens=8, content=4, token=4, unit=4)
    shown.call_ended(call(status="refused", bounds=bounds, predicted_low=4))
    assert page(shown) == {"calls_total{exact=true,status=refused}": 1}


def test_times_go_into_buckets():
    shown = metrics()
    shown.call_ended(call(queue_s=0.0, ttft_s=0.25, itl_s=(0.02, 0.021, 40.0), store_s=0.0002))
    found = page(shown)
    assert found["queue_seconds_count"] == found["ttft_seconds_count"] == 1
    assert found["ttft_seconds_bucket{le=0.3}"] == 1
    assert "ttft_seconds_bucket{le=0.2}" not in found
    assert found["itl_seconds_bucket{le=0.02}"] == 1  # a bound belongs to its bucket
    assert found["itl_seconds_bucket{le=0.03}"] == 2
    assert found["itl_seconds_bucket{le=30.0}"] == 2
    assert found["itl_seconds_bucket{le=+Inf}"] == found["itl_seconds_count"] == 3
    assert found["itl_seconds_sum"] == pytest.approx(40.041)
    assert found["store_seconds_sum"] == pytest.approx(0.0002)


def test_tenants_are_told_apart_only_where_there_are_keys():
    shown, anonymous = metrics(by_tenant=True), metrics()
    for tenant in ("a", "b", "b"):
        shown.call_ended(call(tenant=tenant, delivered=2, zone_tokens={Zone.ROOT: 2}))
        anonymous.call_ended(call(tenant=tenant, delivered=2, zone_tokens={Zone.ROOT: 2}))
    found = page(shown)
    assert found["calls_total{exact=true,status=ok,tenant=b}"] == 2
    assert found["delivered_tokens_total{tenant=a}"] == 2
    assert found["prompt_tokens_total{source=cached,tenant=b,zone=root}"] == 4
    assert page(anonymous)["calls_total{exact=true,status=ok}"] == 3
    assert "tenant" not in "".join(page(anonymous))


def test_failures_and_restarts():
    shown = metrics()
    shown.engine_restarted()
    shown.store_failed()
    shown.store_failed()
    assert page(shown) == {"engine_restarts_total": 1, "store_failures_total": 2}


def test_levels_are_read_when_the_page_is_read():
    numbers = count(1)
    shown = Metrics(
        lambda: Levels(
            num_running=next(numbers),
            num_queued=3,
            engines_up={"one": True, "two": False},
            num_sessions=4,
            sessions_bytes=5000,
            resident_tokens={Zone.ROOT: 64, Zone.TRUNK: 32},
            num_preemptions={"one": 5, "two": None},
            itl_reports={"one": ItlReport(9, 1, 2, 3000, 2900, 2.5, 3.0, 1.25)},
        ),
        lambda: (),
    )
    assert page(shown) == {
        "running": 1,
        "queued": 3,
        "engine_up{engine=one}": 1,
        "sessions_in_memory": 4,
        "sessions_in_memory_bytes": 5000,
        "engine_preemptions_total{engine=one}": 5,
        "itl_steps_total{engine=one}": 9,
        "itl_steps_floor_total{engine=one}": 1,
        "itl_steps_over_total{engine=one}": 2,
        "itl_budget_tokens_total{engine=one}": 3000,
        "itl_computed_tokens_total{engine=one}": 2900,
        "itl_predicted_seconds_total{engine=one}": 2.5,
        "itl_measured_seconds_total{engine=one}": 3,
        "itl_correction_ratio{engine=one}": 1.25,
        "kv_resident_tokens{zone=root}": 64,
        "kv_resident_tokens{zone=trunk}": 32,
    }
    assert page(shown)["running"] == 2
    assert b'duramen_engine_up{engine="two"} 0.0' in shown.render()[1]


def test_who_holds_the_cache():
    held = {
        Owner("", KvZone.UNATTRIBUTED): Held(1, 2),
        Owner("a", KvZone.ROOT): Held(30, 40.5),
        Owner("b", KvZone.ROOT): Held(50, 60),
        Owner("b", KvZone.DEAD): Held(0, 7),
    }
    levels = replace(NO_LEVELS, kv_held=held)
    assert page(metrics(levels)) == {
        "kv_bytes{zone=unattributed}": 1,
        "kv_bytes{zone=root}": 80,
        "kv_byte_seconds_total{zone=unattributed}": 2,
        "kv_byte_seconds_total{zone=root}": 100.5,
        "kv_byte_seconds_total{zone=dead}": 7,
    }
    by_tenant = page(metrics(levels, by_tenant=True))
    assert by_tenant["kv_bytes{tenant=a,zone=root}"] == 30
    assert by_tenant["kv_byte_seconds_total{tenant=b,zone=root}"] == 60
    assert by_tenant["kv_bytes{tenant=,zone=unattributed}"] == 1


def test_residency_targets_and_gpus_are_absent_where_there_are_none():
    text = metrics().render()[1].decode()
    assert "duramen_itl_steps" not in text
    assert "duramen_kv_" not in text
    assert "duramen_gpu" not in text


def test_closed_sets_are_shown_before_anything_happened():
    text = metrics().render()[1].decode()
    assert 'duramen_breaks_total{cause="session lost"} 0.0' in text
    assert 'duramen_prediction_mismatches_total{class="evicted"} 0.0' in text
    assert "duramen_engine_restarts_total 0.0" in text


def test_gpus_with_what_they_say():
    readings = [
        GpuReading(0, "NVIDIA L4", 24 * 2**30, 3 * 2**30, 0.5, 60.5),
        GpuReading(1, "NVIDIA L4", 24 * 2**30, 2**30, None, None),
    ]
    found = page(metrics(gpus=readings))
    assert found == {
        "gpu_memory_bytes{gpu=0,name=NVIDIA L4}": 24 * 2**30,
        "gpu_memory_bytes{gpu=1,name=NVIDIA L4}": 24 * 2**30,
        "gpu_memory_used_bytes{gpu=0,name=NVIDIA L4}": 3 * 2**30,
        "gpu_memory_used_bytes{gpu=1,name=NVIDIA L4}": 2**30,
        "gpu_utilisation_ratio{gpu=0,name=NVIDIA L4}": 0.5,
        "gpu_power_watts{gpu=0,name=NVIDIA L4}": 60.5,
    }


def test_the_page_is_prometheus_text_and_names_units():
    content_type, text = metrics().render()
    assert content_type.startswith("text/plain; version=")
    families = {f.name: f for f in text_string_to_metric_families(text.decode())}
    assert len(families) == 21
    for name, family in families.items():
        assert name.startswith("duramen_")
        for unit in ("seconds", "tokens", "bytes"):
            assert unit not in name or unit in family.documentation, name


def test_two_gateways_share_nothing():
    one, other = metrics(), metrics()
    one.call_ended(FULL)
    assert page(other) == {}


@pytest.mark.parametrize(
    "wrong", [{"status": "fine"}, {"mismatch": "bad luck"}, {"break_cause": "some text"}]
)
def test_labels_are_closed_sets(wrong):
    with pytest.raises(AssertionError):
        call(**wrong)


@given(
    st.fixed_dictionaries({}, optional={zone: st.integers(0, 9) for zone in Zone}),
    st.integers(0, 40),
)
def test_delivered_tokens_fall_on_the_front_of_the_prompt(zone_tokens, delivered):
    prompt = [zone for zone in Zone for _ in range(zone_tokens.get(zone, 0))]
    assert call(zone_tokens=zone_tokens, delivered=delivered).shares == {
        zone: ZoneShare(prompt[:delivered].count(zone), prompt[delivered:].count(zone))
        for zone in Zone
    }


def test_without_delivered_tokens_there_are_no_shares():
    assert call(zone_tokens={Zone.ROOT: 3}).shares is None


@given(st.lists(st.lists(st.floats(0, 100) | st.sampled_from(ITL_S))))
def test_a_histogram_is_the_library_s_own(batches):
    ours = Histogram("x", "text", ITL_S)
    registry = CollectorRegistry()
    theirs = TheirHistogram("x", "text", buckets=ITL_S, registry=registry)
    for batch in batches:
        ours.observe(batch)
        for value in batch:
            theirs.observe(value)
    (expected,) = theirs.collect()
    (found,) = ours.collect()
    samples = {(s.name, *s.labels.values()): s.value for s in found.samples}
    for sample in expected.samples:
        if not sample.name.endswith("_created"):
            value = samples.pop((sample.name, *sample.labels.values()))
            assert math.isclose(value, sample.value)
    assert samples == {}


class FakeNvml:
    """Two GPUs; `broken` functions fail, each for the GPU that is named or for all."""

    class NVMLError(Exception):
        pass

    def __init__(self, **broken: int | None) -> None:
        self.broken = broken
        self.num_opened = 0

    def _check(self, function: str, index: int | None = None) -> None:
        if function in self.broken and self.broken[function] in (None, index):
            raise self.NVMLError

    def nvmlInit(self) -> None:
        self._check("init")
        self.num_opened += 1

    def nvmlDeviceGetCount(self) -> int:
        self._check("count")
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        self._check("handle", index)
        return index

    def nvmlDeviceGetName(self, handle: int) -> str:
        return f"GPU {handle}"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return SimpleNamespace(total=100, used=10 + handle)

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        self._check("utilisation", handle)
        return SimpleNamespace(gpu=25, memory=1)

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        self._check("power", handle)
        return 70_500


FIRST = GpuReading(0, "GPU 0", 100, 10, 0.25, 70.5)
SECOND = GpuReading(1, "GPU 1", 100, 11, 0.25, 70.5)


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        ({}, (FIRST, SECOND)),
        ({"init": None}, ()),  # no driver
        ({"count": None}, ()),  # the driver went away
        ({"handle": 0}, (SECOND,)),  # one fell off the bus
        ({"utilisation": 0}, (GpuReading(0, "GPU 0", 100, 10, None, 70.5), SECOND)),
        ({"power": 1}, (FIRST, GpuReading(1, "GPU 1", 100, 11, 0.25, None))),
    ],
)
def test_gpus_are_read(broken, expected):
    nvml = FakeNvml(**broken)
    monitor = GpuMonitor(nvml)
    assert [monitor.read() for _ in range(2)] == [expected] * 2
    assert nvml.num_opened == ("init" not in broken)


def test_without_the_library_no_gpu_is_read():
    assert GpuMonitor(None).read() == ()
