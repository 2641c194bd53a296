"""Counters and histograms that cost next to nothing on the hot path.

They keep plain numbers and hand them to prometheus_client when they are scraped. Everything runs on
the event loop's thread, so nothing is locked.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector


class Count(Collector):
    """A sum that only grows, for each combination of label values.

    `start`: combinations that are shown as 0 before anything was counted.
    """

    def __init__(
        self,
        name: str,
        text: str,
        labels: Sequence[str] = (),
        start: Iterable[tuple[str, ...]] = (),
    ) -> None:
        self._name, self._text, self._labels = name, text, tuple(labels)
        self._sums: dict[tuple[str, ...], int] = dict.fromkeys(start, 0)
        if not labels:
            self._sums[()] = 0

    def add(self, amount: int, *values: str) -> None:
        """`values`: one for each label, in their order."""
        assert len(values) == len(self._labels), (self._name, values)
        self._sums[values] = self._sums.get(values, 0) + amount

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(self._name, self._text, labels=self._labels)
        for values, total in self._sums.items():
            family.add_metric(values, total)
        yield family


class Histogram(Collector):
    """How many values were at most each of `bounds` (ascending), their sum and their number."""

    def __init__(self, name: str, text: str, bounds: Sequence[float]) -> None:
        self._name, self._text, self._bounds = name, text, tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, values: Iterable[float]) -> None:
        for value in values:
            self._counts[bisect_left(self._bounds, value)] += 1
            self._sum += value

    def collect(self) -> Iterator[Metric]:
        names = [*map(repr, map(float, self._bounds)), "+Inf"]
        buckets = list(zip(names, accumulate(self._counts), strict=True))
        yield HistogramMetricFamily(self._name, self._text, buckets=buckets, sum_value=self._sum)
