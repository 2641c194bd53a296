"""Reading our own YAML strictly: no key twice, no field unknown, and errors that name the key."""

from datetime import date
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from duramen.layout.errors import PriceError

_T = TypeVar("_T")
_MOST_USD = Decimal(1_000_000)
_MOST_DIGITS = 40


class _Loader(yaml.SafeLoader):
    """Dates stay text, and a key that stands twice is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for number, key in enumerate(keys):
            if key in keys[:number]:
                line = node.value[number][0].start_mark.line + 1
                raise yaml.YAMLError(f"line {line}: key {key!r} stands twice")
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_text(path: Path) -> str:
    """Raises PriceError where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise PriceError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise PriceError(f"{path} is no UTF-8 text") from error


def parse_yaml(text: str, where: str) -> dict[str, Any]:
    """The mapping that the text holds. Raises PriceError, starting with `where`."""
    try:
        value = yaml.load(text, _Loader)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        lines = " ".join(str(error).split())
        raise PriceError(f"{where} is no YAML that can be read: {lines}") from error
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
