"""Whether to end a zone at a boundary of the match unit, and how.

What stands behind the last whole unit of a zone is computed again in each call whose next zone is
new, since the unit that holds it holds some of that zone, too. Neutral padding up to the boundary
is paid once and makes that rest reusable. Moving the last segments to the next zone costs nothing
if they stand wholly behind the last boundary: they are computed again anyway. By itself it saves
nothing either; it gains where what is left changes less often, so that padding lasts for longer.

Net benefit of a cut, in tokens: (rest behind the last boundary) x (later calls until what is left
changes) - (padding). Reading cached padding counts as free.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from duramen.layout.errors import LayoutError


@dataclass(frozen=True)
class Alignment:
    """`num_moved` segments go to the next zone, then `num_padding` tokens follow what is left.
    `net_tokens`: expected saving of later calls minus what is paid now; 0 for doing nothing."""

    num_moved: int = 0
    num_padding: int = 0
    net_tokens: float = 0.0


def align(
    end: int,
    unit: int,
    tail: Sequence[int],
    calls_until_change: Sequence[float],
    min_padding: int = 1,
) -> Alignment:
    """The cut with the highest positive net benefit, else no change; of equal ones the one that
    moves least.

    `end`: token at which the zone ends. `tail`: tokens of its last segments, the last one first.
    `calls_until_change[n]`: expected later calls until the zone without its last n segments
    changes; one entry more than `tail`. `min_padding`: tokens of the shortest padding. Raises
    LayoutError for sizes that cannot be.
    """
    if unit < 1 or min_padding < 1 or end < sum(tail) or any(size < 0 for size in tail):
        raise LayoutError(
            f"cannot align a zone that ends at {end} with segments of {list(tail)} tokens to a "
            f"unit of {unit} with padding from {min_padding} tokens on"
        )
    if len(calls_until_change) != len(tail) + 1:
        raise LayoutError(
            f"{len(tail)} segments need {len(tail) + 1} expectations: not {len(calls_until_change)}"
        )
    best = Alignment()
    for num_moved, moved_tokens in _movable(end, unit, tail):
        rest = (end - moved_tokens) % unit
        padding = padding_tokens(end - moved_tokens, unit, min_padding)
        net_tokens = rest * calls_until_change[num_moved] - padding
        if net_tokens > best.net_tokens:
            best = Alignment(num_moved, padding, net_tokens)
    return best


def padding_tokens(end: int, unit: int, min_padding: int) -> int:
    """Tokens from `end` to a boundary, 0 or at least `min_padding`."""
    missing = -end % unit
    while 0 < missing < min_padding:
        missing += unit
    return missing


def _movable(end: int, unit: int, tail: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(segments, their tokens) for each cut that is at or behind the last boundary."""
    moved_tokens = 0
    yield 0, 0
    for num_moved, size in enumerate(tail, 1):
        moved_tokens += size
        if moved_tokens > end % unit:
            return
        yield num_moved, moved_tokens
