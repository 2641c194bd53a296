"""When a small zoned prompt is cheaper than one that grows: an expected task, call by call.

A task has a root, a trunk of artifacts, and in each call a reply and a new observation. An artifact
changes in a share `change_rate` of the calls.
  stable  keeps everything: a changed artifact is appended as it is read again, and what was sent
          before is read from the cache in every later call.
  zoned   sends root, trunk and the last k turns. Old turns leave `step` at once, and then all that
          stay are computed; a change computes the part `behind` of the trunk and the turns again.
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
    """Sizes in tokens. `num_calls`: of the task; `k` and `step`: turns in zoned's leaf, and how
    many leave it at once; `behind`: share of the trunk that stands behind a change, 1/2 where
    changes hit it evenly."""

    root: float
    trunk: float
    reply: float
    observation: float
    num_calls: int
    k: int
    artifact: float = 0.0  # what `stable` appends beside the observation when one changes
    step: int = 1
    behind: float = 0.5
    change_rate: float = 0.0

    def __post_init__(self) -> None:
        sizes = (self.root, self.trunk, self.reply, self.observation, self.artifact)
        if min(sizes) < 0 or min(self.num_calls, self.k, self.step) < 1:
            raise LayoutError(
                f"{self} is no task: sizes are at least 0, calls, k and step at least 1"
            )
        if not (0 <= self.behind <= 1 and 0 <= self.change_rate <= 1):
            raise LayoutError(f"{self} is no task: behind and change_rate are shares, 0 to 1")

    def stable(self) -> Work:
        return _sum(self.stable_calls())

    def zoned(self, marks: bool = False) -> Work:
        return _sum(self.zoned_calls(marks))

    def stable_calls(self) -> Iterator[Work]:
        """The first call computes root and trunk; the reply before a call is in the cache."""
        new = self.observation + self.change_rate * self.artifact
        sent = self.root + self.trunk
        yield Work(sent, 0.0)
        for _ in range(self.num_calls - 1):
            yield Work(new, sent + self.reply)
            sent += self.reply + new

    def zoned_calls(self, marks: bool = False) -> Iterator[Work]:
        """`marks`: see Rates; turns that leave several at once are cached all the same."""
        yield Work(self.root + self.trunk, 0.0)
        turn = self.reply + self.observation
        again = self.change_rate * self.behind * self.trunk
        kept = self.root + self.trunk - again
        for call in range(1, self.num_calls):
            leaf = (call - self._num_left(call)) * turn
            if marks and self.step == 1:
                yield Work(again, kept, leaf)
                continue
            grows = self._num_left(call) == self._num_left(call - 1)
            computed = leaf
            if grows:  # unless the trunk moved
                computed = self.observation + self.change_rate * (leaf - self.observation)
            yield Work(again + computed, kept + leaf - computed)

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


def break_even_calls(task: Task, rates: Rates, limit: int = 1000) -> int | None:
    """The shortest task, up to `limit` calls, of which zoned is cheaper; None if none is."""
    longest = replace(task, num_calls=limit)
    saved = Decimal(0)
    for number, (stable, zoned) in enumerate(
        zip(longest.stable_calls(), longest.zoned_calls(rates.marks), strict=True)
    ):
        saved += cost(stable, rates) - cost(zoned, rates)
        if saved > 0:
            return number + 1
    return None


def _sum(calls: Iterator[Work]) -> Work:
    return Work(*map(sum, zip(*calls, strict=True)))
