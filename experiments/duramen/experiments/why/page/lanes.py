"""A session's calls as bars under each other: how long, in which zones, and how much was reused."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from duramen.experiments.why.explained import ExplainedCall
from duramen.layout.diagnose.causes import Cause

WIDTH = 1000  # units of a lane's drawing from left to right, whatever its pixels
ROW_HEIGHTS = ((30, 14), (100, 7), (300, 4), (10**9, 2))  # up to so many calls, in CSS pixels
GAP_FROM = 7  # CSS pixels of a row from which on rows stand apart
ZONES = ("root", "trunk", "leaf")


class Piece(NamedTuple):
    """Tokens [start, end) of a prompt. `kind`: zone, and whether they came from the cache ("hit",
    "miss"), or would have, and the log does not say it ("maybe")."""

    kind: str
    start: int
    end: int


@dataclass(frozen=True)
class Lane:
    """`index`: of the session in the log. `pieces`, `breaks`: SVG paths in WIDTH by rows, of each
    kind and each cause that occurs. `unknown`: of calls whose tokens are not known."""

    index: int
    session: str
    calls: tuple[ExplainedCall, ...]
    row_height: int
    most_tokens: int
    lost_tokens: int
    pieces: tuple[tuple[str, str], ...]
    breaks: tuple[tuple[Cause, str], ...]
    unknown: str

    @property
    def causes(self) -> tuple[Cause, ...]:
        return tuple(cause for cause, _ in self.breaks)


def hit_tokens(call: ExplainedCall) -> int:
    """From the cache: as delivered; where that is not reported, or more than the prompt has and so
    of another tokenizer, as predicted; else as can be."""
    num_tokens = call.num_tokens or 0
    known = (None if has_other_tokens(call) else call.delivered, call.predicted, call.reusable)
    hit = next((tokens for tokens in known if tokens is not None), 0)
    return min(max(hit, 0), num_tokens)


def has_other_tokens(call: ExplainedCall) -> bool:
    return call.delivered is not None and call.delivered > (call.num_tokens or 0)


def pieces_of(call: ExplainedCall) -> list[Piece]:
    """They cover the prompt without a gap. `any` is a zone that is not known."""
    num_tokens, hit = call.num_tokens or 0, hit_tokens(call)
    is_known = call.delivered is not None and not has_other_tokens(call)
    from_cache = "hit" if is_known else "maybe"
    if call.zones is None:
        zones = [("any", 0, num_tokens)]
    else:
        trunk, leaf = (min(each, num_tokens) for each in call.zones)
        bounds = (0, trunk, leaf, num_tokens)
        zones = list(zip(ZONES, bounds, bounds[1:], strict=False))
    pieces = []
    for zone, start, end in zones:
        cut = min(max(hit, start), end)
        pieces += [Piece(f"{zone} {from_cache}", start, cut), Piece(f"{zone} miss", cut, end)]
    return [piece for piece in pieces if piece.end > piece.start]


def session_lanes(calls: Sequence[ExplainedCall]) -> list[Lane]:
    """The session that lost the most first."""
    by_session: dict[str, list[ExplainedCall]] = defaultdict(list)
    for call in calls:
        by_session[call.session].append(call)
    lanes = [_lane(index, *each) for index, each in enumerate(by_session.items())]
    return sorted(lanes, key=lambda lane: -lane.lost_tokens)


def _lane(index: int, session: str, calls: Sequence[ExplainedCall]) -> Lane:
    most = max((call.num_tokens or 0 for call in calls), default=0)
    row_height = next(height for limit, height in ROW_HEIGHTS if len(calls) <= limit)
    bar = 0.85 if row_height >= GAP_FROM else 1
    pieces: Mapping[str, list[str]] = defaultdict(list)
    breaks: Mapping[Cause, list[str]] = defaultdict(list)
    unknown = []

    def x(tokens: int) -> float:
        return round(WIDTH * min(tokens, most) / most, 1) if most else 0

    for row, call in enumerate(calls):
        for kind, start, end in pieces_of(call):
            width = round(x(end) - x(start), 1)
            pieces[kind].append(f"M{x(start):g} {row}h{width:g}v{bar}h-{width:g}z")
        if call.num_tokens is None:
            unknown.append(f"M0 {row}.5h{WIDTH}")
        if call.broken is not None and call.broken.cause != "first-call":
            at = 0 if call.broken.token is None else call.broken.token
            breaks[call.broken.cause].append(f"M{x(at):g} {row}v{bar}")
    return Lane(
        index=index,
        session=session,
        calls=tuple(calls),
        row_height=row_height,
        most_tokens=most,
        lost_tokens=sum(call.broken.lost_tokens for call in calls if call.broken is not None),
        pieces=tuple((kind, "".join(paths)) for kind, paths in pieces.items()),
        breaks=tuple((cause, "".join(paths)) for cause, paths in breaks.items()),
        unknown="".join(unknown),
    )
