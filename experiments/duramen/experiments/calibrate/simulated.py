"""What vLLM's scheduler makes of a scene: the simulator, with the shared prefixes in its cache."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from duramen.experiments.calibrate.scenes import Scene, Shape
from duramen.experiments.timed.arrivals import OpenLoop
from duramen.experiments.timed.call import TimedCall
from duramen.experiments.timed.engine import TimedEngine
from duramen.serving.kv.batching.request import Request
from duramen.serving.kv.batching.rules import Rules
from duramen.serving.kv.step_time import Step, StepTime

BEGIN_S = 1e5  # all prefixes are in the cache by then


@dataclass(frozen=True)
class Simulated:
    """Steps count from the scene's first, seconds from its beginning. `token_steps` has for each
    call the steps that gave it a token."""

    steps: Sequence[Step]
    ended_s: NDArray[np.float64]
    token_steps: Sequence[NDArray[np.int64]]

    def token_s(self, number: int) -> NDArray[np.float64]:
        times: NDArray[np.float64] = self.ended_s[self.token_steps[number]]
        return times


def simulate(
    scene: Scene,
    sent_s: Sequence[float],
    rules: Rules,
    step_time: StepTime,
    call_fixed_s: float = 0.0,
) -> Simulated:
    """`sent_s`: of each call, in the order of `scene.shapes`."""
    primes = [
        _timed(number, Shape(0, shape.cached_tokens), rules.block_size, is_prefix=True)
        for number, shape in enumerate(scene.shapes)
        if shape.cached_tokens
    ]
    calls = [_timed(number, shape, rules.block_size) for number, shape in enumerate(scene.shapes)]
    sendings = [(0.0, call) for call in primes]
    sendings += [(BEGIN_S + at_s, call) for at_s, call in zip(sent_s, calls, strict=True)]
    recording = _Recording(step_time)
    timeline = TimedEngine(rules, recording, call_fixed_s=call_fixed_s).run(OpenLoop(sendings))
    requests = dict(timeline.served)
    first = requests[calls[0]].first_step
    assert first is not None
    return Simulated(
        recording.steps[first:],
        np.array(timeline.ended_s[first:]) - BEGIN_S,
        [_token_steps(requests[call]) - first for call in calls],
    )


class _Recording:
    """A StepTime that keeps the steps that it is asked about: each once, in their order."""

    def __init__(self, step_time: StepTime) -> None:
        self.steps: list[Step] = []
        self._step_time = step_time

    def seconds(self, step: Step) -> float:
        self.steps.append(Step(tuple(step.new_tokens), tuple(step.context_tokens)))
        return self._step_time.seconds(step)


def _timed(number: int, shape: Shape, block_size: int, *, is_prefix: bool = False) -> TimedCall:
    num_cached = shape.prompt_tokens if is_prefix else shape.cached_tokens
    keys: list[Hashable] = [("prefix", number, block) for block in range(num_cached // block_size)]
    num_blocks = shape.num_tokens // block_size
    keys += [("new", number, block) for block in range(len(keys), num_blocks)]
    return TimedCall(
        f"{'prefix' if is_prefix else 'call'} {number}",
        0,
        keys,
        shape.prompt_tokens,
        shape.num_outputs,
        shape.num_outputs,
    )


def _token_steps(request: Request) -> NDArray[np.int64]:
    return np.concatenate([np.arange(first, last + 1) for first, last in request.token_runs])
