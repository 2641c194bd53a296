"""What NVIDIA's management library says of this machine's GPUs."""

import ctypes
from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class Gpu:
    name: str
    memory_bytes: int


@dataclass(frozen=True)
class GpuReading:
    """One GPU at one moment. `utilisation`: share of the last sampling period, 0 to 1, in which a
    kernel ran. None where the device does not say (MIG slices, some drivers)."""

    index: int
    name: str
    memory_bytes: int
    memory_used_bytes: int
    utilisation: float | None
    power_w: float | None


def find_gpus() -> tuple[Gpu, ...] | None:
    """The GPUs, () if there are none; None where a driver is there but nvidia-ml-py is not."""
    try:
        nvml: Any = import_module("pynvml")
    except ModuleNotFoundError:
        return None if _has_nvidia_driver() else ()
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:  # no driver, or none that answers
        return ()
    handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
    gpus = tuple(
        Gpu(nvml.nvmlDeviceGetName(handle), nvml.nvmlDeviceGetMemoryInfo(handle).total)
        for handle in handles
    )
    nvml.nvmlShutdown()
    return gpus


class GpuMonitor:
    """Reads all GPUs again and again; the library stays open in between, since opening it is slow.

    `nvml`: the module pynvml, or what has its functions. Without it there are no readings.
    """

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._is_open = False
        if nvml is None:
            return
        try:
            nvml.nvmlInit()
        except nvml.NVMLError:  # no driver, or none that answers
            return
        self._is_open = True

    def read(self) -> tuple[GpuReading, ...]:
        """One reading for each GPU that answers, in the order of their indices."""
        if not self._is_open:
            return ()
        try:
            count = self._nvml.nvmlDeviceGetCount()
        except self._nvml.NVMLError:  # the driver went away
            return ()
        readings = [self._read_one(index) for index in range(count)]
        return tuple(reading for reading in readings if reading is not None)

    def _read_one(self, index: int) -> GpuReading | None:
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
            name = nvml.nvmlDeviceGetName(handle)
        except nvml.NVMLError:  # it fell off the bus
            return None
        try:
            utilisation = nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
        except nvml.NVMLError:
            utilisation = None
        try:
            power_w = nvml.nvmlDeviceGetPowerUsage(handle) / 1000
        except nvml.NVMLError:
            power_w = None
        return GpuReading(index, name, memory.total, memory.used, utilisation, power_w)


def gpu_monitor() -> GpuMonitor:
    """A monitor of this machine's GPUs; without nvidia-ml-py or a driver it reads nothing."""
    try:
        return GpuMonitor(import_module("pynvml"))
    except ModuleNotFoundError:
        return GpuMonitor(None)


def _has_nvidia_driver() -> bool:
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True
