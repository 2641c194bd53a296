"""The device probe on the CPU (and on a GPU where there is one), and what it makes of NVML."""

import json
import os
import sys
from dataclasses import replace
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from duramen.kernels import gpu_state
from duramen.kernels.attention_oracle import KeyValues, attend
from duramen.kernels.device_probe import (
    AttentionShape,
    DeviceProbe,
    GemmShape,
    Rate,
    Timing,
    attend_newest,
    probe_device,
)
from duramen.kernels.gpu_state import (
    DeviceBusyError,
    DeviceError,
    GpuConditions,
    GpuReader,
    GpuState,
    read_gpu,
)

GEMMS = [GemmShape(32, 64, 96), GemmShape(1, 64, 96)]
ATTENTIONS = [AttentionShape(6, 2, 16, 8, 24), AttentionShape(6, 2, 16, 1, 24)]


def test_the_least_work_of_a_shape_is_counted():
    gemm = GemmShape(3, 5, 7)
    assert gemm.flops == 2 * 3 * 5 * 7
    assert gemm.num_bytes(2) == 2 * (15 + 35 + 21)
    attention = AttentionShape(num_heads=6, num_kv_heads=2, head_dim=16, num_new=3, num_context=10)
    assert attention.flops == 4 * 6 * 16 * (11 + 12 + 13)
    assert attention.num_bytes(2) == 2 * 16 * (6 * 3 + 6 * 3 + 2 * 13 + 2 * 13)


def test_a_timing_is_the_median_and_its_quartiles():
    timing = Timing.of([5.0, 1.0, 2.0, 9.0, 3.0])
    assert timing == Timing(3.0, 2.0, 5.0, 5)
    assert timing.spread == 1.0
    rate = Rate(flops=6, num_bytes=12, timing=timing)
    assert (rate.flops_per_s, rate.bytes_per_s) == (2.0, 4.0)


@pytest.fixture(scope="module", params=["cuda" if torch.cuda.is_available() else "cpu"])
def probe(request: pytest.FixtureRequest) -> DeviceProbe:
    return probe_device(GEMMS, ATTENTIONS, device=request.param, dtype="float32", num_repeats=3)


def test_each_shape_is_measured(probe):
    assert [*probe.gemms] == GEMMS
    assert [*probe.attentions] == ATTENTIONS
    assert probe.copy.flops == 0
    for shape, rate in [*probe.gemms.items(), *probe.attentions.items()]:
        assert (rate.flops, rate.num_bytes) == (shape.flops, shape.num_bytes(4))
        assert rate.timing.num_repeats == 3
        assert 0 < rate.timing.lower_quartile_s <= rate.timing.upper_quartile_s
    assert probe.launch.median_s > 0
    assert (probe.device == "cpu") == (probe.conditions is None)


def test_a_probe_is_written_with_its_units(probe):
    fields = json.loads(json.dumps(probe.as_fields()))
    assert (fields["dtype"], fields["torch"]) == ("float32", torch.__version__)
    first = fields["gemms"][0]
    assert {name: first[name] for name in "mkn"} == {"m": 32, "k": 64, "n": 96}
    rate = first["flops"] / first["timing"]["median_s"]
    assert first["flops_per_s"] == rate == probe.gemms[GEMMS[0]].flops_per_s
    assert fields["attentions"][1]["num_context"] == 24


@pytest.mark.parametrize("shape", [*ATTENTIONS, AttentionShape(6, 2, 16, 20, 0)])
def test_what_is_timed_as_attention_is_attention(shape):
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(1, 6, shape.num_new, 16, generator=generator)
    keys, values = torch.randn(2, 1, 2, shape.num_tokens, 16, generator=generator)
    kv = KeyValues(keys[0].transpose(0, 1), values[0].transpose(0, 1))
    positions = kv.positions[shape.num_context :]
    expected = attend(query[0].transpose(0, 1), positions, kv).output
    found = attend_newest(query, keys, values).reshape(6, shape.num_new, 16).transpose(0, 1)
    torch.testing.assert_close(found, expected)


def test_too_few_repeats_are_refused():
    with pytest.raises(ValueError, match="needs 3 repeats at least, not 2"):
        probe_device([], [], device="cpu", num_repeats=2)


class FakeNvml:
    """Has what is asked of pynvml for one GPU; `silent` are functions that it does not support."""

    class NVMLError(Exception):
        pass

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
    nvmlClocksEventReasonSwPowerCap = 4
    nvmlClocksEventReasonHwSlowdown = 8
    nvmlClocksEventReasonSyncBoost = 16
    nvmlClocksEventReasonSwThermalSlowdown = 32
    nvmlClocksEventReasonHwThermalSlowdown = 64
    nvmlClocksEventReasonHwPowerBrakeSlowdown = 128
    nvmlClocksEventReasonApplicationsClocksSetting = 2

    def __init__(
        self,
        *,
        silent: tuple[str, ...] = (),
        process_ids: tuple[int, ...] = (),
        utilisations: tuple[int, ...] = (0,),
    ) -> None:
        self.silent, self.process_ids = silent, process_ids
        self.utilisations = [*utilisations]

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvmlDevice") and name in self.silent:
            return self.refuse
        return super().__getattribute__(name)

    def refuse(self, *arguments: Any) -> None:
        raise self.NVMLError("Not Supported")

    def nvmlInit(self) -> None: ...

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        return uuid

    def nvmlDeviceGetName(self, handle: str) -> str:
        assert handle == "GPU-1234"
        return "NVIDIA L4"

    def nvmlDeviceGetClockInfo(self, handle: str, clock: int) -> int:
        return {self.NVML_CLOCK_SM: 1_500, self.NVML_CLOCK_MEM: 6_251}[clock]

    def nvmlDeviceGetMaxClockInfo(self, handle: str, clock: int) -> int:
        return {self.NVML_CLOCK_SM: 2_040}[clock]

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        return 31_250

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: str) -> int:
        return 72_000

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int) -> int:
        return 51

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:
        more = len(self.utilisations) > 1
        return SimpleNamespace(gpu=self.utilisations.pop(0) if more else self.utilisations[0])

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: str) -> int:
        return 1 | 4 | 32  # idle, which is no reason; power; heat

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[Any]:
        return [SimpleNamespace(pid=each) for each in self.process_ids]


