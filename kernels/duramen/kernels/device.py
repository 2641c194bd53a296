"""What NVIDIA's management library says of this machine's GPUs."""

import ctypes
from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class Gpu:
    name: str
    memory_bytes: int


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


def _has_nvidia_driver() -> bool:
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True
