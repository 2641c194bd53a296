"""Finds the settings that are worth a look without simulating all of them in full.

A coarse grid runs on the first part of the traffic; the better half goes on to twice as much, up to
all of it. Then what stands beside the best and the front is tried, until nothing new is better.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from duramen.experiments.plan.order import Order
from duramen.experiments.plan.setting import Setting, Space
from duramen.experiments.plan.traffic import Traffic, num_calls
from duramen.experiments.plan.trial import Trial, Trials
from duramen.layout.errors import DuramenError

SHARES = (4, 2)  # parts of the traffic that settings must survive, as divisors
LEAST_CALLS = 100  # of a part: fewer have no 99th percentile
NUM_CENTRES = 3  # whose neighbours are tried in a round
MAX_ROUNDS = 4

Report = Callable[[str], None]


@dataclass(frozen=True)
class Cost:
    """`num_coarse`: settings that run on a part at least. `num_neighbours`: the most that are tried
    beside them. `num_simulated`: the most calls."""

    num_coarse: int
    num_neighbours: int
    num_simulated: int


@dataclass
class Search:
    """`whole`: the trials on all of the traffic, in the order in which they ran.

    Every method raises DuramenError where no setting can hold the longest call.
    """

    trials: Trials
    space: Space
    order: Order
    traffic: Traffic
    report: Report = lambda line: None
    whole: dict[Setting, Trial] = field(default_factory=dict)
    num_tried: int = 0
    _expanded: set[Setting] = field(default_factory=set)

    def cost(self) -> Cost:
        settings, total = self._coarse(), num_calls(self.traffic)
        left, simulated = len(settings), 0
        for share in self._shares():
            simulated += left * (total // share)
            left = -(-left // 2)
        around = max(len([*self.space.neighbours(each)]) for each in settings)
        num_neighbours = MAX_ROUNDS * NUM_CENTRES * around
        return Cost(len(settings), num_neighbours, simulated + total * (left + num_neighbours))

    def try_one(self) -> int:
        """Simulate a setting on the smallest part, to see how long it takes. Returns its calls."""
        part = self.traffic.prefix(num_calls(self.traffic) // SHARES[0])
        self.trials.run(self._coarse()[0], part)
        return num_calls(part)

    def run(self) -> list[Trial]:
        """The trials on all of the traffic."""
        settings = self._coarse()
        self.num_tried = len(settings)
        for share in self._shares():
            part = self.traffic.prefix(num_calls(self.traffic) // share)
            self.report(f"{len(settings)} settings on {num_calls(part):,} calls")
            found = [self.trials.run(setting, part) for setting in settings]
            kept = self.order.survivors(found, -(-len(settings) // 2))
            settings = [trial.setting for trial in kept]
        self._run_whole([self.space.present, *settings])
        for _ in range(MAX_ROUNDS):
            settings = self._around()
            if not settings:
                break
            self._run_whole(settings)
        return [*self.whole.values()]

    def _coarse(self) -> list[Setting]:
        settings = self._possible(self.space.coarse())
        if not settings:
            raise DuramenError(
                f"the cache does not hold a call of {self._longest} tokens: enlarge it with "
                "--memory or --kv-tokens"
            )
        return settings

    @property
    def _longest(self) -> int:
        return max(
            call.num_prompt + call.num_outputs
            for session in self.traffic.sessions
            for call in session
        )

    def _shares(self) -> list[int]:
        return [share for share in SHARES if num_calls(self.traffic) // share >= LEAST_CALLS]

    def _possible(self, settings: Iterable[Setting]) -> list[Setting]:
        longest = self._longest
        return [each for each in settings if self.trials.blocks(each).can_hold(longest)]

    def _run_whole(self, settings: Sequence[Setting]) -> None:
        new = [each for each in self._possible(settings) if each not in self.whole]
        self.report(f"{len(new)} settings on all {num_calls(self.traffic):,} calls")
        for setting in new:
            self.whole[setting] = self.trials.run(setting, self.traffic)

    def _around(self) -> list[Setting]:
        """What stands beside the best and the front, and was not tried in full."""
        found = [*self.whole.values()]
        front = [self.order.best(found), *self.order.front(found)]
        centres = dict.fromkeys(
            trial.setting for trial in front if trial.setting not in self._expanded
        )
        chosen = [*centres][:NUM_CENTRES]
        self._expanded.update(chosen)
        beside = [each for centre in chosen for each in self.space.neighbours(centre)]
        new = self._possible(each for each in dict.fromkeys(beside) if each not in self.whole)
        self.num_tried += len(new)
        return new
