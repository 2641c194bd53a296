"""Layouts that a chart shows as one, because everything it shows of them is the same."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from duramen.experiments.study.page.view import STABLE, LayoutView

Shown = TypeVar("Shown", bound=Hashable)


@dataclass(frozen=True)
class Twins:
    """At least one layout, `stable` first: its first one lends colour and shape."""

    layouts: tuple[LayoutView, ...]

    @property
    def first(self) -> LayoutView:
        return self.layouts[0]

    @property
    def others(self) -> tuple[LayoutView, ...]:
        return self.layouts[1:]

    @property
    def label(self) -> str:
        return " = ".join(layout.label for layout in self.layouts)


def twins(pairs: Iterable[tuple[LayoutView, Shown]]) -> list[tuple[Twins, Shown]]:
    """Layouts with equal `Shown` together, in the order of each one's first."""
    found: dict[Shown, list[LayoutView]] = {}
    for layout, shown in pairs:
        found.setdefault(shown, []).append(layout)
    return [
        (Twins(tuple(sorted(layouts, key=lambda each: each.label != STABLE))), shown)
        for shown, layouts in found.items()
    ]
