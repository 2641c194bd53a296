"""Where each message stands in rendered text, found from the origins of its characters.

A message's region begins with the control token that opens it: the second one behind the previous
message's data if there are two (the first closes that message), else the first. An assistant
message is cut once more around its data, so that what a model sampled can be told from its frame.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from duramen.layout.template import Message
from duramen.layout.tokenizer_files import AddedToken
from duramen.layout.tracked import TOOLS, Tracked

Control = tuple[int, int, AddedToken]  # [start, end) and the token


@dataclass(frozen=True)
class Cut:
    """From `start` on, the text belongs to `source`; `message` is its index, None for a frame
    that belongs to no message yet (the generation prompt)."""

    start: int
    source: str
    message: int | None


def data_extents(text: Tracked) -> dict[int, tuple[int, int]]:
    """Origin -> [first, last + 1) of the characters that are its data."""
    extents: dict[int, tuple[int, int]] = {}
    position = 0
    for length, origin in text.runs:
        first, _ = extents.get(origin, (position, 0))
        position += length
        extents[origin] = (first, position)
    return extents


@dataclass(frozen=True)
class Placed:
    """A message of the conversation and the origin that its characters carry in a text."""

    origin: int
    index: int
    message: Message


def message_cuts(
    text: Tracked,
    controls: Sequence[Control],
    messages: Sequence[Placed],
    *,
    start: int = 0,
    generation_start: int,
) -> list[Cut]:
    """Cuts for the messages, which begin at `start`, and for the generation prompt; ascending.

    `controls`: those of `text`, as Tokenizer.controls gives them. `generation_start`: where
    the generation prompt begins, len(text) if there is none.
    """
    extents = data_extents(text)
    cuts: list[Cut] = []
    previous_end = start
    for placed in messages:
        extent = extents.get(placed.origin)
        if extent is None or extent[0] < previous_end:
            continue  # the template left it out or moved it; its neighbours cover its place
        role = str(placed.message.get("role"))
        source = f"message {placed.index} ({role})"
        opening = _opening(controls, previous_end, extent[0]) if cuts else start
        if opening < extent[0] or role != "assistant":
            cuts.append(Cut(opening, source, placed.index))
        if role == "assistant":
            cuts.append(Cut(extent[0], f"{source} text", placed.index))
            cuts.append(Cut(extent[1], f"{source} end", placed.index))
        previous_end = extent[1]
    if previous_end <= generation_start < len(text):
        cuts.append(Cut(generation_start, "generation prompt", None))
    return _with_tools(cuts, extents.get(TOOLS))


def _with_tools(cuts: list[Cut], extent: tuple[int, int] | None) -> list[Cut]:
    """The tool definitions are a segment of their own, inside the message that they stand in."""
    if extent is None or not cuts or extent[0] <= cuts[0].start:
        return cuts
    around = [cut for cut in cuts if cut.start < extent[0]][-1]
    inside = [cut for cut in cuts if extent[0] <= cut.start <= extent[1]]
    if inside:
        return cuts  # mixed with messages: they have no place of their own
    tools = Cut(extent[0], "tools", around.message)
    rest = Cut(extent[1], f"{around.source} end", around.message)
    return sorted([*cuts, tools, rest], key=lambda cut: cut.start)


def _opening(controls: Sequence[Control], after: int, before: int) -> int:
    """Start of the second control token in [after, before), else of the first, else `before`."""
    first = bisect_left(controls, after, key=lambda control: control[0])
    between = [start for start, end, _ in controls[first : first + 2] if end <= before]
    return between[-1] if between else before
