"""The machine while something is measured on it: what else is at work, clocks, power and heat."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from duramen.kernels.device import find_gpus
from duramen.kernels.gpu_state import DeviceError, GpuReader, GpuState, read_gpu
from duramen.layout.errors import EngineError


@dataclass(frozen=True)
class Watch:
    """`gpu` is None where the CPU is the device."""

    gpu: GpuReader | None

    def busy(self, *, has_server: bool) -> str | None:
        """Why a measurement would be beside something else, None if it would not; takes a second
        on a GPU. `has_server`: one process on it is the engine that is measured."""
        if self.gpu is None:
            return _busy_cpu()
        try:
            self.gpu.require_idle(has_context=has_server)
        except DeviceError as error:
            return str(error)
        return None

    def joined(self) -> str | None:
        """The same after a measurement: the engine's own work is no reason."""
        if self.gpu is None:
            return None
        try:
            self.gpu.require_alone(has_context=True)
        except DeviceError as error:
            return str(error)
        return None

    def read(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "load_average": round(os.getloadavg()[0], 2),
            "num_cores": os.cpu_count(),
            "gpu": None if self.gpu is None else _gpu_fields(self.gpu.read()),
        }


def watch_cpu() -> Watch:
    return Watch(None)


def watch_gpu(environment: Mapping[str, str]) -> Watch:
    """The first GPU that CUDA would take, the CPU where there is none. Raises EngineError where it
    cannot be read."""
    gpus = find_gpus()
    if gpus == ():
        return watch_cpu()
    if gpus is None:
        raise EngineError("nvidia-ml-py is missing, so nobody can say whether the GPU is idle")
    try:
        return Watch(read_gpu(_first_uuid(environment.get("CUDA_VISIBLE_DEVICES", ""))))
    except DeviceError as error:
        raise EngineError(str(error)) from error


def probe_rates(model_dir: Path, device: str) -> dict[str, Any]:
    """What `device` (cpu, cuda) does at the model's shapes: the best of each kind, in a process
    that is gone afterwards. Raises EngineError where it cannot be measured."""
    command = [sys.executable, "-m", "duramen.serving.device_rates", str(model_dir), device]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        reason = (done.stderr.strip() or "no reason given").splitlines()[-1]
        raise EngineError(f"the device could not be probed: {reason}")
    found = json.loads(done.stdout)
    under = found["conditions"] or {}
    return {
        "copy_bytes_per_s": found["copy"]["bytes_per_s"],
        "gemm_flops_per_s": max(each["flops_per_s"] for each in found["gemms"]),
        "attention_flops_per_s": max(
            (each["flops_per_s"] for each in found["attentions"]), default=None
        ),
        "launch_s": found["launch"]["median_s"],
        "min_sm_clock_mhz": under.get("min_sm_clock_mhz"),
        "throttle_reasons": under.get("throttle_reasons"),
    }


def _first_uuid(visible: str) -> str:
    first = visible.partition(",")[0].strip()
    if first.startswith("GPU-"):
        return first.removeprefix("GPU-")
    nvml: Any = import_module("pynvml")
    nvml.nvmlInit()
    handle = nvml.nvmlDeviceGetHandleByIndex(int(first) if first.isdecimal() else 0)
    uuid: str = nvml.nvmlDeviceGetUUID(handle)
    return uuid.removeprefix("GPU-")


def _gpu_fields(state: GpuState) -> dict[str, Any]:
    fields = asdict(state)
    del fields["process_ids"]
    reasons = state.throttle_reasons
    return fields | {"throttle_reasons": None if reasons is None else list(reasons)}


def _busy_cpu() -> str | None:
    load, num_cores = os.getloadavg()[0], os.cpu_count() or 1
    if load <= num_cores:
        return None
    return f"the load average is {load:.1f} on {num_cores} cores"
