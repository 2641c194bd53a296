"""Who may call the engine now, who waits, and who is turned away.

A call's priority, here and in vLLM (smaller goes first), is its arrival plus a penalty for the
tokens that it has to compute. Arrivals grow with time, so a waiting call ages by itself: only calls
that arrive within its penalty can overtake it, and short ones never starve a cold one.

Between tenants a free slot goes to the one with the fewest calls running, and among equals to the
one that was served longest ago; within a tenant to the smallest priority. So slots even out, and a
flood only lengthens its own queue. Where the queue for all is full, a newcomer takes the last place
of the tenant with the longest queue, or a flood would keep the others out of it.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import count
from operator import attrgetter

from duramen.serving.gateway.errors import ApiError
from duramen.serving.gateway.lanes import Call, Lane, TenantLane
from duramen.serving.gateway.settings import Limits

MAX_PRIORITY = 2**62 - 1  # fits vLLM's signed 64 bits and leaves room behind every client's call


@dataclass(frozen=True)
class Slot:
    """Leave to call the engine. `priority`: vLLM's, smaller goes first. `queued_s`: the wait."""

    priority: int
    queued_s: float


class Admission:
    """At most `limits.max_running` calls hold slots and `limits.max_queued` wait; the same for each
    tenant. `clock`: seconds that never go back.
    """

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._all = Lane(limits.max_running, limits.max_queued)
        self._lanes: dict[str, TenantLane] = {}
        self._arrivals = count()
        self._turns = count(1)
        self._is_closed = False

    @property
    def num_running(self) -> int:
        return self._all.num_running

    @property
    def num_queued(self) -> int:
        return self._all.num_queued

    @asynccontextmanager
    async def admit(self, tenant: str, uncached_tokens: int | None) -> AsyncIterator[Slot]:
        """Wait for a slot, and hold it while the block runs.

        `uncached_tokens`: what the call is expected to compute; None, where nobody knows, adds no
        penalty. How long it may wait is the caller's to limit. Raises ApiError: 429 if the queue is
        full or its place went to another tenant, 503 if the gateway is shutting down.
        """
        if self._is_closed:
            raise _shutting_down()
        arrived_s = self._clock()
        priority = self._priority(arrived_s, uncached_tokens)
        with self._held(tenant, priority) as call:
            if call.is_waiting:
                await self._until_let_in(call)
            yield Slot(priority, self._clock() - arrived_s)

    def close(self) -> None:
        """Turn away those that wait and all that come from now on; those that run go on."""
        self._is_closed = True
        for lane in self._lanes.values():
            for call in [*lane.waiting]:
                self._turn_away(call, _shutting_down())

    def _priority(self, arrived_s: float, uncached_tokens: int | None) -> int:
        penalty_ms = 0
        if self._limits.scheduling == "priority":
            num_tokens = min(max(uncached_tokens or 0, 0), MAX_PRIORITY)
            penalty_ms = round(min(self._limits.uncached_token_ms * num_tokens, MAX_PRIORITY))
        return min(int(arrived_s * 1000) + penalty_ms, MAX_PRIORITY)

    @contextmanager
    def _held(self, name: str, priority: int) -> Iterator[Call]:
        """A call that runs or waits; whatever it has when the block ends goes back."""
        limits = self._limits
        lane = self._lanes.get(name)
        if lane is None:
            lane = TenantLane(limits.tenant_max_running, limits.tenant_max_queued)
            self._lanes[name] = lane
        call = Call(lane, (priority, next(self._arrivals)))
        try:
            self._take_in(call)
            yield call
        finally:
            if call.is_running:
                self._all.end(self._clock())
                lane.end(self._clock())
                self._let_in()
                self._all.rest()
            elif call.is_waiting:
                self._drop(call)
            if not (lane.num_running or lane.waiting) and self._lanes.get(name) is lane:
                del self._lanes[name]

    def _take_in(self, call: Call) -> None:
        lane = call.lane
        if self._all.has_slot and lane.has_slot:  # nobody who waits could use this slot
            self._start(call)
            return
        if not lane.has_place:
            raise self._crowded(lane, "too many of your calls wait for the engine")
        if not self._all.has_place:
            crowded = self._crowded(lane, "too many calls wait for the engine")
            last = [t.waiting[-1] for t in self._lanes.values() if t.waiting]
            out = max(last, key=lambda each: (each.lane.num_queued, each.order), default=call)
            if out.lane.num_queued <= lane.num_queued + 1:
                raise crowded
            self._turn_away(out, crowded)
        lane.insert(call)
        call.is_waiting = True
        self._all.num_queued += 1
        lane.num_queued += 1

    async def _until_let_in(self, call: Call) -> None:
        """Return once the call has a slot, or raise what it was refused with."""
        call.woken = asyncio.get_running_loop().create_future()
        await call.woken
        if call.refusal:
            raise call.refusal

    def _let_in(self) -> None:
        while self._all.has_slot:
            ready = [t.waiting[0] for t in self._lanes.values() if t.waiting and t.has_slot]
            if not ready:
                return
            call = min(ready, key=attrgetter("lane.num_running", "lane.turn", "order"))
            self._drop(call)
            self._start(call)
            call.wake()

    def _start(self, call: Call) -> None:
        call.is_running = True
        call.lane.turn = next(self._turns)
        self._all.start(self._clock())
        call.lane.start(self._clock())

    def _turn_away(self, call: Call, refusal: ApiError) -> None:
        self._drop(call)
        call.refusal = refusal
        call.wake()

    def _drop(self, call: Call) -> None:
        call.lane.remove(call)
        call.is_waiting = False
        self._all.num_queued -= 1
        call.lane.num_queued -= 1

    def _crowded(self, lane: TenantLane, message: str) -> ApiError:
        """In OpenAI's shape for a rate limit. It tells nothing about other tenants but the pace."""
        retry_after_s = self._retry_after_s(lane)
        return ApiError(
            429,
            f"{message}: try again in {retry_after_s:.0f} s",
            type="requests",
            code="rate_limit_exceeded",
            retry_after_s=retry_after_s,
        )

    def _retry_after_s(self, lane: TenantLane) -> float:
        """Whole seconds, at least 1; at most the deadline, when nobody who waits now still does."""
        scope = self._all if lane.num_running == 0 or not self._all.has_place else lane
        drained_s = min(scope.drained_after_s(self._clock()), self._limits.deadline_s)
        return float(max(1, math.ceil(drained_s)))


def _shutting_down() -> ApiError:
    message = "the gateway is shutting down"
    return ApiError(503, message, type="server_error", code="shutting_down")
