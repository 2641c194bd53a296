"""Which trial is better: by objectives, and on the Pareto front whatever they are."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import floor, inf, log

from duramen.experiments.plan.setting import Setting
from duramen.experiments.plan.trial import Trial
from duramen.experiments.timed.slo import Slo

SAME = 0.01  # figures that differ by less are as good as equal

Key = tuple[float, ...]


@dataclass(frozen=True)
class Order:
    """`at_given_rate`: arrivals do not wait for answers, so settings differ in their share of good
    calls; else in good calls per second. `present`: of equals, the one with the fewest changes."""

    slo: Slo
    at_given_rate: bool
    present: Setting

    def meets(self, trial: Trial) -> bool:
        return not trial.over(self.slo)

    def goodput(self, trial: Trial) -> float:
        return trial.goodput.share if self.at_given_rate else trial.goodput.calls_per_s

    def key(self, trial: Trial) -> Key:
        """The smallest is the best: those that meet the objectives by goodput, then the nearest."""
        over = trial.over(self.slo)
        first: Key = (1.0, max(over.values())) if over else (0.0, -self.goodput(trial))
        return (*first, trial.ttft_p99_s, trial.itl_p99_s, float(self._num_changes(trial)))

    def best(self, trials: Sequence[Trial]) -> Trial:
        """Of equals the first token decides, then what was measured. Times are equal within 1%, and
        so is goodput per second, which hangs on when the last call ends."""
        best = min(trials, key=self.key)
        equals = [each for each in trials if self._is_as_good(each, best)]
        least_s = min(each.ttft_p99_s for each in equals)
        soonest = [each for each in equals if each.ttft_p99_s <= (1 + SAME) * least_s]
        return min(soonest, key=lambda each: (self._num_changes(each), *self.key(each)))

    def _is_as_good(self, trial: Trial, best: Trial) -> bool:
        if not self.meets(best):
            nearest, far = (max(each.over(self.slo).values()) for each in (best, trial))
            return far <= nearest
        least = (1 if self.at_given_rate else 1 - SAME) * self.goodput(best)
        return self.meets(trial) and self.goodput(trial) >= least

    def _num_changes(self, trial: Trial) -> int:
        return len(trial.setting.differences(self.present))

    def front(self, trials: Sequence[Trial]) -> list[Trial]:
        """Those that no other betters in one figure without being worse in another, the best
        first; of equals one."""
        best = {_bins(trial): trial for trial in sorted(trials, key=self.key, reverse=True)}
        on_it = [trial for bins, trial in best.items() if not _is_beaten(bins, best)]
        return sorted(on_it, key=self.key)

    def survivors(self, trials: Sequence[Trial], number: int) -> list[Trial]:
        """Half of them the best by the objectives, half from the front and the fronts behind it."""
        best = sorted(trials, key=self.key)
        by_front: list[Trial] = []
        rest = best
        while rest and len(by_front) < number:
            on_it = self.front(rest)
            by_front += on_it
            rest = [trial for trial in rest if trial not in on_it]
        kept = best[: number // 2]
        kept += [trial for trial in by_front if trial not in kept][: number - len(kept)]
        return kept


def _bins(trial: Trial) -> Key:
    """Smaller is better."""
    figures = (trial.ttft_p99_s, trial.itl_p99_s, 1 / trial.tokens_per_s)
    return tuple(floor(log(each) / SAME) if each else -inf for each in figures)


def _is_beaten(bins: Key, by: Iterable[Key]) -> bool:
    return any(
        other != bins and all(a <= b for a, b in zip(other, bins, strict=True)) for other in by
    )
