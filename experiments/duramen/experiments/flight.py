"""Calls that run at a live engine, and why one was delivered other than was predicted."""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(eq=False)
class Flight:
    """A call that runs, and what was known when it was sent.

    `num_removed`: blocks that the mirror had seen leave. `num_computed`: leading tokens that
    finished calls had computed. `is_settled`: the mirror had heard of all that those did.
    `beside`: the prompts of calls that ran at any time while this one did.
    """

    prompt: Sequence[int]
    predicted: int | None
    num_removed: int
    num_computed: int
    is_settled: bool
    beside: list[Sequence[int]] = field(default_factory=list)


def classify(
    predicted: int,
    delivered: int,
    *,
    shared: bool,
    evicted: bool,
    lagging: bool,
) -> str:
    """Why a prediction made when the call was sent was not what the engine found.

    in_flight_sharing: a call that ran meanwhile has more of the prefix in common and stored it.
    evicted: blocks left while calls ran beside this one. event_lag: calls that had finished stored
    or evicted what the mirror had not heard of. other: none of these can be the cause.
    """
    if delivered > predicted and shared:
        return "in_flight_sharing"
    if delivered < predicted and evicted:
        return "evicted"
    return "event_lag" if lagging else "other"
