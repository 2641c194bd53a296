"""What of a scene is fitted: times that are sums of whole steps, whenever its calls came."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from duramen.experiments.calibrate.player import PlayedCall
from duramen.experiments.calibrate.scenes import NUM_BEFORE_LATE, Scene
from duramen.experiments.calibrate.simulated import Simulated, simulate
from duramen.serving.kv.batching.rules import Rules
from duramen.serving.kv.step_time import LinearStepTime, Step

STEP_COEFFICIENTS = tuple(each.name for each in fields(LinearStepTime))
COEFFICIENTS = (*STEP_COEFFICIENTS, "call_fixed_s")
Features = NDArray[np.float64]  # how often each of COEFFICIENTS counts

T = TypeVar("T", int, float)

NUM_UNTIL_LATE = 3  # steps from the token that sets a late call off to the first of its own


class Observed(Protocol):
    """Of one scene. `features` has a row for each time that `measure` gives."""

    @property
    def features(self) -> Sequence[Features]: ...

    def measure(self, calls: Sequence[PlayedCall]) -> list[float] | None:
        """Seconds, from the scene as it was played; None where it did not go as planned."""


@dataclass(frozen=True)
class FirstTokens:
    """From the beginning of the scene to the first and to the last of the first tokens."""

    features: Sequence[Features]

    @classmethod
    def of(cls, simulated: Simulated) -> "FirstTokens":
        ends = _first_and_last([steps[0] + 1 for steps in simulated.token_steps])
        return cls([_sum(simulated.steps[:end], num_calls=1) for end in ends])

    def measure(self, calls: Sequence[PlayedCall]) -> list[float]:
        return _first_and_last([call.token_s[0] for call in calls])


@dataclass(frozen=True)
class Decoding:
    """The mean gap while all calls decode."""

    features: Sequence[Features]

    @classmethod
    def of(cls, simulated: Simulated) -> "Decoding":
        first = max(steps[0] for steps in simulated.token_steps)
        last = min(steps[-1] for steps in simulated.token_steps)
        return cls([_sum(simulated.steps[first + 1 : last + 1]) / (last - first)])

    def measure(self, calls: Sequence[PlayedCall]) -> list[float] | None:
        begin_s = max(call.token_s[0] for call in calls)
        end_s = min(call.token_s[-1] for call in calls)
        inside = [[at_s for at_s in call.token_s if begin_s <= at_s <= end_s] for call in calls]
        if min(map(len, inside)) < 2:
            return None
        means_s = [(times[-1] - times[0]) / (len(times) - 1) for times in inside]
        return [float(np.median(means_s))]


@dataclass(frozen=True)
class Beside:
    """The time of the next `num_steps` tokens of the call that was the last to begin, from the one
    that set the late call off: all of the late call's steps are among them."""

    features: Sequence[Features]
    num_steps: int

    @classmethod
    def of(cls, scene: Scene, rules: Rules) -> "Beside":
        alone = _counted(Scene(scene.calls), rules)
        trigger = max(steps[0] for steps in alone.token_steps) + NUM_BEFORE_LATE - 1
        both = _counted(scene, rules, late_s=alone.ended_s[trigger] + 0.5)
        end = both.token_steps[-1][0] + NUM_UNTIL_LATE
        return cls([_sum(both.steps[trigger + 1 : end + 1])], int(end - trigger))

    def measure(self, calls: Sequence[PlayedCall]) -> list[float] | None:
        slowest = max(calls[:-1], key=lambda call: call.token_s[0]).token_s
        trigger = NUM_BEFORE_LATE - 1
        begin_s, end_s = slowest[trigger], slowest[trigger + self.num_steps]
        return [end_s - begin_s] if begin_s < calls[-1].token_s[0] < end_s else None


def observed(scene: Scene, rules: Rules) -> Observed:
    if scene.late is not None:
        return Beside.of(scene, rules)
    simulated = _counted(scene, rules)
    is_prompts = scene.calls[0].num_outputs == 1
    return FirstTokens.of(simulated) if is_prompts else Decoding.of(simulated)


class _OneSecond:
    def seconds(self, step: Step) -> float:
        return 1.0


def _counted(scene: Scene, rules: Rules, late_s: float | None = None) -> Simulated:
    """With steps of a second each. The first call is alone in its step: the others come while it
    runs."""
    sent_s = [0.0] + [0.5] * (len(scene.calls) - 1) + ([] if late_s is None else [late_s])
    return simulate(scene, sent_s, rules, _OneSecond())


def _first_and_last(values: Sequence[T]) -> list[T]:
    """One where there is one only."""
    return [min(values), max(values)][: len(values)]


def _sum(steps: Iterable[Step], num_calls: int = 0) -> Features:
    rows = [
        (
            1,
            step.num_new_tokens,
            step.num_pairs,
            step.num_decode_context_tokens,
            step.num_sequences,
            0,
        )
        for step in steps
    ]
    total: Features = np.sum(rows, axis=0, dtype=np.float64)
    total[-1] += num_calls
    return total
