"""How many tokens a step may compute, so that requests which decode get their tokens in time.

Everybody in a batch waits for the end of the step. A long prefill beside decodes is therefore cut
to the tokens whose predicted time the target leaves; where nothing decodes it may take all.
The prediction is corrected by what steps took: the target is divided by how far above it they come,
their usual deviations included (as TCP sets its timeout from round trips: RFC 6298).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf, sqrt

from duramen.layout.errors import LayoutError
from duramen.serving.kv.step_time import LinearStepTime, Step

FLOOR_TOKENS = 32  # of prefill in each step, whatever the target
AGEING_S = 60.0  # after so long the floor is at its most
MOST_FLOORS = 4  # how often the floor, then
GRANULE_TOKENS = 16  # rows of a matrix tile: others are computed as if they were there
GAIN = 1 / 32  # of one step in the averages
NUM_DEVIATIONS = 2.5  # of normal errors 97.7% stay under
LEAST_RATIO, MOST_RATIO = 0.25, 4.0  # of measured to predicted, that are believed


@dataclass(frozen=True, slots=True)
class Prefill:
    """`num_tokens` are left to compute, behind `context_tokens` in the cache (at least what there
    will be: more of them cost more)."""

    num_tokens: int
    context_tokens: int
    arrived_s: float


class StepRatio:
    """Measured to predicted seconds of steps: the average and the average deviation from it."""

    def __init__(self) -> None:
        self.mean, self.deviation = 1.0, 0.1

    @property
    def usual_most(self) -> float:
        """What all but a few steps stay under."""
        return self.mean + NUM_DEVIATIONS * self.deviation

    def observe(self, ratio: float) -> None:
        error = min(max(ratio, LEAST_RATIO), MOST_RATIO) - self.mean
        self.mean += GAIN * error
        self.deviation += GAIN * (abs(error) - self.deviation)


@dataclass(frozen=True, slots=True)
class Budget:
    """`num_tokens` of one step, decodes included. `is_mixed`: it has decodes and prefills.
    `is_floor`: the target leaves less, so the step is expected to miss it."""

    num_tokens: int
    is_mixed: bool = False
    is_floor: bool = False


class PrefillBudget:
    """`target_s`: most seconds of a step that decodes anything. `max_tokens`: of any step.
    `tokens_per_decode`: above 1 with draft tokens. `floor_tokens`: what the prefills get at least,
    growing as the oldest of them waits, to MOST_FLOORS times as many after AGEING_S.
    `granule_tokens`: a step that cuts a prefill has a multiple of it, if that leaves the floor.

    Raises LayoutError unless all are above 0.
    """

    def __init__(
        self,
        step_time: LinearStepTime,
        target_s: float,
        max_tokens: int,
        *,
        tokens_per_decode: int = 1,
        floor_tokens: int = FLOOR_TOKENS,
        granule_tokens: int = GRANULE_TOKENS,
    ) -> None:
        if not 0 < target_s < inf:
            raise LayoutError(f"the target of a step must be seconds above 0, not {target_s}")
        if min(max_tokens, tokens_per_decode, floor_tokens, granule_tokens) < 1:
            raise LayoutError(
                f"{max_tokens} tokens a step, {tokens_per_decode} a decode, a floor of "
                f"{floor_tokens} and a granule of {granule_tokens} must all be at least 1"
            )
        self.ratio = StepRatio()
        self._step_time = step_time
        self.target_s = target_s
        self._max_tokens = max_tokens
        self._tokens_per_decode = tokens_per_decode
        self._floor_tokens = floor_tokens
        self._granule_tokens = granule_tokens

    def choose(
        self, decode_contexts: Sequence[int], prefills: Iterable[Prefill], now_s: float
    ) -> Budget:
        """For the next step. `decode_contexts`: cached tokens of each request that decodes;
        `prefills` in the order in which they are served, read as far as the time goes."""
        if not decode_contexts:
            return Budget(self._max_tokens)
        num_decoded = self._tokens_per_decode * len(decode_contexts)
        decodes = Step([self._tokens_per_decode] * len(decode_contexts), decode_contexts)
        left_s = self.target_s / self.ratio.usual_most - self._step_time.seconds(decodes)
        num_fitting = num_wanted = floor = 0
        for prefill in prefills:
            chunk = min(self._most_within(left_s, prefill.context_tokens), prefill.num_tokens)
            num_fitting += chunk
            num_wanted += prefill.num_tokens
            floor = max(floor, self._floor(now_s - prefill.arrived_s))
            if chunk < prefill.num_tokens and num_wanted >= floor:
                break
            left_s -= self._seconds(chunk, prefill.context_tokens)
        if not num_wanted:
            return Budget(self._max_tokens)
        floor = min(floor, num_wanted)
        num_tokens = num_decoded + max(num_fitting, floor)
        if num_fitting < num_wanted:
            num_tokens = max(num_tokens - num_tokens % self._granule_tokens, num_decoded + floor)
        num_tokens = min(num_tokens, self._max_tokens)
        return Budget(num_tokens, is_mixed=True, is_floor=num_fitting < floor)

    def observe(self, predicted_s: float, measured_s: float) -> None:
        """Of a mixed step."""
        self.ratio.observe(measured_s / predicted_s)

    def _floor(self, waited_s: float) -> int:
        age = min(max(waited_s / AGEING_S, 0.0), 1.0)
        return int(self._floor_tokens * (1 + age * (MOST_FLOORS - 1)))

    def _seconds(self, chunk: int, context_tokens: int) -> float:
        """What a chunk adds to a step."""
        step = Step([chunk], [context_tokens])
        return self._step_time.seconds(step) - self._step_time.fixed_s

    def _most_within(self, left_s: float, context_tokens: int) -> int:
        """The largest chunk that adds at most `left_s`: its seconds are quadratic in its tokens."""
        times = self._step_time
        rest_s = left_s - times.per_sequence_s
        if rest_s <= 0:
            return 0
        half_square = times.per_pair_s / 2
        linear = times.per_token_s + times.per_pair_s * (context_tokens + 0.5)
        slope = linear + sqrt(linear * linear + 4 * half_square * rest_s)
        return self._max_tokens if slope == 0 else int(min(2 * rest_s / slope, self._max_tokens))
