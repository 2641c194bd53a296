"""One layout beside another, session by session: how often it is cheaper, and by how much."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from duramen.experiments.study.results import LayoutResult, SessionSums


@dataclass(frozen=True)
class Spread:
    """Ratios of a cost to the same session's cost under another layout. Sessions of which a layout
    has not the same calls, or that cost nothing under the other, are left out. Quartiles are by
    linear interpolation."""

    ratios: Sequence[float]  # ascending

    @property
    def num_cheaper(self) -> int:
        return sum(ratio < 1 for ratio in self.ratios)

    @property
    def num_dearer(self) -> int:
        return sum(ratio > 1 for ratio in self.ratios)

    def quantile(self, share: float) -> float | None:
        if not self.ratios:
            return None
        place = share * (len(self.ratios) - 1)
        low = int(place)
        high = min(low + 1, len(self.ratios) - 1)
        return self.ratios[low] + (self.ratios[high] - self.ratios[low]) * (place - low)

    def as_json(self) -> dict[str, float | int | None]:
        return {
            "num_sessions": len(self.ratios),
            "num_cheaper": self.num_cheaper,
            "num_dearer": self.num_dearer,
            "min": self.quantile(0.0),
            "p25": self.quantile(0.25),
            "median": self.quantile(0.5),
            "p75": self.quantile(0.75),
            "max": self.quantile(1.0),
        }


Cost = Callable[[SessionSums], Decimal | int]


def uncached(arm: int) -> Cost:
    """Tokens that the arm with this index computes."""
    return lambda session: session.prompt_tokens - session.cached[arm]


def dollars(model: str) -> Cost:
    """USD that provider/model bills."""
    return lambda session: Decimal(session.usd[model])


def spread(result: LayoutResult, other: LayoutResult, cost: Cost) -> Spread:
    """The cost of each session of `result` as a share of its cost under `other`."""
    theirs = {(session.session_id, session.num_calls): cost(session) for session in other.sessions}
    pairs = [
        (cost(session), theirs[session.session_id, session.num_calls])
        for session in result.sessions
        if (session.session_id, session.num_calls) in theirs
    ]
    return Spread(sorted(float(ours / their) for ours, their in pairs if their))
