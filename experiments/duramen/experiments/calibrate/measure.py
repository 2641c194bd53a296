"""Measures within a given time: how large the scenes may be, then all of them again and again.

A few calls say how fast the engine roughly is. Each round plays every scene once, in another order,
so that what drifts reaches all of them alike.
"""

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from duramen.experiments.calibrate.player import PlayedCall, Player
from duramen.experiments.calibrate.scenes import Design, Scene, Shape, design
from duramen.experiments.calibrate.simulated import simulate
from duramen.layout.errors import DuramenError, EngineError
from duramen.serving.kv.batching.rules import Rules
from duramen.serving.kv.step_time import LinearStepTime
from duramen.serving.vllm.protocol import Engine

SEED = 0
SMALLEST_TOP, LARGEST_TOP = 512, 32_768  # tokens of the longest prompts, doubled in between
WANTED_ROUNDS, LEAST_REPEATS = 5, 3
LEAST_UNITS = 4  # match units in the longest prompts: quarters of those are cached
NUM_TRIES = 2  # of a scene in a round: if prefixes were evicted, the first brings them back
SAFETY = 1.5  # over the rough estimate, which knows of no attention
PILOT_SHORT, PILOT_LONG = Scene((Shape(0, 64, 9),)), Scene((Shape(0, 512),))

Clock = Callable[[], float]  # seconds
Report = Callable[[str, float], None]  # what is being done, and how much of the time is over


@dataclass(frozen=True)
class Measurement:
    """`played`: the repeats of each scene that went as planned. `num_thrown_out`: others."""

    design: Design
    played: Mapping[Scene, Sequence[tuple[PlayedCall, ...]]]
    num_rounds: int
    num_thrown_out: int
    seconds: float


async def measure(
    engine: Engine,
    rules: Rules,
    minutes: float,
    report: Report,
    clock: Clock = time.monotonic,
) -> Measurement:
    """`rules` of the engine, which must have nothing else to do.

    Raises EngineError where it does not say what was cached, DuramenError where the time does not
    suffice.
    """
    if not engine.info.reports_cached:
        raise EngineError(
            "the engine does not say what was cached: start it with --enable-prompt-tokens-details"
        )
    designs = _fitting(engine, rules)
    time_left = _TimeLeft(minutes * 60, clock)
    report("a few calls to see how fast it is", 0.0)
    rough = await _rough(Player(engine, [0], SEED))
    in_time = [each for each in designs if _seconds(each, rules, rough) <= time_left.seconds]
    chosen = in_time[-1] if in_time else designs[0]
    return await _Rounds(engine, chosen, time_left, report).run()


async def _rough(player: Player) -> LinearStepTime:
    await player.play(PILOT_SHORT)  # the first calls are slower
    await player.play(PILOT_LONG)
    short, long = await player.play(PILOT_SHORT), await player.play(PILOT_LONG)
    if short is None or long is None:
        raise EngineError("the engine cached what nobody sent before, or ended an answer early")
    per_token_s = long[0].ttft_s / long[0].shape.new_tokens
    return LinearStepTime(max(short[0].itl_s or 0.0, 1e-4), per_token_s, 0.0, 0.0, 0.0)


def _fitting(engine: Engine, rules: Rules) -> list[Design]:
    """All that context and cache allow, from short prompts to long ones. Raises DuramenError where
    there is none."""
    info = engine.info
    tops = [max(SMALLEST_TOP, LEAST_UNITS * info.unit_tokens)]
    while tops[-1] < LARGEST_TOP:
        tops.append(2 * tops[-1])
    designs = [design(top, rules, info.unit_tokens) for top in tops]
    pool_tokens = math.inf
    if info.num_kv_blocks is not None:
        pool_tokens = (info.num_kv_blocks - 1) * info.unit_tokens
    fitting = [
        each
        for each in designs
        if each.max_tokens <= info.max_model_len and each.num_tokens <= pool_tokens
    ]
    if not fitting:
        raise DuramenError(
            f"the engine is too small to measure: it needs a context of {designs[0].max_tokens} "
            f"tokens and a cache of {designs[0].num_tokens}"
        )
    return fitting


def _seconds(each: Design, rules: Rules, rough: LinearStepTime) -> float:
    """Of the prefixes and the wanted rounds."""
    ends_s = [
        simulate(scene, [0.0] * scene.at_once, rules, rough).ended_s[-1] for scene in each.scenes
    ]
    primes_s = rough.per_token_s * sum(each.prefix_tokens)
    return float(SAFETY * (primes_s + WANTED_ROUNDS * sum(ends_s)))


class _TimeLeft:
    def __init__(self, most_s: float, clock: Clock) -> None:
        self._most_s, self._clock = most_s, clock
        self._begun_s = clock()

    @property
    def elapsed_s(self) -> float:
        return self._clock() - self._begun_s

    @property
    def seconds(self) -> float:
        return self._most_s - self.elapsed_s

    @property
    def share_over(self) -> float:
        return min(self.elapsed_s / self._most_s, 1.0)


class _Rounds:
    def __init__(
        self, engine: Engine, chosen: Design, time_left: _TimeLeft, report: Report
    ) -> None:
        self._design = chosen
        self._time_left = time_left
        self._report = report
        self._player = Player(engine, chosen.prefix_tokens, SEED)
        self._played: dict[Scene, list[tuple[PlayedCall, ...]]] = {
            scene: [] for scene in chosen.scenes
        }
        self._num_rounds = self._num_thrown_out = 0

    async def run(self) -> Measurement:
        self._say("bringing prefixes into the cache")
        await self._player.prime()
        order, draw = list(self._design.scenes), random.Random(SEED)
        while self._time_left.seconds > 0:
            draw.shuffle(order)
            await self._round(order)
        self._check()
        return Measurement(
            self._design,
            self._played,
            self._num_rounds,
            self._num_thrown_out,
            self._time_left.elapsed_s,
        )

    async def _round(self, order: Sequence[Scene]) -> None:
        for number, scene in enumerate(order):
            if self._time_left.seconds <= 0:
                return
            self._say(f"round {self._num_rounds + 1}, scene {number + 1} of {len(order)}")
            for _ in range(NUM_TRIES):
                calls = await self._player.play(scene)
                if calls is not None:
                    self._played[scene].append(calls)
                    break
                self._num_thrown_out += 1
        self._num_rounds += 1

    def _check(self) -> None:
        least = min(map(len, self._played.values()))
        if least < LEAST_REPEATS:
            raise DuramenError(
                f"only {least} repeats of a scene in {self._time_left.elapsed_s / 60:.1f} minutes, "
                f"and {self._num_thrown_out} were thrown out since something else was cached than "
                "was planned: give the engine nothing else to do, or more time with --minutes"
            )

    def _say(self, line: str) -> None:
        self._report(line, self._time_left.share_over)
