"""Numbers as a reader sees them. What is absent, or no finite number, is a dash and never 0."""

from decimal import Decimal, InvalidOperation
from math import floor, isfinite, log10

ABSENT = "–"


def count(value: float | None) -> str:
    """Whole numbers with thousands separators."""
    return ABSENT if value is None else f"{value:,.0f}"


def signed(value: float | None) -> str:
    """Whole numbers that say whether something was won or lost."""
    if value is None:
        return ABSENT
    if not round(value):
        return "0"
    return f"{'+' if value > 0 else '−'}{abs(value):,.0f}"


def significant(value: float | None, digits: int = 3) -> str:
    """At least `digits` significant digits, no exponent."""
    if value is None or not isfinite(value):
        return ABSENT
    if value == 0:
        return "0"
    places = digits - 1 - floor(log10(abs(value)))
    return f"{round(value, places):,.{max(places, 0)}f}"


def share(value: float | None) -> str:
    """A percentage that says 0% and 100% only of exactly none and all."""
    if value is None or not isfinite(value):
        return ABSENT
    if 0 < value < 0.0005:
        return "<0.1%"
    if 0.9995 <= value < 1:
        return ">99.9%"
    return f"{value:.1%}"


def ratio(value: float | None) -> str:
    """How many times as much; close to 1 with more digits, so that 1.00× is exactly 1."""
    if value is None or not isfinite(value):
        return ABSENT
    if value != 1 and abs(value - 1) < 0.005:
        return f"{significant(value, 3 - floor(log10(abs(value - 1))) - 1)}×"
    return f"{significant(value)}×"


def change(value: float, base: float) -> str:
    """What `value` has beyond `base`, as a signed percentage."""
    if value == base:
        return "="
    if not base:
        return ABSENT
    more = value / base - 1
    text = f"{abs(more):.0%}" if abs(more) >= 0.0995 else f"{abs(more):.1%}"
    small = "<0.1%" if abs(more) < 0.0005 else text
    return f"{'+' if more > 0 else '−'}{small}"


def money(text: object) -> Decimal | None:
    """A decimal string as the study writes it; None where it is none."""
    try:
        value = Decimal(str(text))
    except InvalidOperation:
        return None
    return value if value.is_finite() else None


def usd(value: Decimal | None) -> str:
    """To the cent from a dollar on, below that to three significant digits."""
    if value is None:
        return ABSENT
    if value == 0:
        return "$0"
    if abs(value) < 1:
        value = value.quantize(Decimal(1).scaleb(value.adjusted() - 2))
    return f"${value:,.2f}" if abs(value) >= 1 else f"${value:f}"


def tick_ratio(value: float) -> str:
    """For axes: 0.5×, 20×."""
    return f"{value:.10g}×"


def isolated(text: str) -> str:
    """For use inside a sentence: text of the other writing direction cannot turn the rest."""
    return text if text.isascii() else f"\u2068{text}\u2069"


def short_count(value: float) -> str:
    """For axes: 1.2M, 250k."""
    for size, suffix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.10g}{suffix}"
    return f"{value:.10g}"
