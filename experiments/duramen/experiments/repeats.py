"""What several runs of one layout come to: medians of times, and how far they lie apart."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median, median_low
from typing import Any

from duramen.experiments.accounts import Accounts, percentiles

Figure = Callable[[Accounts], float | None]


def _engine_ttft_s(run: Accounts) -> float | None:
    ttft = run.engine_times and run.engine_times.ttft
    return ttft.mean_s if ttft else None


FIGURES: dict[str, Figure] = {
    "ttft_mean_s": lambda run: fmean(run.ttft_s) if run.ttft_s else None,
    "ttft_p50_s": lambda run: percentiles(run.ttft_s)["p50"],
    "ttft_p95_s": lambda run: percentiles(run.ttft_s)["p95"],
    "engine_ttft_mean_s": _engine_ttft_s,
    "makespan_s": lambda run: run.makespan_s,
    "uncached_tokens": lambda run: run.uncached_tokens,
}


@dataclass(frozen=True)
class Spread:
    median: float
    min: float
    max: float


@dataclass(frozen=True)
class Repeats:
    """The runs of one layout, at least one. One that was cut short counts only if no other ran."""

    runs: Sequence[Accounts]

    @property
    def complete(self) -> Sequence[Accounts]:
        return [run for run in self.runs if run.is_complete] or self.runs[:1]

    @property
    def typical(self) -> Accounts:
        """The run whose counts are shown: the first that has the median of uncached tokens (the
        lower of two). Where a run does not know them, the first of all."""
        uncached = [run.uncached_tokens for run in self.complete]
        known = [tokens for tokens in uncached if tokens is not None]
        if len(known) < len(uncached):
            return self.complete[0]
        return self.complete[uncached.index(median_low(known))]

    @property
    def same_cached_tokens(self) -> bool | None:
        """Whether as many were delivered in every run; None if a run does not know."""
        found = [run.delivered for run in self.complete]
        return None if None in found else len(set(found)) == 1

    def spread(self, figure: Figure) -> Spread | None:
        """Over the runs; None if one of them lacks it."""
        found = [figure(run) for run in self.complete]
        known = [value for value in found if value is not None]
        if len(known) < len(found):
            return None
        return Spread(median(known), min(known), max(known))

    def as_json(self) -> dict[str, Any]:
        """One run: as it is. Several: the typical one with the medians of all times, each run for
        itself, and the spread."""
        form = self.typical.as_json() | {
            "repeats": None,
            "spread": None,
            "same_cached_tokens": None,
        }
        if len(self.runs) == 1:
            return form
        spreads = {name: self.spread(figure) for name, figure in FIGURES.items()}
        return form | {
            "ttft_s": self._medians(lambda run: run.ttft_s),
            "itl_s": self._medians(lambda run: run.itl_s),
            "makespan_s": _median(spreads["makespan_s"]),
            "repeats": [run.as_json() for run in self.runs],
            "spread": {name: spread and asdict(spread) for name, spread in spreads.items()},
            "same_cached_tokens": self.same_cached_tokens,
        }

    def _medians(self, times_s: Callable[[Accounts], Sequence[float]]) -> dict[str, float | None]:
        def figure(name: str) -> Figure:
            return lambda run: percentiles(times_s(run))[name]

        return {name: _median(self.spread(figure(name))) for name in percentiles(())}


def _median(spread: Spread | None) -> float | None:
    return None if spread is None else spread.median
