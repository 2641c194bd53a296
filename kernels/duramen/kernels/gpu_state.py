"""How one GPU does: clocks, power, heat, and who else computes on it, as NVIDIA's management
library says.

Errors:
    DeviceError         the device cannot be measured; the message says what to do
      DeviceBusyError   something else runs on it
"""

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any

NUM_READINGS, PAUSE_S = 5, 0.2
SETTLE_S = 1.0  # utilisation is of the last second at most: what ran before is then forgotten
MOST_UTILISATION = 0.05
THROTTLE_REASONS = {  # names of the library's bits behind "nvmlClocksEventReason"
    "SwPowerCap": "power cap",
    "SwThermalSlowdown": "heat",
    "HwThermalSlowdown": "heat (hardware)",
    "HwPowerBrakeSlowdown": "power brake",
    "HwSlowdown": "hardware slowdown",
    "SyncBoost": "clocks in step with other GPUs",
    "ApplicationsClocksSetting": "application clocks",
}


class DeviceError(Exception):
    pass


class DeviceBusyError(DeviceError):
    pass


@dataclass(frozen=True)
class GpuState:
    """At one moment. None: the device does not say.

    `utilisation`: share of the last sampling period, 0 to 1, in which a kernel ran.
    `process_ids`: all that compute on it, the reader's own included; in a container they may be
    those of the host.
    """

    sm_clock_mhz: int | None
    max_sm_clock_mhz: int | None
    memory_clock_mhz: int | None
    power_w: float | None
    power_limit_w: float | None
    temperature_c: int | None
    utilisation: float | None
    throttle_reasons: tuple[str, ...] | None
    process_ids: tuple[int, ...] | None


@dataclass(frozen=True)
class GpuConditions:
    """Under which something was measured. `during`: while the work of a measurement was queued."""

    before: GpuState
    during: tuple[GpuState, ...]
    after: GpuState

    @property
    def throttle_reasons(self) -> tuple[str, ...]:
        """All that were seen under load."""
        seen = {reason for state in self.during for reason in state.throttle_reasons or ()}
        return tuple(sorted(seen))

    @property
    def min_sm_clock_mhz(self) -> int | None:
        """Under load."""
        clocks = (state.sm_clock_mhz for state in self.during)
        return min((clock for clock in clocks if clock is not None), default=None)

    def as_fields(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "before": asdict(self.before),
            "after": asdict(self.after),
            "throttle_reasons": list(self.throttle_reasons),
            "min_sm_clock_mhz": self.min_sm_clock_mhz,
        }


class GpuReader:
    """Reads one GPU. `nvml`: the module pynvml, or what has its functions.

    Raises DeviceError where the library does not answer, or does not know the GPU.
    """

    def __init__(self, uuid: str, nvml: Any) -> None:
        self._nvml = nvml
        try:
            nvml.nvmlInit()
            self._handle = nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
            self.name: str = nvml.nvmlDeviceGetName(self._handle)
        except nvml.NVMLError as error:
            raise DeviceError(
                f"NVIDIA's management library cannot read GPU-{uuid} ({error}), so nobody can say "
                "whether it is idle: check the driver with nvidia-smi -L (MIG slices cannot be "
                "calibrated)"
            ) from error

    def read(self) -> GpuState:
        nvml, ask = self._nvml, self._ask
        power_mw = ask(nvml.nvmlDeviceGetPowerUsage)
        limit_mw = ask(nvml.nvmlDeviceGetEnforcedPowerLimit)
        rates = ask(nvml.nvmlDeviceGetUtilizationRates)
        bits = ask(nvml.nvmlDeviceGetCurrentClocksEventReasons)
        processes = ask(nvml.nvmlDeviceGetComputeRunningProcesses)
        return GpuState(
            sm_clock_mhz=ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM),
            max_sm_clock_mhz=ask(nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_SM),
            memory_clock_mhz=ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM),
            power_w=None if power_mw is None else power_mw / 1000,
            power_limit_w=None if limit_mw is None else limit_mw / 1000,
            temperature_c=ask(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
            utilisation=None if rates is None else rates.gpu / 100,
            throttle_reasons=None if bits is None else self._throttle_reasons(bits),
            process_ids=None if processes is None else tuple(each.pid for each in processes),
        )

    def _ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(self._handle, *arguments)
        except self._nvml.NVMLError:  # not supported here
            return None

    def _throttle_reasons(self, bits: int) -> tuple[str, ...]:
        return tuple(
            text
            for name, text in THROTTLE_REASONS.items()
            if bits & getattr(self._nvml, f"nvmlClocksEventReason{name}")
        )

    def require_idle(self, *, has_context: bool, settle_s: float = SETTLE_S) -> None:
        """Raise DeviceBusyError if another process computes on it, or kernels run although this
        process waits: it looks for a second, after `settle_s`. `has_context`: see `require_alone`.
        """
        time.sleep(settle_s)
        utilisations = []
        for _ in range(NUM_READINGS):
            state = self.read()
            self._require_alone(state, has_context)
            utilisations.append(state.utilisation or 0.0)
            time.sleep(PAUSE_S)
        if max(utilisations) > MOST_UTILISATION:
            raise self._busy(f"kernels ran {max(utilisations):.0%} of the time")

    def require_alone(self, *, has_context: bool) -> None:
        """Raise DeviceBusyError if another process computes on it. `has_context`: whether this
        process has a CUDA context there, and so is one of those listed, if under another id."""
        self._require_alone(self.read(), has_context)

    def _require_alone(self, state: GpuState, has_context: bool) -> None:
        others = [each for each in state.process_ids or () if each != os.getpid()]
        is_listed = len(others) < len(state.process_ids or ())
        num_others = len(others) - int(has_context and not is_listed)
        if num_others > 0:
            ids = ", ".join(map(str, others))
            raise self._busy(f"other processes compute on it (among the process ids {ids})")

    def _busy(self, why: str) -> DeviceBusyError:
        return DeviceBusyError(
            f"{self.name} is busy: {why}; nothing is measured beside others: end them, or choose "
            "an idle GPU with CUDA_VISIBLE_DEVICES"
        )


def read_gpu(uuid: str) -> GpuReader:
    """A reader of the GPU that CUDA calls so. Raises DeviceError, see GpuReader."""
    try:
        nvml = import_module("pynvml")
    except ModuleNotFoundError:
        raise DeviceError(
            "nvidia-ml-py is missing, so nobody can say whether the GPU is idle: "
            "pip install nvidia-ml-py"
        ) from None
    return GpuReader(uuid, nvml)
