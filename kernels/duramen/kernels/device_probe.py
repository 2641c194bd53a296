"""What a device does per second: it copies, multiplies, attends and launches.

Each figure is the median of repeats. Caches are overwritten before each, so that operands come
from memory, as a layer's weights do in a model. On a GPU CUDA's events take the time, on a CPU the
clock does. The kernels are torch's own; an engine's may be faster. On a GPU nothing is measured
beside others; on a CPU others are not looked for, and show in the spread at best.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, Protocol

import torch
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import linear, scaled_dot_product_attention

from duramen.kernels.gpu_state import GpuConditions, GpuReader, GpuState, read_gpu

NUM_WARM_UPS = 3
NUM_LAUNCHES = 1_000
COPY_BYTES = {"cpu": 2**26, "cuda": 2**30}
FLUSH_BYTES = {"cpu": 2**26, "cuda": 2**28}  # above the caches


class GemmShape(NamedTuple):
    """[m, k] by [k, n]: m tokens through a weight."""

    m: int
    k: int
    n: int

    @property
    def flops(self) -> int:
        return 2 * self.m * self.k * self.n

    def num_bytes(self, item_bytes: int) -> int:
        return (self.m * self.k + self.k * self.n + self.m * self.n) * item_bytes


class AttentionShape(NamedTuple):
    """`num_new` tokens behind `num_context` cached ones, causal, of one sequence and layer."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    num_new: int
    num_context: int

    @property
    def num_tokens(self) -> int:
        return self.num_context + self.num_new

    @property
    def flops(self) -> int:
        """Of the pairs that are attended to: the causal half among the new ones."""
        num_pairs = self.num_new * self.num_context + self.num_new * (self.num_new + 1) // 2
        return 4 * self.num_heads * self.head_dim * num_pairs

    def num_bytes(self, item_bytes: int) -> int:
        """Queries and results, keys and values."""
        rows = self.num_heads * self.num_new + self.num_kv_heads * self.num_tokens
        return 2 * rows * self.head_dim * item_bytes


@dataclass(frozen=True)
class Timing:
    """Seconds of one run, over `num_repeats` of them."""

    median_s: float
    lower_quartile_s: float
    upper_quartile_s: float
    num_repeats: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Timing":
        lower, median, upper = statistics.quantiles(seconds, n=4, method="inclusive")
        return cls(median, lower, upper, len(seconds))

    @property
    def spread(self) -> float:
        """Between the quartiles, as a share of the median."""
        return (self.upper_quartile_s - self.lower_quartile_s) / self.median_s


@dataclass(frozen=True)
class Rate:
    """`flops` are done and `num_bytes` read and written, at least, in each run."""

    flops: int
    num_bytes: int
    timing: Timing

    @property
    def flops_per_s(self) -> float:
        return self.flops / self.timing.median_s

    @property
    def bytes_per_s(self) -> float:
        return self.num_bytes / self.timing.median_s

    def as_fields(self) -> dict[str, Any]:
        rates = {"flops_per_s": self.flops_per_s, "bytes_per_s": self.bytes_per_s}
        return asdict(self) | rates | {"spread": self.timing.spread}


@dataclass(frozen=True)
class DeviceProbe:
    """`device`: the GPU's name, or cpu. `launch`: one of many one-element kernels in a row, torch's
    own dispatch included. `conditions`: None on a CPU."""

    device: str
    dtype: str
    torch_version: str
    copy: Rate
    gemms: Mapping[GemmShape, Rate]
    attentions: Mapping[AttentionShape, Rate]
    launch: Timing
    conditions: GpuConditions | None

    def as_fields(self) -> dict[str, Any]:
        """For JSON: numbers in the units of their names."""
        return {
            "device": self.device,
            "dtype": self.dtype,
            "torch": self.torch_version,
            "copy": self.copy.as_fields(),
            "gemms": [shape._asdict() | rate.as_fields() for shape, rate in self.gemms.items()],
            "attentions": [
                shape._asdict() | rate.as_fields() for shape, rate in self.attentions.items()
            ],
            "launch": asdict(self.launch) | {"spread": self.launch.spread},
            "conditions": self.conditions and self.conditions.as_fields(),
        }


def probe_device(
    gemms: Sequence[GemmShape],
    attentions: Sequence[AttentionShape],
    *,
    device: str,
    dtype: str = "bfloat16",
    num_repeats: int = 20,
) -> DeviceProbe:
    """`device` as torch names it: cpu, cuda, cuda:1. `dtype` likewise: bfloat16, float32.

    Raises DeviceBusyError where another process computes on the GPU before or after, DeviceError
    where that cannot be told, ValueError for fewer than 3 repeats.
    """
    if num_repeats < 3:
        raise ValueError(f"a median with quartiles needs 3 repeats at least, not {num_repeats}")
    where = torch.device(device)
    if where.type == "cpu":
        bench = _Bench(where, getattr(torch, dtype), num_repeats, _CpuTimer())
        return bench.probe(device, gemms, attentions)
    with torch.cuda.device(where):
        torch.zeros(1, device=where)  # from here on this process has a context there
        reader = read_gpu(str(torch.cuda.get_device_properties(where).uuid))
        reader.require_idle(has_context=True)
        timer = _CudaTimer(reader)
        before = reader.read()
        bench = _Bench(where, getattr(torch, dtype), num_repeats, timer)
        probe = bench.probe(reader.name, gemms, attentions)
        after = reader.read()
        reader.require_alone(has_context=True)
    return replace(probe, conditions=GpuConditions(before, tuple(timer.states), after))


