"""Sessions call by call: under each layout, what was sent and how much of it was in the cache."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from duramen.experiments.study.page.twins import Twins, twins
from duramen.experiments.study.page.view import Json, LayoutView, StudyView, number, sequence, whole

WIDTH = 1000  # units of a lane's drawing from left to right, whatever its pixels
ROW_HEIGHTS = ((40, 7), (90, 4), (10**9, 2))  # up to so many calls, in CSS pixels


@dataclass(frozen=True)
class LaneCall:
    """`cached`: None where the pool could not hold the call; `broke_at`: None if nothing broke."""

    prompt: int
    cached: int | None
    broke_at: str | None


@dataclass(frozen=True)
class Lane:
    """One session under a layout and its twins; a row per call, the first on top. Paths are in
    WIDTH by rows: `sent` and `cached` are outlines, `breaks` ticks and `not_held` lines."""

    twins: Twins
    calls: tuple[LaneCall, ...]
    sent: str
    cached: str
    breaks: str
    not_held: str

    @property
    def uncached(self) -> int:
        return sum(call.prompt - (call.cached or 0) for call in self.calls)

    @property
    def causes(self) -> list[tuple[str, int]]:
        """Where the prefix broke, most often first."""
        found = Counter(call.broke_at for call in self.calls if call.broke_at is not None)
        return sorted(found.items(), key=lambda each: (-each[1], each[0]))


@dataclass(frozen=True)
class SessionLanes:
    session_id: str
    num_calls: int
    row_height: int
    most_tokens: int
    lanes: tuple[Lane, ...]

    @property
    def session_title(self) -> str:
        return f"{self.session_id} ({self.num_calls:,} calls)"


def session_lanes(study: StudyView) -> list[SessionLanes]:
    found = (_session(name, each, study.layouts) for name, each in study.lanes.items())
    return [each for each in found if each.lanes]


def _session(name: str, lanes_of: Json, layouts: Sequence[LayoutView]) -> SessionLanes:
    found = twins((each, calls) for each in layouts if (calls := _calls(lanes_of.get(each.label))))
    most = max((call.prompt for _, calls in found for call in calls), default=0)
    num_calls = max((len(calls) for _, calls in found), default=0)
    row_height = next(height for limit, height in ROW_HEIGHTS if num_calls <= limit)
    lanes = [_lane(same, calls, most) for same, calls in found]
    lanes.sort(key=lambda lane: lane.uncached)
    return SessionLanes(str(name), num_calls, row_height, most, tuple(lanes))


def _calls(json: object) -> tuple[LaneCall, ...]:
    rows = [(*sequence(each), None, None, None)[:3] for each in sequence(json)]
    return tuple(
        LaneCall(whole(prompt) or 0, whole(cached), None if broke is None else str(broke))
        for prompt, cached, broke in rows
        if number(prompt) is not None
    )


def _lane(same: Twins, calls: tuple[LaneCall, ...], most: int) -> Lane:
    def x(tokens: int | None) -> int:
        return round(WIDTH * (tokens or 0) / most) if most else 0

    rows = list(enumerate(calls))
    return Lane(
        twins=same,
        calls=calls,
        sent=_outline([x(call.prompt) for call in calls]),
        cached=_outline([x(call.cached) for call in calls]),
        breaks="".join(f"M{x(c.cached)} {row}v1" for row, c in rows if c.broke_at is not None),
        not_held="".join(f"M0 {row}.5h{x(c.prompt)}" for row, c in rows if c.cached is None),
    )


def _outline(widths: Sequence[int]) -> str:
    """Rows of height 1 under each other, from the left edge."""
    steps = [
        f"h{width - before}v1" if width != before else "v1"
        for before, width in zip([0, *widths], widths, strict=False)
    ]
    return f"M0 0{''.join(steps)}H0z"
