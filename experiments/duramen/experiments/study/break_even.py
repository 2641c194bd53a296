"""When a small zoned prompt is cheaper than one that grows: an expected task, call by call.

A task has a root, and in each call a reply and a new observation. A part of what is read is lifted
into a trunk of artifacts, which grows evenly to its final size; an artifact changes, and is read
again, in a share `change_rate` of the calls.
  stable  keeps everything: each call computes what is new and reads the rest from the cache.
  zoned   sends root, trunk and the last k turns, without what was lifted. The turns are computed
          again when old ones leave, `step` at once, and when the trunk in front of them moves; a
          change computes the part `behind` of the trunk again.
Match units are not rounded to and nothing is evicted: this is the layouts' own difference.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import NamedTuple

from duramen.layout.errors import LayoutError


class Work(NamedTuple):
    """Expected prompt tokens of a task: computed and then cached, read from the cache, and computed
    without being cached."""

    computed: float
    read: float
    uncached: float = 0.0


class Rates(NamedTuple):
    """What a prompt token costs: computed and cached (with a provider's write premium where there
    is one), read from the cache, and computed without being cached. Any currency; GPU seconds too.

    `marks`: the client marks what is cached, and leaves out turns that slide with every call.
    """

    computed: Decimal
    read: Decimal
    uncached: Decimal
    marks: bool = False


@dataclass(frozen=True)
class Task:
    """Sizes in tokens. `num_calls`: of the task; `trunk`: at its end; `said`: of a turn, its reply
    included and without what is lifted; `artifact`: what is read again at a change; `k` and `step`:
    turns in zoned's leaf, and how many leave it at once; `behind`: share of the trunk that stands
    behind a change; `moves`: share of the calls in which something enters or leaves the trunk."""

    root: float
    trunk: float
    reply: float
    said: float
    num_calls: int
    k: int
    step: int = 1
    artifact: float = 0.0
    behind: float = 0.5
    change_rate: float = 0.0
    moves: float = 1.0

    def __post_init__(self) -> None:
        sizes = (self.root, self.trunk, self.reply, self.said - self.reply, self.artifact)
        if min(sizes) < 0 or min(self.num_calls, self.k, self.step) < 1:
            raise LayoutError(
                f"{self} is no task: sizes are at least 0, calls, k and step at least 1"
            )
        if not all(0 <= share <= 1 for share in (self.behind, self.change_rate, self.moves)):
            raise LayoutError(
                f"{self} is no task: behind, change_rate and moves are shares, 0 to 1"
            )

    def lasting(self, num_calls: int) -> "Task":
        """The same task over more or fewer calls: its trunk grows as fast."""
        return replace(self, num_calls=num_calls, trunk=self._lifted * (num_calls - 1))

    def stable(self) -> Work:
        return _sum(self.stable_calls())

    def zoned(self, marks: bool = False) -> Work:
        return _sum(self.zoned_calls(marks))

    def stable_calls(self) -> Iterator[Work]:
        """The reply before a call is in the cache."""
        new = self.said - self.reply + self._lifted + self.change_rate * self.artifact
        sent = self.root
        yield Work(sent, 0.0)
        for _ in range(self.num_calls - 1):
            yield Work(new, sent + self.reply)
            sent += self.reply + new

    def zoned_calls(self, marks: bool = False) -> Iterator[Work]:
        """`marks`: see Rates; turns that leave several at once are cached all the same."""
        yield Work(self.root, 0.0)
        for call in range(1, self.num_calls):
            before = (call - 1) * self._lifted
            again = self.change_rate * self.behind * before
            leaf = (call - self._num_left(call)) * self.said
            in_trunk = Work(self._lifted + again, self.root + before - again)
            if marks and self.step == 1:
                yield Work(*in_trunk[:2], leaf)
                continue
            computed = leaf
            if self._num_left(call) == self._num_left(call - 1):
                new = self.said - self.reply
                computed = new + self.moves * (leaf - new)
            yield Work(in_trunk.computed + computed, in_trunk.read + leaf - computed)

    @property
    def _lifted(self) -> float:
        """Per call."""
        return self.trunk / max(self.num_calls - 1, 1)

    def _num_left(self, num_turns: int) -> int:
        num_old = max(num_turns - self.k, 0)
        return num_old - num_old % self.step


def cost(work: Work, rates: Rates) -> Decimal:
    computed, read, uncached = map(Decimal, work)
    return rates.computed * computed + rates.read * read + rates.uncached * uncached


def break_even_rate(task: Task, rates: Rates) -> float | None:
    """The change rate at which both cost the same; below it zoned is cheaper if a change costs
    zoned more than stable, above it otherwise. None: one of them is cheaper at every rate.

    Both costs are linear in the rate, so two points tell.
    """
    at_none, at_every = (zoned_saving(replace(task, change_rate=r), rates) for r in (0.0, 1.0))
    if at_none == at_every or (at_none > 0) == (at_every > 0):
        return None
    return float(at_none / (at_none - at_every))


def zoned_saving(task: Task, rates: Rates) -> Decimal:
    """What zoned saves of a task's prompt cost; negative where it loses."""
    return cost(task.stable(), rates) - cost(task.zoned(rates.marks), rates)


def break_even_calls(task: Task, rates: Rates, limit: int = 400) -> int | None:
    """The length from which on zoned is cheaper, as far as `limit` calls; None if there is none.
    In longer tasks the trunk goes on growing as fast."""
    longest = task.lasting(limit)
    saved, first = Decimal(0), None
    calls = zip(longest.stable_calls(), longest.zoned_calls(rates.marks), strict=True)
    for number, (stable, zoned) in enumerate(calls):
        saved += cost(stable, rates) - cost(zoned, rates)
        if saved <= 0:
            first = None
        elif first is None:
            first = number + 1
    return first


def _sum(calls: Iterator[Work]) -> Work:
    return Work(*map(sum, zip(*calls, strict=True)))
