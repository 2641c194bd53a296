"""A plan: the sweep, the pick and its reasons, and the rate at which it stops to keep its word."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from duramen.experiments.plan.limit import Limit, find_limit
from duramen.experiments.plan.order import Order
from duramen.experiments.plan.reasons import why
from duramen.experiments.plan.search import Report, Search
from duramen.experiments.plan.setting import Space
from duramen.experiments.plan.traffic import Traffic, num_calls
from duramen.experiments.plan.trial import Trial, Trials


@dataclass(frozen=True)
class Plan:
    """`front`: of all settings that ran on all of the traffic, `whole`, the best first. `present`:
    what the profile was measured with, None if the cache is too small for it. `over`: see
    Trial.over, of the pick. `limit` is None where answers alone decide when calls are sent."""

    pick: Trial
    present: Trial | None
    front: Sequence[Trial]
    whole: Sequence[Trial]
    num_tried: int
    over: dict[str, float]
    why: str
    limit: Limit | None
    traffic: Traffic

    @property
    def keeps_per_s(self) -> float | None:
        """The highest arrival rate that was found to be kept."""
        return self._rate(None if self.limit is None else self.limit.keeps)

    @property
    def breaks_per_s(self) -> float | None:
        """The lowest that was found to be too much."""
        return self._rate(None if self.limit is None else self.limit.breaks)

    def _rate(self, factor: float | None) -> float | None:
        rate_per_s = self.traffic.rate_per_s
        return None if factor is None or rate_per_s is None else factor * rate_per_s

    def as_json(self) -> dict[str, Any]:
        return {
            "load": self.traffic.as_json(),
            "num_sessions": len(self.traffic.sessions),
            "num_calls": num_calls(self.traffic),
            "pick": self.pick.as_json() | {"meets": not self.over, "over": self.over},
            "why": self.why,
            "present": self.present and self.present.as_json(),
            "limit": self.limit
            and {
                "rate_of": self.traffic.rate_of,
                "traffic_per_s": self.traffic.rate_per_s,
                "keeps_per_s": self.keeps_per_s,
                "breaks_per_s": self.breaks_per_s,
                "factors": asdict(self.limit),
            },
            "front": [trial.as_json() for trial in self.front],
            "num_settings": self.num_tried,
            "tried_on_all_calls": [trial.as_json() for trial in self.whole],
        }


def new_search(trials: Trials, space: Space, traffic: Traffic, report: Report) -> Search:
    at_given_rate = traffic.rate_per_s is not None
    return Search(trials, space, Order(trials.slo, at_given_rate, space.present), traffic, report)


def make_plan(search: Search) -> Plan:
    """Raises DuramenError where no setting can be simulated."""
    trials, order, traffic = search.trials, search.order, search.traffic
    whole = search.run()
    pick = order.best(whole)
    limit = None
    if traffic.rate_per_s is not None:
        search.report("how much more of it the pick would keep up with")

        def keeps_at(factor: float) -> bool:
            return order.meets(trials.run(pick.setting, traffic.faster(factor)))

        limit = find_limit(keeps_at)
    return Plan(
        pick,
        search.whole.get(search.space.present),
        order.front(whole),
        whole,
        search.num_tried,
        pick.over(order.slo),
        why(pick, whole, order),
        limit,
        traffic,
    )
