"""How far a profile is off on calls that it was not fitted to, and how far these are off among
themselves.

The error of a call is against the simulator, which is told when the calls were sent; its noise is
against the median of the same call's other repeats: what the best of predictions would be off.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from duramen.experiments.calibrate.player import PlayedCall
from duramen.experiments.calibrate.scenes import Scene
from duramen.experiments.calibrate.simulated import simulate
from duramen.serving.kv.batching.rules import Rules
from duramen.serving.timing_profile import Errors, TimingProfile, Validation

Repeats = Sequence[tuple[PlayedCall, ...]]
Time = Callable[[PlayedCall], float | None]


def validate(played: Mapping[Scene, Repeats], profile: TimingProfile, rules: Rules) -> Validation:
    """Of at least two repeats of each scene."""
    pairs = [
        (call, predicted)
        for scene, repeats in played.items()
        for calls in repeats
        for call, predicted in zip(calls, _predict(scene, calls, profile, rules), strict=True)
    ]
    return Validation(
        at_once=tuple(sorted({scene.at_once for scene in played})),
        num_calls=len(pairs),
        ttft=_errors(pairs, played, lambda call: call.ttft_s),
        itl=_errors(pairs, played, lambda call: call.itl_s),
    )


def _predict(
    scene: Scene, calls: Sequence[PlayedCall], profile: TimingProfile, rules: Rules
) -> list[PlayedCall]:
    sent_s = [call.sent_s for call in calls]
    simulated = simulate(scene, sent_s, rules, profile.step, profile.call_fixed_s)
    return [
        PlayedCall(call.shape, call.sent_s, tuple(simulated.token_s(number)))
        for number, call in enumerate(calls)
    ]


def _errors(
    pairs: Sequence[tuple[PlayedCall, PlayedCall]], played: Mapping[Scene, Repeats], time: Time
) -> Errors:
    errors = [
        abs(expected / found - 1)
        for call, predicted in pairs
        if (found := time(call)) is not None and (expected := time(predicted)) is not None
    ]
    noises: list[float] = []
    for repeats in played.values():
        for same in zip(*repeats, strict=True):
            seconds = [found for call in same if (found := time(call)) is not None]
            noises += (
                abs(float(np.median(seconds[:place] + seconds[place + 1 :])) / found - 1)
                for place, found in enumerate(seconds)
            )
    return Errors(*_ranks(errors), *_ranks(noises))


def _ranks(values: Sequence[float]) -> tuple[float, float]:
    """Median and 90th percentile, by the nearest rank."""
    median, p90 = np.quantile(values, [0.5, 0.9], method="inverted_cdf")
    return float(median), float(p90)
