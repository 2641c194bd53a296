"""A live replay and the simulator's, call by call: hits, and times of the first and later tokens.

Calls go in a given order, so many at once. The simulator is told what was sent and when each reply
ended, no more: which blocks are cached by then is its own account.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from duramen.experiments.timed.arrivals import Arrivals, ClosedLoop, Sending
from duramen.experiments.timed.call import TimedCall
from duramen.experiments.timed.engine import TimedEngine
from duramen.experiments.timed.figures import CallFigures, figures
from duramen.experiments.timed.rules import rules_of
from duramen.layout.blocks import block_hashes
from duramen.layout.errors import EngineError
from duramen.serving.kv.batching.rules import Rules
from duramen.serving.timing_profile import Errors, TimingProfile
from duramen.serving.vllm.engine import VllmEngine
from duramen.serving.vllm.protocol import Completion, Engine, Sampling

APART_S = 0.05  # at least, between two calls: which of them comes first is then no matter of luck


@dataclass(frozen=True)
class SentCall:
    session: str
    index: int
    token_ids: Sequence[int]
    num_outputs: int


@dataclass(frozen=True)
class ComparedCall:
    """`predicted`: by the simulator; `unlimited`: by one whose cache is infinite. `itl_s`: the mean
    gap between tokens, None for a single one."""

    session: str
    call: int
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int | None
    predicted_cached_tokens: int
    unlimited_cached_tokens: int
    ttft_s: float
    predicted_ttft_s: float
    itl_s: float | None
    predicted_itl_s: float | None


@dataclass(frozen=True)
class Run:
    """In the order of the calls."""

    at_once: int
    calls: list[ComparedCall]

    @property
    def num_equal(self) -> int:
        return sum(call.cached_tokens == call.predicted_cached_tokens for call in self.calls)

    @property
    def num_evicted(self) -> int:
        """Calls that would have had more in the cache had nothing been evicted."""
        return sum((call.cached_tokens or 0) < call.unlimited_cached_tokens for call in self.calls)

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"num_equal": self.num_equal, "num_evicted": self.num_evicted}


async def compare(
    engine: VllmEngine, calls: Sequence[SentCall], profile: TimingProfile, at_once: int
) -> Run:
    answers, info = await play(engine, calls, at_once), engine.info
    profile = replace(profile, flags=await engine.flags())
    rules = rules_of(profile, info.unit_tokens, info.num_kv_blocks)
    predicted = simulate(calls, answers, rules, profile, at_once)
    infinite = replace(rules, num_blocks=None)
    unlimited = simulate(calls, answers, infinite, profile, at_once)
    return Run(at_once, [*map(_compared, answers, predicted, unlimited)])


def _compared(answer: Completion, predicted: CallFigures, unlimited: CallFigures) -> ComparedCall:
    num_gaps = predicted.output_tokens - 1
    return ComparedCall(
        predicted.session,
        predicted.call,
        predicted.prompt_tokens,
        predicted.output_tokens,
        answer.cached_tokens,
        predicted.cached_tokens,
        unlimited.cached_tokens,
        answer.ttft_s,
        predicted.ttft_s,
        sum(answer.itl_s) / num_gaps if num_gaps else None,
        (predicted.e2e_s - predicted.ttft_s) / num_gaps if num_gaps else None,
    )


async def play(engine: Engine, calls: Sequence[SentCall], at_once: int) -> list[Completion]:
    """In an empty cache. A call is sent when one has ended, APART_S after the one before at the
    earliest. Raises EngineError where the cache is not emptied."""
    if not await engine.reset_prefix_cache():
        raise EngineError("the engine did not empty its cache")
    waiting, answers, turn = iter(enumerate(calls)), dict[int, Completion](), asyncio.Lock()

    async def worker() -> None:
        for number, call in waiting:
            async with turn:
                sampling = Sampling(call.num_outputs, min_tokens=call.num_outputs)
                sending = workers.create_task(engine.complete(call.token_ids, sampling))
                await asyncio.sleep(APART_S)
            answers[number] = await sending

    async with asyncio.TaskGroup() as workers:
        for _ in range(at_once):
            workers.create_task(worker())
    return [answers[number] for number in range(len(calls))]


@dataclass
class Spaced:
    """Arrivals that wait for each other, as `play` sends them. Serves one run."""

    inner: Arrivals
    _next_s: float = 0.0

    def first(self) -> Sequence[Sending]:
        return self._spaced(self.inner.first())

    def answered(self, call: TimedCall, now_s: float) -> Sequence[Sending]:
        return self._spaced(self.inner.answered(call, now_s))

    def _spaced(self, sendings: Sequence[Sending]) -> list[Sending]:
        spaced = []
        for due_s, call in sendings:
            sent_s = max(due_s, self._next_s)
            self._next_s = sent_s + APART_S
            spaced.append((sent_s, call))
        return spaced


def simulate(
    calls: Sequence[SentCall],
    answers: Sequence[Completion],
    rules: Rules,
    profile: TimingProfile,
    at_once: int,
) -> list[CallFigures]:
    """The same calls in the same order, with what the engine sampled."""
    sent = [
        _timed(call, answer, rules.block_size) for call, answer in zip(calls, answers, strict=True)
    ]
    engine = TimedEngine(rules, profile.step, call_fixed_s=profile.call_fixed_s)
    arrivals = Spaced(ClosedLoop([[call] for call in sent], at_once))
    return figures(engine.run(arrivals)).calls


def _timed(call: SentCall, answer: Completion, block_size: int) -> TimedCall:
    assert len(answer.token_ids) == call.num_outputs
    computed = [*call.token_ids, *answer.token_ids[:-1]]
    return TimedCall(
        call.session,
        call.index,
        [*block_hashes(computed, block_size)],
        len(call.token_ids),
        call.num_outputs,
        call.num_outputs,
    )


def errors(repeats: Sequence[Run], name: str) -> Errors:
    """`name`: of a time. Noise: each repeat against the one before."""
    found, predicted = _times(repeats, name), _times(repeats, f"predicted_{name}")
    noise = np.abs(np.roll(found, 1, axis=0) / found - 1)
    return Errors(*_ranks(np.abs(predicted / found - 1)), *_ranks(noise))


def _times(repeats: Sequence[Run], name: str) -> NDArray[np.float64]:
    """A row for each repeat, NaN where there is none."""
    return np.array([[getattr(call, name) for call in each.calls] for each in repeats], dtype=float)


def _ranks(values: NDArray[np.float64]) -> tuple[float, float]:
    """Median and 90th percentile, by the nearest rank; NaN does not count."""
    median, p90 = np.nanquantile(values, [0.5, 0.9], method="inverted_cdf")
    return float(median), float(p90)
