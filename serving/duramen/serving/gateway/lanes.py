"""The calls that run and wait: all of them together, and each tenant's own."""

import asyncio
from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass, field
from operator import attrgetter

from duramen.serving.gateway.errors import ApiError

NUM_REMEMBERED_ENDS = 64
_ORDER = attrgetter("order")


@dataclass(slots=True, eq=False)
class Lane:
    """The calls of all tenants, counted. `ends`: when the current busy spell began, and when the
    newest calls ended in it."""

    max_running: int
    max_queued: int
    num_running: int = 0
    num_queued: int = 0
    ends: deque[float] = field(default_factory=lambda: deque(maxlen=NUM_REMEMBERED_ENDS + 1))

    @property
    def has_slot(self) -> bool:
        return self.num_running < self.max_running

    @property
    def has_place(self) -> bool:
        return self.num_queued < self.max_queued

    def start(self, now_s: float) -> None:
        if not self.ends:
            self.ends.append(now_s)
        self.num_running += 1

    def end(self, now_s: float) -> None:
        self.num_running -= 1
        self.ends.append(now_s)

    def rest(self) -> None:
        """Idle time, if this is the beginning of one, says nothing about the pace."""
        if not self.num_running and not self.num_queued:
            self.ends.clear()

    def drained_after_s(self, now_s: float) -> float:
        """When those that wait now will have been let in, at the pace of the newest ends. As long
        as nothing has ended: as much again as this spell has lasted."""
        num_ended = len(self.ends) - 1
        spell_s = now_s - self.ends[0]
        return spell_s / num_ended * max(self.num_queued, 1) if num_ended else spell_s


@dataclass(slots=True, eq=False)
class TenantLane(Lane):
    """One tenant's. `waiting`: by priority. `turn`: which of all slots it got last, 0 for none."""

    waiting: "list[Call]" = field(default_factory=list)
    turn: int = 0

    def insert(self, call: "Call") -> None:
        insort(self.waiting, call, key=_ORDER)

    def remove(self, call: "Call") -> None:
        del self.waiting[bisect_left(self.waiting, call.order, key=_ORDER)]


@dataclass(slots=True, eq=False)
class Call:
    """One that was taken in. `order`: priority, then arrival. `woken`: it has a slot or a refusal
    now."""

    lane: TenantLane
    order: tuple[int, int]
    is_running: bool = False
    is_waiting: bool = False
    refusal: ApiError | None = None
    woken: asyncio.Future[None] | None = None

    def wake(self) -> None:
        if self.woken and not self.woken.done():  # done: its client went away
            self.woken.set_result(None)
