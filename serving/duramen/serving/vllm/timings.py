"""Times that a vLLM server sums up itself, read from the histograms of its /metrics page.

vLLM 0.32, v1/metrics/loggers.py: time to first token counts from a request's arrival at the server,
queue time until it is scheduled, prefill time from there to its first token. The sums grow from the
server's start and hold every client's requests: only a difference says something.
"""

import math
import re
from dataclasses import dataclass
from itertools import starmap

TTFT, QUEUE, PREFILL = (
    "vllm:time_to_first_token_seconds",
    "vllm:request_queue_time_seconds",
    "vllm:request_prefill_time_seconds",
)

PREEMPTIONS = "vllm:num_preemptions_total"


@dataclass(frozen=True)
class Summed:
    """`num` times that add up to `total_s`."""

    total_s: float
    num: int

    @property
    def mean_s(self) -> float | None:
        return self.total_s / self.num if self.num else None

    def __add__(self, other: "Summed") -> "Summed":
        return Summed(self.total_s + other.total_s, self.num + other.num)

    def __sub__(self, other: "Summed") -> "Summed":
        return Summed(self.total_s - other.total_s, self.num - other.num)


@dataclass(frozen=True)
class EngineTimes:
    """Times to the first token, and of that in the queue and in prefill. None: not reported."""

    ttft: Summed | None
    queue: Summed | None = None
    prefill: Summed | None = None

    def since(self, before: "EngineTimes") -> "EngineTimes":
        """What was added after `before`; None where the server began anew in between."""
        pairs = zip(
            (self.ttft, self.queue, self.prefill),
            (before.ttft, before.queue, before.prefill),
            strict=True,
        )
        return EngineTimes(*starmap(_added, pairs))


def parse_times(metrics: str) -> EngineTimes | None:
    """From the text of a /metrics page, over all its engines; None without times to first token."""
    ttft = _summed(metrics, TTFT)
    if ttft is None:
        return None
    return EngineTimes(ttft, _summed(metrics, QUEUE), _summed(metrics, PREFILL))


def parse_preemptions(metrics: str) -> int | None:
    """From the text of a /metrics page, over all its engines; None where it does not say."""
    counts = _values(metrics, PREEMPTIONS)
    return int(sum(counts)) if counts and all(map(math.isfinite, counts)) else None


def _added(after: Summed | None, before: Summed | None) -> Summed | None:
    if after is None or before is None or after.num < before.num:
        return None
    return after - before


def _summed(metrics: str, name: str) -> Summed | None:
    totals_s, counts = _values(metrics, f"{name}_sum"), _values(metrics, f"{name}_count")
    if not totals_s or len(totals_s) != len(counts):
        return None
    if not all(map(math.isfinite, (*totals_s, *counts))):
        return None
    return Summed(math.fsum(totals_s), int(sum(counts)))


def _values(metrics: str, name: str) -> list[float]:
    """One value per set of labels. A label may hold any text, in quotes."""
    pattern = rf"^{name}(?:\{{.*\}})?[ \t]+([^\s{{}}]+)(?:[ \t]+-?\d+)?[ \t]*$"
    return [_number(value) for value in re.findall(pattern, metrics, re.MULTILINE)]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
