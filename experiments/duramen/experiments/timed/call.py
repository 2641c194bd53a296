"""A call as a simulation needs it: how long it is, and which blocks it shares with others."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class TimedCall:
    """`keys`: of the full blocks of prompt and outputs, the last output left out; further ones are
    ignored. The engine knows beforehand that the call ends after its `num_outputs` tokens if they
    are `max_outputs`."""

    session: str
    index: int  # in its session
    keys: Sequence[Hashable]
    num_prompt: int
    num_outputs: int
    max_outputs: int
    priority: int = 0
