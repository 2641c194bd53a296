"""Runs recorded sessions through layouts and says what each costs, layout after layout."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from duramen.experiments.layouts.catalogue import Layout
from duramen.experiments.layouts.model import Model
from duramen.experiments.prices.book import Entry
from duramen.experiments.prices.own_gpu import TimeModel
from duramen.experiments.study.arms import Arm
from duramen.experiments.study.measure import Measurement
from duramen.experiments.study.parts import Parts
from duramen.experiments.study.pricing import Pricing
from duramen.experiments.study.results import LayoutResult
from duramen.experiments.study.schedule import in_time_order
from duramen.experiments.study.walk import Walk
from duramen.experiments.trajectory import Session

Progress = Callable[[Layout, int], None]  # a layout, and how many of its calls are done


@dataclass(frozen=True)
class Study:
    """`sessions` have times (schedule.with_times). `devices`: own GPUs, by name. `entries`:
    what providers would bill. `parts`: where finished layouts are kept and found again."""

    sessions: Sequence[Session]
    model: Model
    arms: Sequence[Arm]
    devices: Mapping[str, TimeModel] = field(default_factory=dict)
    entries: Sequence[Entry] = ()
    parts: Parts | None = None

    def run(
        self, layouts: Sequence[Layout], progress: Progress = lambda layout, num_done: None
    ) -> list[LayoutResult]:
        return [self._kept(each, progress) or self._measured(each, progress) for each in layouts]

    def _kept(self, layout: Layout, progress: Progress) -> LayoutResult | None:
        result = self.parts.load(layout) if self.parts else None
        if result is not None:
            progress(layout, result.num_calls)
        return result

    def _measured(self, layout: Layout, progress: Progress) -> LayoutResult:
        walk = Walk(self.model, layout)
        pricing = Pricing(self.entries, layout)
        measurement = Measurement(self.arms, self.devices, pricing)
        for number, step in enumerate(in_time_order(self.sessions, walk)):
            measurement.take(step)
            progress(layout, number + 1)
        result = measurement.result(walk)
        if self.parts is not None:
            self.parts.save(layout, result)
        return result