class _Timer(Protocol):
    def seconds(self, run: Callable[[], object], num_repeats: int) -> list[float]:
        """Of each run, caches cold."""


class _CpuTimer:
    def __init__(self) -> None:
        self._flushed = torch.empty(FLUSH_BYTES["cpu"], dtype=torch.uint8)

    def seconds(self, run: Callable[[], object], num_repeats: int) -> list[float]:
        return [self._second(run) for _ in range(num_repeats)]

    def _second(self, run: Callable[[], object]) -> float:
        self._flushed.zero_()
        begin = time.perf_counter()
        run()
        return time.perf_counter() - begin


class _CudaTimer:
    """Queues all runs before it waits, so that launches are hidden. `states`: of the GPU, one for
    each measurement, read while its queue was at work."""

    def __init__(self, reader: GpuReader) -> None:
        self._reader = reader
        self._flushed = torch.empty(FLUSH_BYTES["cuda"], dtype=torch.uint8, device="cuda")
        self.states: list[GpuState] = []

    def seconds(self, run: Callable[[], object], num_repeats: int) -> list[float]:
        events = [self._queue(run) for _ in range(num_repeats)]
        self.states.append(self._reader.read())
        torch.cuda.synchronize()
        return [begin.elapsed_time(end) / 1000 for begin, end in events]

    def _queue(self, run: Callable[[], object]) -> tuple[Any, Any]:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._flushed.zero_()
        begin.record()
        run()
        end.record()
        return begin, end


@dataclass(frozen=True)
class _Bench:
    device: torch.device
    dtype: torch.dtype
    num_repeats: int
    timer: _Timer

    def probe(
        self, name: str, gemms: Sequence[GemmShape], attentions: Sequence[AttentionShape]
    ) -> DeviceProbe:
        return DeviceProbe(
            device=name,
            dtype=str(self.dtype).removeprefix("torch."),
            torch_version=torch.__version__,
            copy=self._copy(),
            gemms={shape: self._gemm(shape) for shape in gemms},
            attentions={shape: self._attention(shape) for shape in attentions},
            launch=self._launch(),
            conditions=None,
        )

    def _timing(self, run: Callable[[], object]) -> Timing:
        for _ in range(NUM_WARM_UPS):
            run()
        return Timing.of(self.timer.seconds(run, self.num_repeats))

    def _normal(self, *shape: int) -> torch.Tensor:
        """Not zeros: a GPU spends less power on those, and clocks higher."""
        return torch.randn(shape, device=self.device, dtype=self.dtype)

    def _copy(self) -> Rate:
        num_bytes = COPY_BYTES[self.device.type]
        source = torch.ones(num_bytes, dtype=torch.uint8, device=self.device)
        target = torch.empty_like(source)
        return Rate(0, 2 * num_bytes, self._timing(lambda: target.copy_(source)))

    def _gemm(self, shape: GemmShape) -> Rate:
        tokens, weight = self._normal(shape.m, shape.k), self._normal(shape.n, shape.k)
        timing = self._timing(lambda: linear(tokens, weight))
        return Rate(shape.flops, shape.num_bytes(self.dtype.itemsize), timing)

    def _attention(self, shape: AttentionShape) -> Rate:
        query = self._normal(1, shape.num_heads, shape.num_new, shape.head_dim)
        keys, values = (
            self._normal(1, shape.num_kv_heads, shape.num_tokens, shape.head_dim) for _ in "kv"
        )
        timing = self._timing(lambda: attend_newest(query, keys, values))
        return Rate(shape.flops, shape.num_bytes(self.dtype.itemsize), timing)

    def _launch(self) -> Timing:
        one = torch.zeros(1, device=self.device)
        return Timing.of([self._launch_second(one) for _ in range(self.num_repeats)])

    def _launch_second(self, one: torch.Tensor) -> float:
        self._wait()
        begin = time.perf_counter()
        for _ in range(NUM_LAUNCHES):
            one.add_(1)
        self._wait()
        return (time.perf_counter() - begin) / NUM_LAUNCHES

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def attend_newest(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """The newest tokens of a causal sequence over all of it."""
    num_kv_heads, num_tokens = keys.shape[1:3]
    num_new = query.shape[2]
    if num_new == 1:  # it sees all: the heads that share keys are as good as tokens
        return scaled_dot_product_attention(
            query.view(1, num_kv_heads, -1, query.shape[3]), keys, values
        )
    causal = causal_lower_right(num_new, num_tokens)
    return scaled_dot_product_attention(query, keys, values, attn_mask=causal, enable_gqa=True)
