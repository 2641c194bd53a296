"""LiteLLM's model_prices_and_context_window.json as a book of prices.

Prices are USD per token there and are taken digit by digit. Cache rules are not in that file: they
come from our own file of the same provider. A model whose provider we have no rules for is priced
without caching, and its entry's caveat says so.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from duramen.experiments.prices.book import Entry
from duramen.experiments.prices.book_file import parse_book
from duramen.experiments.prices.money import EXACT, Prices, Tariff, Tier
from duramen.experiments.prices.rules import CacheRules
from duramen.experiments.prices.yaml_file import usd
from duramen.layout.errors import PriceError

_EXAMPLE = "sample_spec"  # LiteLLM's description of its own form
_TEXT_MODES = {"chat", "responses", "completion"}
_PROVIDERS = {  # LiteLLM's name of a provider, ours
    "anthropic": "anthropic",
    "deepseek": "deepseek",
    "gemini": "google",
    "mistral": "mistral",
    "openai": "openai",
}
_ABOVE = re.compile(r"input_cost_per_token_above_(\d+)k_tokens")
_PRICE_KEYS = {
    "input": "input_cost_per_token{}",
    "output": "output_cost_per_token{}",
    "cached_read": "cache_read_input_token_cost{}",
    "write_5m": "cache_creation_input_token_cost{}",
    "write_1h": "cache_creation_input_token_cost_above_1hr{}",
}


def parse_litellm(text: str, path: Path) -> list[Entry]:
    """An entry per text model that has an input and an output price; others are left out.

    The date is the file's own. Raises PriceError with file and model where a price is no number.
    """
    try:
        models = json.loads(text, parse_float=Decimal, object_pairs_hook=_no_key_twice)
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise PriceError(f"{path} is no JSON that can be read: {error}") from error
    if not isinstance(models, dict):
        raise PriceError(f"{path} holds no mapping of models to prices")
    date = datetime.fromtimestamp(path.stat().st_mtime, UTC).date().isoformat()
    entries: dict[str, Entry] = {}
    for name, model in models.items():
        if name == _EXAMPLE:
            continue
        for entry in _entries(name, model, date, f"{path}: {name}"):
            known = entries.setdefault(entry.name, entry)
            if known.tariff != entry.tariff:
                caveat = f"{known.caveat} Also listed as {name}, at other prices.".strip()
                entries[entry.name] = replace(known, caveat=caveat)
    if not entries:
        raise PriceError(f"{path} prices no text model by the token")
    return list(entries.values())


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, _ in pairs if [k for k, _ in pairs].count(key) > 1)
        raise ValueError(f"key {twice!r} stands twice")
    return found


def _entries(name: str, model: object, date: str, where: str) -> Iterator[Entry]:
    if not isinstance(model, dict):
        raise PriceError(f"{where} is {type(model).__name__}, not a mapping")
    if model.get("mode") not in _TEXT_MODES:
        return
    prices = _prices(model, "", where)
    if prices is None:
        return
    provider = model.get("litellm_provider")
    if not isinstance(provider, str) or not provider:
        provider = "unknown"
    ours = _PROVIDERS.get(provider, provider)
    full_name = f"{ours}/{name.removeprefix(f'{provider}/')}"
    tariff = Tariff(full_name, prices, tuple(_tiers(model, where)))
    rules, caveat = _rules(provider, tariff)
    yield Entry(full_name, date, tariff, rules, caveat)


def _rules(provider: str, tariff: Tariff) -> tuple[CacheRules, str]:
    """The rules of our own entry of that model; else the provider's first, or first with writes."""
    ours = _PROVIDERS.get(provider)
    if ours is None:
        return CacheRules("none"), f"Priced without caching: no rules are known for {provider!r}."
    if tariff.prices.cached_read is None:
        return CacheRules("none"), "Priced without caching: no price of a cached token is given."
    entries = _packaged(ours)
    known = next((entry for entry in entries if entry.name == tariff.name), None)
    if known is None and tariff.prices.write_30m is not None:
        known = next((entry for entry in entries if entry.rules.write == "write_30m"), None)
    found = known or next(entry for entry in entries if entry.rules.write != "write_30m")
    if found.name == tariff.name:
        return found.rules, found.caveat
    return found.rules, f"Cache rules as for {found.name}."


@cache
def _packaged(provider: str) -> list[Entry]:
    file = files("duramen.configs").joinpath("prices").joinpath(f"{provider}.yaml")
    return parse_book(file.read_text(encoding="utf-8"), f"prices/{provider}.yaml")


def _tiers(model: dict[str, Any], where: str) -> Iterator[Tier]:
    """LiteLLM bills a whole request at the prices of the highest tier that it reaches."""
    thousands = sorted(
        int(match[1])
        for key, value in model.items()
        if value is not None
        if (match := _ABOVE.fullmatch(key))
    )
    for number in thousands:
        prices = _prices(model, f"_above_{number}k_tokens", where)
        if prices is None:
            raise PriceError(f"{where}: above {number}k tokens it has an input but no output price")
        yield Tier(number * 1000, prices, "request")


def _prices(model: dict[str, Any], suffix: str, where: str) -> Prices | None:
    found = {}
    for field, key in _PRICE_KEYS.items():
        value = model.get(key.format(suffix))
        found[field] = (
            None if value is None else _per_million(value, f"{where}.{key.format(suffix)}")
        )
    base, output = found.pop("input"), found.pop("output")
    if base is None or output is None:
        return None
    if model.get("litellm_provider") == "openai":  # its writes live 30 minutes
        found["write_30m"] = found.pop("write_5m")
    return Prices(base, output, **found)


def _per_million(value: object, where: str) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | Decimal | str):
        raise PriceError(f"{where} is {value!r}, not a price in USD per token")
    return EXACT.scaleb(usd(str(value), where), Decimal(6))
