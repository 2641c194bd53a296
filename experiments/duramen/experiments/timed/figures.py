"""What a simulation comes to: the times of each call, and of all.

TTFT, end-to-end and queue times count from a call's arrival; the queue ends when the step is made
that computes its first chunk. A gap (ITL) lies between two tokens of one call.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from duramen.experiments.timed.call import TimedCall
from duramen.experiments.timed.engine import Timeline
from duramen.experiments.timed.slo import Slo
from duramen.serving.kv.batching.request import Request

Seconds = NDArray[np.float64]


@dataclass(frozen=True)
class Ranks:
    """Percentiles by the nearest rank; None where there is no value."""

    p50: float | None
    p90: float | None
    p99: float | None
    max: float | None

    @classmethod
    def of(cls, values: Seconds) -> "Ranks":
        if not len(values):
            return cls(None, None, None, None)
        ordered = np.sort(values)
        p50, p90, p99 = (float(ordered[-(-len(ordered) * rank // 100) - 1]) for rank in RANKS)
        return cls(p50, p90, p99, float(ordered[-1]))


RANKS = (50, 90, 99)


@dataclass(frozen=True)
class CallFigures:
    session: str
    call: int
    arrival_s: float
    queue_s: float
    ttft_s: float
    e2e_s: float
    itl_s: Ranks
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    num_preemptions: int


@dataclass(frozen=True)
class Goodput:
    """The calls that met the objectives. `calls_per_s`: of the makespan."""

    slo: Slo
    num_calls: int
    share: float
    calls_per_s: float


@dataclass(frozen=True)
class TimedFigures:
    """`makespan_s`: from the first arrival to the last token. `goodput` is None without objectives.
    At least one call."""

    calls: list[CallFigures]
    num_steps: int
    makespan_s: float
    queue_s: Ranks
    ttft_s: Ranks
    itl_s: Ranks
    e2e_s: Ranks
    goodput: Goodput | None

    @property
    def prompt_tokens(self) -> int:
        return sum(call.prompt_tokens for call in self.calls)

    @property
    def cached_tokens(self) -> int:
        return sum(call.cached_tokens for call in self.calls)

    @property
    def output_tokens(self) -> int:
        return sum(call.output_tokens for call in self.calls)

    @property
    def output_tokens_per_s(self) -> float:
        return self.output_tokens / self.makespan_s

    @property
    def num_preemptions(self) -> int:
        return sum(call.num_preemptions for call in self.calls)

    def as_json(self) -> dict[str, Any]:
        return {
            "num_calls": len(self.calls),
            "num_steps": self.num_steps,
            "num_preemptions": self.num_preemptions,
            "makespan_s": self.makespan_s,
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "output_tokens": self.output_tokens,
            "output_tokens_per_s": self.output_tokens_per_s,
            "queue_s": asdict(self.queue_s),
            "ttft_s": asdict(self.ttft_s),
            "itl_s": asdict(self.itl_s),
            "e2e_s": asdict(self.e2e_s),
            "goodput": self.goodput and asdict(self.goodput),
            "calls": [asdict(call) for call in self.calls],
        }


def figures(timeline: Timeline, slo: Slo | None = None) -> TimedFigures:
    """Of a run in which at least one call was served."""
    made_s, ended_s = np.array(timeline.made_s), np.array(timeline.ended_s)
    gaps_s = [_gaps(request, ended_s) for _, request in timeline.served]
    calls = [
        _call(call, request, gaps, made_s, ended_s)
        for (call, request), gaps in zip(timeline.served, gaps_s, strict=True)
    ]
    first_s = min(call.arrival_s for call in calls)
    makespan_s = max(call.arrival_s + call.e2e_s for call in calls) - first_s
    return TimedFigures(
        calls,
        len(ended_s),
        makespan_s,
        Ranks.of(np.array([call.queue_s for call in calls])),
        Ranks.of(np.array([call.ttft_s for call in calls])),
        Ranks.of(np.concatenate(gaps_s)),
        Ranks.of(np.array([call.e2e_s for call in calls])),
        None if slo is None else _goodput(slo, calls, makespan_s),
    )


def _gaps(request: Request, ended_s: Seconds) -> Seconds:
    came_s = [ended_s[first : last + 1] for first, last in request.token_runs]
    return np.diff(np.concatenate(came_s))


def _call(
    call: TimedCall, request: Request, gaps_s: Seconds, made_s: Seconds, ended_s: Seconds
) -> CallFigures:
    assert request.first_step is not None
    assert request.cached_tokens is not None
    arrival_s, (first_token_step, _) = request.arrival_s, request.token_runs[0]
    return CallFigures(
        call.session,
        call.index,
        arrival_s,
        queue_s=float(made_s[request.first_step]) - arrival_s,
        ttft_s=float(ended_s[first_token_step]) - arrival_s,
        e2e_s=float(ended_s[request.last_step]) - arrival_s,
        itl_s=Ranks.of(gaps_s),
        prompt_tokens=call.num_prompt,
        cached_tokens=request.cached_tokens,
        output_tokens=call.num_outputs,
        num_preemptions=request.num_preemptions,
    )


def _goodput(slo: Slo, calls: list[CallFigures], makespan_s: float) -> Goodput:
    num_good = sum(slo.is_met(call.ttft_s, call.itl_s.p99) for call in calls)
    return Goodput(slo, num_good, num_good / len(calls), num_good / makespan_s)
