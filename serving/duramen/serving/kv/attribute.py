"""Calls that run at a live engine: what each may find cached, and why it found something else.

A prediction is exact when calls are serial. Beside others it is an interval: at least what the
mirror knew when the call was sent, at most what the prompts of calls that ran meanwhile have in
common with it. Blocks that such a call completed while decoding are not in the interval.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from duramen.layout.blocks import BlockHash, reusable_tokens

Mismatch = Literal["in_flight_sharing", "evicted", "event_lag", "other"]


@dataclass(eq=False)
class Flight:
    """A call that runs, and what was known when it was sent.

    `hashes`: its prompt's full blocks. `predicted`: tokens that the mirror expected, None if it did
    not know. `num_removed`: blocks that it had seen leave. `num_computed`: leading blocks that
    finished calls had computed, where those are more than were predicted. `is_settled`: it had
    heard of all that those did. `num_shared`: leading blocks that it has in common with a call that
    ran at any time while it did; None if none ran.
    """

    hashes: Sequence[BlockHash]
    num_tokens: int
    unit_tokens: int
    predicted: int | None
    num_removed: int
    num_computed: int
    is_settled: bool
    num_shared: int | None = None

    @property
    def predicted_most(self) -> int | None:
        """The upper end of the interval; grows while calls come beside it."""
        if self.predicted is None:
            return None
        shared_tokens = (self.num_shared or 0) * self.unit_tokens
        reusable = reusable_tokens(shared_tokens, self.num_tokens, self.unit_tokens)
        return max(self.predicted, reusable)

    def meet(self, other: "Flight") -> None:
        """Both run at once."""
        num_shared = common_blocks(self.hashes, other.hashes)
        for flight in (self, other):
            flight.num_shared = max(flight.num_shared or 0, num_shared)

    def mismatch(self, delivered: int | None, num_removed: int) -> Mismatch | None:
        """The class (see classify) of what was delivered other than `predicted`; None if it was
        just that, or if one of them is not known. `num_removed`: blocks seen leaving by now."""
        predicted, most = self.predicted, self.predicted_most
        if predicted is None or most is None or delivered is None or delivered == predicted:
            return None
        removed = num_removed > self.num_removed
        computed = self.num_computed * self.unit_tokens >= delivered
        return classify(
            predicted,
            delivered,
            shared=delivered <= most,
            evicted=removed and self.num_shared is not None,
            lagging=(computed if delivered > predicted else removed) and not self.is_settled,
        )


class Flights:
    """The calls that run at one engine, under one salt or with hashes that hold their salts.

    `unit_tokens`: what each hash stands for. `num_remembered`: of the blocks that calls computed so
    many of the newest, and up to about twice as many, are kept to know a mirror that lags; None:
    all of them.
    """

    def __init__(self, unit_tokens: int, num_remembered: int | None = None) -> None:
        self._unit_tokens = unit_tokens
        self._num_remembered = num_remembered
        self._flying: dict[Flight, None] = {}
        self._computed: set[BlockHash] = set()
        self._computed_before: set[BlockHash] = set()  # while the newer set fills up again

    def __len__(self) -> int:
        return len(self._flying)

    def take_off(
        self,
        hashes: Sequence[BlockHash],
        num_tokens: int,
        predicted: int | None,
        *,
        num_removed: int,
        is_settled: bool = False,
    ) -> Flight:
        """A call is sent, now. `hashes` of its prompt of `num_tokens` are kept, not copied; for the
        rest see Flight. O(calls in flight * log blocks)."""
        flight = Flight(
            hashes,
            num_tokens,
            self._unit_tokens,
            predicted,
            num_removed,
            0 if predicted is None else self._num_computed(hashes, predicted // self._unit_tokens),
            is_settled,
        )
        for other in self._flying:
            flight.meet(other)
        self._flying[flight] = None
        return flight

    def land(
        self,
        flight: Flight,
        delivered: int | None,
        *,
        num_removed: int,
        computed: Sequence[BlockHash] = (),
    ) -> Mismatch | None:
        """The call has ended: the class of its mismatch, if any. `computed`: the full blocks of its
        prompt and of what was sampled, but for the last token."""
        self.leave(flight)
        self.remember(computed)
        return flight.mismatch(delivered, num_removed)

    def leave(self, flight: Flight) -> None:
        """The call has ended or was given up; nothing happens the second time."""
        self._flying.pop(flight, None)

    def remember(self, computed: Sequence[BlockHash]) -> None:
        """Blocks that a call which has ended computed."""
        self._computed.update(computed)
        if self._num_remembered is not None and len(self._computed) > self._num_remembered:
            self._computed_before, self._computed = self._computed, set()

    def _num_computed(self, hashes: Sequence[BlockHash], start: int) -> int:
        end = start
        while end < len(hashes) and (
            hashes[end] in self._computed or hashes[end] in self._computed_before
        ):
            end += 1
        return end


def common_blocks(a: Sequence[BlockHash], b: Sequence[BlockHash]) -> int:
    """Leading blocks in common, in O(log): a chained hash is equal only where all before are."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high) // 2
        if a[middle] == b[middle]:
            low = middle + 1
        else:
            high = middle
    return low


def classify(
    predicted: int,
    delivered: int,
    *,
    shared: bool,
    evicted: bool,
    lagging: bool,
) -> Mismatch:
    """Why a prediction made when the call was sent was not what the engine found.

    in_flight_sharing: a call that ran meanwhile has that much of the prefix in common and stored
    it; a value inside the interval. evicted: blocks left while calls ran beside this one.
    event_lag: calls that had finished stored or evicted what the mirror had not heard of. other:
    none of these can be the cause.
    """
    if delivered > predicted and shared:
        return "in_flight_sharing"
    if delivered < predicted and evicted:
        return "evicted"
    return "event_lag" if lagging else "other"