STATE = GpuState(1_500, 2_040, 6_251, 31.25, 72.0, 51, 0.0, ("power cap", "heat"), ())


@pytest.mark.parametrize(
    ("silent", "expected"),
    [
        ((), STATE),
        (
            ("nvmlDeviceGetPowerUsage", "nvmlDeviceGetComputeRunningProcesses"),
            replace(STATE, power_w=None, process_ids=None),
        ),
        (
            ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetUtilizationRates"),
            replace(STATE, throttle_reasons=None, utilisation=None),
        ),
    ],
)
def test_a_gpu_is_read(silent, expected):
    assert GpuReader("1234", FakeNvml(silent=silent)).read() == expected


OWN, HOST, OTHER = os.getpid(), 2**30, 2**30 + 1  # the second: ours, as the host calls it


@pytest.mark.parametrize(
    ("process_ids", "has_context", "is_alone"),
    [
        ((), False, True),
        ((), True, True),  # processes are not told
        ((OWN,), True, True),
        ((HOST,), True, True),  # in a container
        ((OWN, OTHER), True, False),
        ((HOST, OTHER), True, False),
        ((OTHER,), False, False),
    ],
)
def test_others_on_the_gpu_are_seen(process_ids, has_context, is_alone):
    reader = GpuReader("1234", FakeNvml(process_ids=process_ids))
    if is_alone:
        reader.require_alone(has_context=has_context)
        return
    said = f"NVIDIA L4 is busy: other processes compute on it .*{OTHER}.*CUDA_VISIBLE_DEVICES"
    with pytest.raises(DeviceBusyError, match=said):
        reader.require_alone(has_context=has_context)


@pytest.mark.parametrize(
    ("nvml", "said"),
    [
        (FakeNvml(utilisations=(0, 0, 4, 0)), None),
        (FakeNvml(silent=("nvmlDeviceGetUtilizationRates",)), None),
        (FakeNvml(utilisations=(0, 0, 37, 0)), "kernels ran 37% of the time"),
        (FakeNvml(process_ids=(OTHER,)), "other processes"),
    ],
)
def test_an_idle_gpu_is_required(nvml, said, monkeypatch):
    paused: list[float] = []
    monkeypatch.setattr(gpu_state.time, "sleep", paused.append)
    reader = GpuReader("1234", nvml)
    if said is None:
        reader.require_idle(has_context=False)
        assert len(paused) == 1 + gpu_state.NUM_READINGS
        return
    with pytest.raises(DeviceBusyError, match=said):
        reader.require_idle(has_context=False)


def test_a_gpu_that_cannot_be_read_is_not_measured(monkeypatch):
    unknown = FakeNvml(silent=("nvmlDeviceGetHandleByUUID",))
    with pytest.raises(DeviceError, match=r"cannot read GPU-1234 \(Not Supported\)"):
        GpuReader("1234", unknown)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(DeviceError, match="pip install nvidia-ml-py"):
        read_gpu("1234")


def test_conditions_are_those_under_load():
    hot = replace(STATE, sm_clock_mhz=900, throttle_reasons=("heat",))
    unknown = replace(STATE, sm_clock_mhz=None, throttle_reasons=None)
    idle = replace(STATE, sm_clock_mhz=210, throttle_reasons=("application clocks",))
    conditions = GpuConditions(idle, (STATE, hot, unknown), idle)
    assert conditions.throttle_reasons == ("heat", "power cap")
    assert conditions.min_sm_clock_mhz == 900
    assert GpuConditions(idle, (unknown,), idle).min_sm_clock_mhz is None
    assert conditions.as_fields()["before"]["sm_clock_mhz"] == 210


def test_nvidia_s_library_has_what_the_fake_has(monkeypatch):
    """vLLM brings a copy of nvidia-ml-py that imports without a driver."""
    vllm = find_spec("vllm")
    if vllm is None or vllm.origin is None:
        pytest.skip("no vLLM, whose copy of nvidia-ml-py is looked into")
    spec = spec_from_file_location(
        "their_pynvml", Path(vllm.origin).parent / "third_party/pynvml.py"
    )
    assert spec is not None
    assert spec.loader is not None
    theirs = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, theirs.__name__, theirs)  # it looks itself up there
    spec.loader.exec_module(theirs)
    ours = [name for name in vars(FakeNvml) if name.lower().startswith("nvml")]
    assert [name for name in ours if not hasattr(theirs, name)] == []
    bits = [name for name in ours if name.startswith("nvmlClocksEventReason")]
    assert {bit: getattr(FakeNvml, bit) for bit in bits} == {
        bit: getattr(theirs, bit) for bit in bits
    }
    assert len(bits) == len(gpu_state.THROTTLE_REASONS)
    with pytest.raises(DeviceError, match="cannot read GPU-1234"):  # no driver, or no such GPU
        GpuReader("1234", theirs)
