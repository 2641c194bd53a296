"""Scenes played in the simulator, on a device whose step times are known."""

from collections.abc import Callable

from duramen.experiments.calibrate.player import PlayedCall
from duramen.experiments.calibrate.scenes import NUM_BEFORE_LATE, Scene
from duramen.experiments.calibrate.simulated import simulate
from duramen.serving.kv.batching.rules import Rules
from duramen.serving.kv.step_time import LinearStepTime, Step

SYNC = Rules(32, None, max_num_batched_tokens=1024, max_num_seqs=64, async_scheduling=False)
ASYNC = Rules(16, None, max_num_batched_tokens=8192, max_num_seqs=64)

STEP = LinearStepTime(0.02, 4e-4, 1e-7, 4e-7, 2e-3)
CALL_FIXED_S = 0.005
PAUSE_S = 1e-4  # between two calls that are sent at once
LATE_S = 1e-3  # from the token that sets the late call off until it is sent


class Slowed:
    """STEP, times what `factor` draws for each step."""

    def __init__(self, factor: Callable[[], float]) -> None:
        self._factor = factor

    def seconds(self, step: Step) -> float:
        return STEP.seconds(step) * self._factor()


def play(
    scene: Scene, rules: Rules, factor: Callable[[], float] = lambda: 1.0
) -> tuple[PlayedCall, ...]:
    step_time = Slowed(factor)
    sent_s = [PAUSE_S * number for number in range(len(scene.calls))]
    if scene.late is not None:
        alone = simulate(Scene(scene.calls), sent_s, rules, step_time, CALL_FIXED_S)
        numbers = range(len(scene.calls))
        decoding_s = max(alone.token_s(number)[NUM_BEFORE_LATE - 1] for number in numbers)
        sent_s.append(float(decoding_s) + LATE_S)
    simulated = simulate(scene, sent_s, rules, step_time, CALL_FIXED_S)
    return tuple(
        PlayedCall(shape, sent_s[number], tuple(map(float, simulated.token_s(number))))
        for number, shape in enumerate(scene.shapes)
    )
