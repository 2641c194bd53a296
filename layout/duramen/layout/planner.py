"""Orders segments so that the slowest come first, and holds a token budget.

For whoever sends a working set instead of a conversation: order it here, then render it. A
transcript needs no plan, its messages stay in the order in which they came.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from duramen.layout.errors import LayoutError
from duramen.layout.zones import Segment, Zone


@dataclass(frozen=True)
class Plan:
    """`segments` in the order they are sent; `dropped` did not fit, the most volatile first."""

    segments: tuple[Segment, ...]
    dropped: tuple[Segment, ...] = ()


def plan(segments: Sequence[Segment], budget_tokens: int, count: Callable[[str], int]) -> Plan:
    """Root, trunk, leaf; inside a zone ascending volatility, then the given order.

    Root and leaf are what a call is about: only trunk segments are dropped, most volatile first,
    until `count` (text -> tokens) of all texts is within the budget. Raises LayoutError if root
    and leaf alone exceed it.
    """
    ordered = sorted(segments, key=lambda segment: (segment.zone, segment.volatility))
    sizes = [count(segment.text) for segment in ordered]
    total = sum(sizes)
    dropped: list[Segment] = []
    kept: list[Segment] = []
    for segment, size in zip(reversed(ordered), reversed(sizes), strict=True):
        if total > budget_tokens and segment.zone is Zone.TRUNK:
            dropped.append(segment)
            total -= size
        else:
            kept.append(segment)
    if total > budget_tokens:
        raise LayoutError(
            f"root and leaf need {total} tokens, the budget is {budget_tokens}: raise it"
        )
    return Plan(tuple(reversed(kept)), tuple(dropped))
