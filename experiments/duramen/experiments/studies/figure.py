"""A worked example: figures as they were printed, recomputed, put right and by the exact model."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """`printed`: as it was printed ("3,096", "< 9"), in `printed_unit` where that was another one
    than `unit`. `recomputed`: by the example's own formula; `exact`: by the exact model;
    `corrected`: by the formula put right, where it was wrong."""

    what: str
    unit: str
    printed: str
    recomputed: float
    exact: float
    corrected: float | None = None
    printed_unit: str | None = None

    @property
    def is_as_printed(self) -> bool:
        """Whether what was printed follows from the formula, to the digits that were printed."""
        if self.printed.startswith("< "):
            return self.recomputed < float(self.printed.removeprefix("< "))
        rounded = f"{self.recomputed:,.{self._num_printed_decimals}f}"
        return self.printed_unit is None and self.printed == rounded

    def shown(self, value: float) -> str:
        """With one digit more than was printed, unless that would be a whole number's zero."""
        num_decimals = self._num_printed_decimals
        return f"{value:,.{num_decimals if value == round(value) else num_decimals + 1}f}"

    @property
    def _num_printed_decimals(self) -> int:
        return len(self.printed.partition(".")[2])


@dataclass(frozen=True)
class Example:
    """`rate`: the device, its peak and the share of it that is taken to be reached (MFU)."""

    title: str
    model: str
    formula: str
    rate: str
    exact_model: str
    figures: tuple[Figure, ...]
    notes: tuple[str, ...]
