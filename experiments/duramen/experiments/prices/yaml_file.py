"""The parts of our price files: no field unknown, and errors that name the key."""

from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any, TypeVar

import msgspec

from duramen.layout.errors import PriceError
from duramen.serving.strict_yaml import parse_yaml

_T = TypeVar("_T")
_MOST_USD = Decimal(1_000_000)
_MOST_DIGITS = 40


def price_mapping(text: str, where: str) -> dict[str, Any]:
    """The mapping that the text of a price file holds. Raises DuramenError, starting with `where`,
    where it is no YAML, PriceError where it holds something else."""
    value = parse_yaml(text, where)
    if not isinstance(value, dict):
        raise PriceError(f"{where} holds {type(value).__name__}, not a mapping of prices")
    return value


def convert(value: object, to: type[_T], where: str) -> _T:
    """`value` as the struct `to`. Raises PriceError with the place where it does not fit."""
    try:
        return msgspec.convert(value, to)
    except (msgspec.ValidationError, RecursionError) as error:
        raise PriceError(f"{where}: {error}") from error


def usd(text: str, where: str) -> Decimal:
    """A price as it is written. Raises PriceError unless it is a finite number of USD from 0 on."""
    try:
        price = Decimal(text)
    except InvalidOperation:
        raise PriceError(f"{where}: {text!r} is no price") from None
    if not price.is_finite() or price.is_signed() or price > _MOST_USD:
        raise PriceError(f"{where}: {text!r} is no price from 0 to {_MOST_USD} USD")
    _, digits, exponent = price.as_tuple()
    if len(digits) > _MOST_DIGITS or abs(int(exponent)) > _MOST_DIGITS:
        raise PriceError(f"{where}: {text[:50]!r} has more than {_MOST_DIGITS} digits")
    return price


def iso_date(text: str, where: str) -> str:
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise PriceError(f"{where}: {text!r} is no date like 2026-11-30") from None
