"""Colour and shape of every layout: one colour per family, a shape for each member of it."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

FAMILIES = {
    "stable": "stable",
    "independent": "independent",
    "recorded": "recorded",
    "thinking-stripped": "thinking",
    "thinking-kept": "thinking",
    "pruned": "pruned",
    "zoned": "zoned",
    "clock": "head",
    "uuid": "head",
    "counter": "head",
    "shuffled-tools": "tools",
    "unsorted-json": "tools",
}
SHAPES = ("circle", "square", "diamond", "triangle", "down", "cross")


@dataclass(frozen=True)
class Look:
    """`css`: class of the colour, `shape`: id of the drawing."""

    css: str
    shape: str


def looks(labels: Iterable[str]) -> dict[str, Look]:
    """By label. What stands before a label's first colon names the layout."""
    seen = Counter[str]()
    found = {}
    for label in labels:
        family = FAMILIES.get(label.partition(":")[0], "other")
        found[label] = Look(f"f-{family}", SHAPES[seen[family] % len(SHAPES)])
        seen[family] += 1
    return found
