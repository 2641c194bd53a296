"""Which kind of value changed: a time, an id, a number that counts, or none of them.

Two versions of a text are given, so that nothing has to be guessed about whether it changes; what
is guessed is who changed it, a program or a person. Words near the value, its shape, the place and
the size of the step decide, and where they do not, it is no such value.
"""

from duramen.layout.delta import common_text
from duramen.layout.diagnose.change import Change
from duramen.layout.diagnose.clocks import clock_change, is_time
from duramen.layout.diagnose.counters import counter_change
from duramen.layout.diagnose.ids import id_change
from duramen.layout.diagnose.place import Place
from duramen.layout.diagnose.spots import Spot
from duramen.layout.diff import Difference


def value_change(old: str, new: str, region: Difference, place: Place) -> Change | None:
    """What the first difference of two texts is, as a value; None where it is none.

    `region` is the first of `differences(old, new)`.
    """
    was, now = _narrowed(old, new, region)
    if is_time(was, now):
        return clock_change(was, now, place)
    return id_change(was, now, place) or counter_change(was, now, place)


def _narrowed(old: str, new: str, region: Difference) -> tuple[Spot, Spot]:
    """The region without what both versions of it begin and end with."""
    cut, put = old[region.old_start : region.old_end], new[region.start : region.end]
    head = common_text(cut, put)
    tail = common_text(cut[head:][::-1], put[head:][::-1])
    return (
        Spot.of(old, region.old_start + head, region.old_end - tail),
        Spot.of(new, region.start + head, region.end - tail),
    )
