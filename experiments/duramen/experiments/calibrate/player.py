"""Plays scenes on an engine: each call with exactly what its shape says cached, and when each of
its tokens came."""

import asyncio
import random
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from duramen.experiments.calibrate.scenes import NUM_BEFORE_LATE, Scene, Shape
from duramen.serving.vllm.protocol import Engine, Sampling

FIRST_ID, NUM_IDS = 1_000, 4_000  # ordinary tokens: shared prefixes have even ids, the rest odd


@dataclass(frozen=True)
class PlayedCall:
    """Seconds from the beginning of the scene. `token_s` has one for each token."""

    shape: Shape
    sent_s: float
    token_s: tuple[float, ...]

    @property
    def ttft_s(self) -> float:
        return self.token_s[0] - self.sent_s

    @property
    def itl_s(self) -> float | None:
        """The mean of its gaps; None for a single token."""
        num_gaps = len(self.token_s) - 1
        return (self.token_s[-1] - self.token_s[0]) / num_gaps if num_gaps else None


class Player:
    """Owns shared prefixes in the engine's cache, under a salt of its own. One scene at a time."""

    def __init__(self, engine: Engine, prefix_tokens: Sequence[int], seed: int) -> None:
        self._engine = engine
        self._draw = random.Random(seed)
        self._salt = f"duramen-{uuid.uuid4().hex}"
        self._prefixes = [self._ids(num_tokens, 0) for num_tokens in prefix_tokens]

    async def prime(self) -> None:
        """Bring the prefixes into the cache."""
        for prefix in filter(None, self._prefixes):
            await self._engine.complete(prefix, Sampling(1), salt=self._salt)

    async def play(self, scene: Scene) -> tuple[PlayedCall, ...] | None:
        """The calls in the order of `scene.shapes`; None where one of them had something else
        cached than its shape says, or got fewer tokens. Raises EngineError."""
        clock = _Clock(len(scene.calls))
        sending = [self._send(number, shape, clock) for number, shape in enumerate(scene.calls)]
        if scene.late is not None:
            sending.append(self._send_late(len(scene.calls), scene.late, clock))
        tasks = [asyncio.create_task(each) for each in sending]
        try:
            played = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        calls = tuple(call for call in played if call is not None)
        return calls if len(calls) == len(played) else None

    async def _send_late(self, number: int, shape: Shape, clock: "_Clock") -> PlayedCall | None:
        await clock.all_decode.wait()
        return await self._send(number, shape, clock)

    async def _send(self, number: int, shape: Shape, clock: "_Clock") -> PlayedCall | None:
        prompt = self._prefixes[number][: shape.cached_tokens] + self._ids(shape.new_tokens, 1)
        num_outputs = shape.num_outputs
        token_s: list[float] = []

        def came(token_ids: tuple[int, ...], text: str) -> None:
            num_before = len(token_s)
            token_s.extend([clock.now_s] * len(token_ids))
            if num_before < NUM_BEFORE_LATE <= len(token_s):
                clock.one_decodes()

        sent_s = clock.now_s
        answer = await self._engine.complete(
            prompt,
            Sampling(num_outputs, min_tokens=num_outputs),
            salt=self._salt,
            on_tokens=came,
        )
        if len(token_s) < NUM_BEFORE_LATE:
            clock.one_decodes()
        is_as_wanted = (answer.cached_tokens, len(token_s)) == (shape.cached_tokens, num_outputs)
        return PlayedCall(shape, sent_s, tuple(token_s)) if is_as_wanted else None

    def _ids(self, num_tokens: int, odd: int) -> list[int]:
        return [FIRST_ID + 2 * self._draw.randrange(NUM_IDS) + odd for _ in range(num_tokens)]


class _Clock:
    """Of one scene, and how many of its calls have yet to get NUM_BEFORE_LATE tokens."""

    def __init__(self, num_calls: int) -> None:
        self.all_decode = asyncio.Event()
        self._num_left = num_calls
        self._begun_s = time.perf_counter()

    @property
    def now_s(self) -> float:
        return time.perf_counter() - self._begun_s

    def one_decodes(self) -> None:
        self._num_left -= 1
        if not self._num_left:
            self.all_decode.set()
