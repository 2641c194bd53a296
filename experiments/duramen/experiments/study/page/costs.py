"""Dollars of each layout for each provider/model and each GPU, beside the cheapest."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

from duramen.experiments.study.page import figures
from duramen.experiments.study.page.twins import Twins, twins
from duramen.experiments.study.page.view import Json, LayoutView, StudyView, sequence

HEAT = (Decimal(1), Decimal("1.25"), Decimal(2), Decimal(4))  # up to which ratio a tint goes


@dataclass(frozen=True)
class Amount:
    """`value`: to the last digit, unlike `usd` (layouts that only look equal are no twins).
    `heat`: 0 for the cheapest layout of its column, up to 4; None where nothing is known."""

    value: Decimal | None
    usd: str
    ratio: str
    heat: int | None


@dataclass(frozen=True)
class CostRow:
    """`amounts`: one per column."""

    twins: Twins
    amounts: tuple[Amount, ...]


@dataclass(frozen=True)
class Head:
    """A column: what is priced, the date of its price, and what a reader must know of it."""

    name: str
    date: str
    remarks: tuple[str, ...]


def model_heads(study: StudyView) -> list[Head]:
    return [_model_head(model, study.prices.get(model, {})) for model in study.models]


def device_heads(study: StudyView) -> list[Head]:
    return [Head(name, "", tuple(_assumed(study.device_facts(name)))) for name in study.devices]


def model_rows(study: StudyView, layouts: Sequence[LayoutView]) -> list[CostRow]:
    return _rows(layouts, [[layout.usd.get(model) for layout in layouts] for model in study.models])


def device_rows(study: StudyView, layouts: Sequence[LayoutView], arm: str) -> list[CostRow]:
    """GPUs of one's own, that one arm ran on."""
    return _rows(
        layouts,
        [
            [layout.arm(arm).devices.get(device, {}).get("usd") for layout in layouts]
            for device in study.devices
        ],
    )


def _rows(layouts: Sequence[LayoutView], columns: Sequence[Sequence[object]]) -> list[CostRow]:
    if not columns:
        return []
    amounts = zip(*(_amounts(texts) for texts in columns), strict=True)
    return [CostRow(*pair) for pair in twins(zip(layouts, amounts, strict=True))]


def _amounts(texts: Sequence[object]) -> list[Amount]:
    values = [None if text is None else figures.money(text) for text in texts]
    least = min((value for value in values if value is not None), default=None)
    return [_amount(value, least) for value in values]


def _amount(value: Decimal | None, least: Decimal | None) -> Amount:
    if value is None or not least or least < 0:
        return Amount(value, figures.usd(value), "", None)
    ratio = value / least
    heat = sum(ratio > limit for limit in HEAT)
    text = "lowest" if value == least else figures.ratio(float(ratio))
    return Amount(value, figures.usd(value), text, heat)


def _model_head(model: str, price: Json) -> Head:
    caveat = price.get("caveat")
    return Head(model, str(price.get("date") or ""), (str(caveat),) if caveat else ())


def _assumed(facts: Json) -> Iterator[str]:
    """The price of an hour, and which inputs of the modelled seconds are assumed."""
    usd = figures.money(facts.get("usd_per_hour"))
    if usd is not None:
        yield f"{figures.usd(usd)} per hour."
    names = [str(name) for name in sequence(facts.get("assumed"))]
    if names:
        yield f"Assumed: {', '.join(_quantity(name, facts.get(name)) for name in names)}."


def _quantity(name: str, value: object) -> str:
    words, unit = (name[:-2], " s") if name.endswith("_s") else (name, "")
    known = "" if value is None else f" {value}{unit}"
    return words.replace("_", " ") + known
