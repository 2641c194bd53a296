"""Texts that change with the reader's choices: all of them are written here, the page's script only
puts them in their place.

A choice is one of "arm", "model", "device", "price", "lane"; its values are counted from 0 in the
order of the study, and 0 is chosen first, without a script for good.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any


@dataclass(frozen=True)
class Cell:
    """`texts`: lists, one level per choice in `by`; inside, a text or one per layout."""

    by: tuple[str, ...]
    texts: Any

    def first(self, layout: int | None = None) -> str:
        found = self.texts
        for _ in self.by:
            found = found[0]
        text = found if layout is None else found[layout]
        return str(text)


@dataclass
class Cells:
    """All cells of a page by name. `sizes`: how many values each choice has."""

    sizes: dict[str, int]
    cells: dict[str, Cell] = field(default_factory=dict)

    def add(self, name: str, by: Sequence[str], text: Callable[..., Any]) -> None:
        """`text` takes an index for each choice. Nothing is added where a choice has no value."""
        if not all(self.sizes[choice] for choice in by):
            return
        flat = [text(*place) for place in product(*(range(self.sizes[c]) for c in by))]
        for choice in reversed(by[1:]):
            size = self.sizes[choice]
            flat = [flat[start : start + size] for start in range(0, len(flat), size)]
        self.cells[name] = Cell(tuple(by), flat if by else flat[0])

    def __contains__(self, name: str) -> bool:
        return name in self.cells

    def first(self, name: str, layout: int | None = None) -> str:
        return self.cells[name].first(layout)

    def as_json(self) -> dict[str, Any]:
        return {name: {"by": cell.by, "texts": cell.texts} for name, cell in self.cells.items()}
