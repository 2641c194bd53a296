"""Long prompts beside streams that decode all the time: what scripts/bench_itl.py plays live, on
the simulator's clock."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

import numpy as np

from duramen.experiments.timed.arrivals import Sending
from duramen.experiments.timed.call import TimedCall
from duramen.experiments.timed.engine import StepBudget, TimedEngine, Timeline
from duramen.serving.kv.batching.rules import Rules
from duramen.serving.kv.step_time import StepTime


@dataclass(frozen=True)
class MixedLoad:
    """In tokens and seconds. `streams`: prompts whose replies take `stream_outputs` each, one after
    another; `longs`: prompts that nobody sent before, the first sent after `settle_s`, each later
    one `pause_s` after the first token of the one before, which is its only one."""

    streams: Sequence[int]
    longs: Sequence[int]
    stream_outputs: int
    settle_s: float
    pause_s: float


@dataclass(frozen=True)
class MixedTimes:
    """`gaps_s`: between tokens of the streams, from the first long prompt until the pause after the
    last one; `ttfts_s`: of the long prompts."""

    gaps_s: list[float]
    ttfts_s: list[float]


def simulate_mixed(
    load: MixedLoad,
    rules: Rules,
    step_time: StepTime,
    step_budget: StepBudget | None = None,
    *,
    call_fixed_s: float = 0.0,
) -> MixedTimes:
    """No two prompts share a token."""
    engine = TimedEngine(rules, step_time, step_budget, call_fixed_s=call_fixed_s)
    arrivals = _Mixed(load, rules.block_size)
    return _times(engine.run(arrivals), load, arrivals.end_s)


@dataclass
class _Mixed:
    load: MixedLoad
    block_size: int
    end_s: float = 0.0
    _num_sent: int = 0  # of the long prompts
    _num_answered: int = 0
    _blocks: count = field(default_factory=count)  # type: ignore[type-arg]

    def first(self) -> Sequence[Sending]:
        streams = [(0.0, self._stream(num_prompt)) for num_prompt in self.load.streams]
        return [*streams, *self._next_long(self.load.settle_s)]

    def answered(self, call: TimedCall, now_s: float) -> Sequence[Sending]:
        if call.num_outputs == 1:
            self._num_answered += 1
            self.end_s = now_s + self.load.pause_s
            return self._next_long(self.end_s)
        if self._num_answered == len(self.load.longs):
            return ()
        return [(now_s, self._stream(call.num_prompt))]

    def _stream(self, num_prompt: int) -> TimedCall:
        return self._call("stream", num_prompt, self.load.stream_outputs)

    def _next_long(self, time_s: float) -> Sequence[Sending]:
        if self._num_sent == len(self.load.longs):
            return ()
        num_prompt = self.load.longs[self._num_sent]
        self._num_sent += 1
        return [(time_s, self._call("long", num_prompt, 1))]

    def _call(self, name: str, num_prompt: int, num_outputs: int) -> TimedCall:
        num_blocks = (num_prompt + num_outputs) // self.block_size
        keys = [next(self._blocks) for _ in range(num_blocks)]
        return TimedCall(name, 0, keys, num_prompt, num_outputs, num_outputs)


def _times(timeline: Timeline, load: MixedLoad, end_s: float) -> MixedTimes:
    ended_s = np.array(timeline.ended_s)
    gaps_s: list[float] = []
    ttfts_s: list[float] = []
    for call, request in timeline.served:
        came_s = np.concatenate([ended_s[first : last + 1] for first, last in request.token_runs])
        if call.num_outputs == 1:
            ttfts_s.append(float(came_s[0]) - request.arrival_s)
            continue
        is_counted = (came_s[1:] > load.settle_s) & (came_s[1:] <= end_s)
        gaps_s += np.diff(came_s)[is_counted].tolist()
    return MixedTimes(gaps_s, ttfts_s)
