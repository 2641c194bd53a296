"""Times of recordings, as Unix seconds."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from duramen.experiments.importers.messages import check_iso_time, fail
from duramen.layout.errors import TrajectoryError

SECONDS_END = 1e11  # a larger number is in milliseconds
MILLISECONDS_END = 1e14
NANOSECONDS = 1_000_000_000


def check_time(value: Any, where: str, field: str) -> float | None:
    """Of Unix seconds or milliseconds, or an ISO time; None where there is none."""
    if value is None:
        return None
    if isinstance(value, str):
        return check_iso_time(value, where, field)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value < MILLISECONDS_END:
        raise fail(where, field, value, "Unix seconds or milliseconds, or an ISO time")
    return float(value) if value < SECONDS_END else value / 1000


def time_or_none(value: Any) -> float | None:
    """The same for logs whose lines are not refused for a time that is none."""
    try:
        return check_time(value, "", "")
    except TrajectoryError:
        return None


def between(start_s: float | None, end_s: float | None) -> float | None:
    """Seconds from one to the other; None where one is not known, or they are turned round."""
    if start_s is None or end_s is None or end_s < start_s:
        return None
    return end_s - start_s


def offsets_of(times: Sequence[float | None]) -> tuple[float | None, list[float | None]]:
    """The time of the first call, and each call's seconds since then, never falling. All None where
    the time of one is not known."""
    known = [time_s for time_s in times if time_s is not None]
    if not known or len(known) < len(times):
        return None, [None] * len(times)
    return known[0], [time_s - known[0] for time_s in accumulate(known, max)]
