"""Keeps one engine up: starts it, watches it, and starts the next one when it died.

    starting -> ready -> restarting -> ready -> ...      with pauses that double between failures
                                    -> failed            a child that fails again and again
    any of them -> stopped                               by close

An engine that died is closed before the next one is opened, its mirror with it: what the next one
predicts begins with an empty cache.
"""

import asyncio
import subprocess
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, Literal, NoReturn, Protocol, TypeVar

from duramen.layout.errors import DuramenError, EngineError
from duramen.serving.vllm.launch import Progress

FAILURES = (DuramenError, OSError, subprocess.SubprocessError)  # a full disk is among them

State = Literal["starting", "ready", "restarting", "failed", "stopped"]


class Supervised(Protocol):
    """What is asked of an engine here; VllmEngine says what each means."""

    @property
    def is_alive(self) -> bool | None: ...

    async def is_healthy(self, timeout_s: float) -> bool: ...

    def explain(self) -> str: ...

    async def close(self) -> None: ...


E = TypeVar("E", bound=Supervised)


@dataclass(frozen=True)
class Patience:
    """A failure is a start that did not come up, or a death. After `max_failures` of them within
    `window_s` it is over; None: never. `max_silent`: health checks without an answer, in a row,
    that count as a death."""

    first_pause_s: float = 1.0
    longest_pause_s: float = 60.0
    max_failures: int | None = 5
    window_s: float = 600.0
    check_every_s: float = 1.0
    check_timeout_s: float = 20.0
    max_silent: int = 3

    def pause_s(self, num_failures: int) -> float:
        """Before the start that follows so many failures in the window."""
        doublings = min(num_failures - 1, 32)
        return min(self.longest_pause_s, self.first_pause_s * 2.0**doublings)


ATTACHED = Patience(max_failures=None)  # a server of others comes back when they bring it back


class Supervisor(Generic[E]):
    """`open_engine` starts or attaches; it raises EngineError if that fails, and cancelling it must
    leave nothing behind. `on_ready` gets each engine with its generation before calls may use it.

    `engine` is None unless `state` is "ready". `reason` says, in one line, what goes on or what
    went wrong; it may quote vLLM's log. `generation` counts the engines that came up: what is known
    of a cache holds within one.
    """

    def __init__(
        self,
        open_engine: Callable[[Progress], Awaitable[E]],
        on_ready: Callable[[E, int], Awaitable[None]] | None = None,
        *,
        patience: Patience = Patience(),
        progress: Progress = lambda line: None,
    ) -> None:
        self.engine: E | None = None
        self.state: State = "starting"
        self.reason = "not started yet"
        self.generation = 0
        self._open_engine = open_engine
        self._on_ready = on_ready
        self._patience = patience
        self._progress = progress
        self._failures: deque[float] = deque()
        self._doubt = asyncio.Event()
        self._changed = asyncio.Event()
        self._work: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Return when it is over: closed, or failed. Cancelling it closes it too."""
        if self.state == "stopped":
            return
        assert self._work is None, "it runs already"
        self._work = asyncio.create_task(self._keep_up())
        try:
            await asyncio.wait({self._work})
        except asyncio.CancelledError:
            await self.close()
            raise
        if not self._work.cancelled() and (bug := self._work.exception()) is not None:
            self._set("failed", f"{type(bug).__name__}: a bug")
            raise bug

    async def wait_until_ready(self) -> E:
        """The engine, as soon as it is ready. Raises EngineError if it never will be."""
        while self.engine is None:
            if self.state in ("failed", "stopped"):
                raise EngineError(f"the engine has {self.state}: {self.reason}")
            self._changed.clear()
            await self._changed.wait()
        return self.engine

    def report_failure(self) -> None:
        """A call died: look at the engine now. Costs one health check; harmless where it is well,
        or another one by now."""
        self._doubt.set()

    async def close(self) -> None:
        """Stop everything; returns when it is gone. A second call does nothing more."""
        if self._work is not None and not self._work.done():
            if not self._work.cancelling():
                self._work.cancel()
            await asyncio.wait({self._work})
        if self.state != "failed":
            self._set("stopped", "closed")

    async def _keep_up(self) -> None:
        while True:
            try:
                await self._one_life()
            except FAILURES as error:
                reason = str(error)
            num_failures = self._count_failure()
            limit = self._patience.max_failures
            if limit is not None and num_failures >= limit:
                within = f"{self._patience.window_s / 60:.0f} minutes"
                self._set("failed", f"{num_failures} failures within {within}. {reason}")
                return
            self._set("restarting" if self.generation else "starting", reason)
            await asyncio.sleep(self._patience.pause_s(num_failures))

    async def _one_life(self) -> NoReturn:
        """From the start of an engine to its death. Always raises: one of FAILURES says why."""
        engine = await self._open_engine(self._say)
        try:
            self.generation += 1
            if self._on_ready is not None:
                await self._on_ready(engine, self.generation)
            self.engine = engine
            self._set("ready", "")
            await self._watch(engine)
            reason = f"the engine died. {engine.explain()}"
            self.engine = None
            self._set("restarting", reason)
            raise EngineError(reason)
        finally:
            self.engine = None
            await engine.close()

    async def _watch(self, engine: E) -> None:
        """Return when the engine is dead."""
        num_silent = 0
        while num_silent < self._patience.max_silent:
            await self._pause(hurried=num_silent == 0)
            if engine.is_alive is False:
                return
            healthy = await engine.is_healthy(self._patience.check_timeout_s)
            num_silent = 0 if healthy else num_silent + 1

    async def _pause(self, *, hurried: bool) -> None:
        """Until the next check. A report hurries the first one only: many calls that die at once
        must not use up the patience with a server in a moment."""
        if hurried:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._doubt.wait(), self._patience.check_every_s)
        else:
            await asyncio.sleep(self._patience.check_every_s)
        self._doubt.clear()

    def _count_failure(self) -> int:
        """Add one now; how many there were within the window."""
        now_s = time.monotonic()
        self._failures.append(now_s)
        while self._failures[0] < now_s - self._patience.window_s:
            self._failures.popleft()
        return len(self._failures)

    def _say(self, line: str) -> None:
        self.reason = line
        self._progress(line)

    def _set(self, state: State, reason: str) -> None:
        is_news = bool(reason) and (state, reason) != (self.state, self.reason)
        self.state, self.reason = state, reason
        self._changed.set()
        if is_news:
            self._progress(f"engine {state}: {reason}")
