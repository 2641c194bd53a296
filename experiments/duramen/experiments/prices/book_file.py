"""Our price files: one provider each, with the source and the date of every figure.

provider, date      the book's; `date` is the day on which the figures were last seen to hold
sources             by name: what, date, url. Models and caches name the ones they come from
caches              sets of cache rules by name; `assumed` are fields that no source gives
models              prices as text in USD per million tokens, tiers, and the caches by name: the
                    first is the model's own, each further one an entry "provider/model+cache"
not_modelled, unconfirmed   sentences for the reader
"""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Literal

import msgspec

from duramen.experiments.prices.book import Entry
from duramen.experiments.prices.call import KEY_TOKENS, WriteKind
from duramen.experiments.prices.money import Prices, Tariff, Tier
from duramen.experiments.prices.rules import CacheKind, CacheRules
from duramen.experiments.prices.yaml_file import convert, iso_date, price_mapping, usd
from duramen.layout.errors import PriceError


class Source(msgspec.Struct, forbid_unknown_fields=True):
    what: str
    date: str
    url: str = ""


class _PriceFields(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    input: str
    output: str
    cached_read: str | None = None
    write_5m: str | None = None
    write_30m: str | None = None
    write_1h: str | None = None


class _Tier(_PriceFields, kw_only=True):
    above: int
    applies_to: Literal["request", "excess"]


class _Model(_PriceFields, kw_only=True):
    caches: list[str]
    sources: list[str]
    min_tokens: int | None = None
    tiers: list[_Tier] = []
    caveat: str = ""


class _Cache(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    kind: CacheKind
    sources: list[str]
    assumed: list[str] = []
    min_tokens: int = 0
    ttl_s: float = 0.0
    refreshed: bool = True
    granularity_tokens: int = KEY_TOKENS
    lookback_positions: int | None = None
    max_breakpoints: int = 4
    write: WriteKind | None = None
    caveat: str = ""


class _File(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    provider: str
    date: str
    reported_input_includes_cached: bool
    sources: dict[str, Source]
    caches: dict[str, dict[str, Any]]
    models: dict[str, dict[str, Any]]
    not_modelled: list[str] = []
    unconfirmed: list[str] = []


def parse_book(text: str, where: str) -> list[Entry]:
    """The entries of a price file. Raises DuramenError with `where` and the key that is wrong."""
    file = convert(price_mapping(text, where), _File, where)
    date = iso_date(file.date, f"{where}: date")
    check_sources(file.sources, where)
    caches = {}
    for name, raw in file.caches.items():
        place = f"{where}: caches.{name}"
        caches[name] = convert(raw, _Cache, place)
        _check_cache(caches[name], file, place)
    entries: list[Entry] = []
    for name, raw in file.models.items():
        place = f"{where}: models.{name}"
        entries += _entries(name, convert(raw, _Model, place), file, date, caches, place)
    if not entries:
        raise PriceError(f"{where} prices no model")
    return entries


def check_sources(sources: dict[str, Source], where: str) -> None:
    for name, source in sources.items():
        iso_date(source.date, f"{where}: sources.{name}.date")
        if not source.what.strip():
            raise PriceError(f"{where}: sources.{name}.what is empty: say what the source is")


def check_named(names: list[str], sources: dict[str, Source], where: str) -> None:
    """Every figure has a source, and every source that is named is there."""
    unknown = [name for name in names if name not in sources]
    if unknown or not names:
        named = f"unknown {', '.join(unknown)}" if unknown else "none"
        raise PriceError(f"{where}: its sources are {named}; the file has {', '.join(sources)}")


def _check_cache(cache: _Cache, file: _File, where: str) -> None:
    check_named(cache.sources, file.sources, where)
    known = _Cache.__struct_fields__
    if wrong := [name for name in cache.assumed if name not in known]:
        raise PriceError(f"{where}: assumed fields {', '.join(wrong)} are none of a cache's")
    _rules(cache, None, file, where)


def _entries(
    name: str, model: _Model, file: _File, date: str, caches: dict[str, _Cache], where: str
) -> Iterator[Entry]:
    check_named(model.sources, file.sources, where)
    if not model.caches:
        raise PriceError(f"{where}: caches is empty: name one of {', '.join(caches)}")
    full_name = f"{file.provider}/{name}"
    tiers = tuple(
        Tier(tier.above, _prices(tier, f"{where}.tiers[{number}]"), tier.applies_to)
        for number, tier in enumerate(model.tiers)
    )
    try:
        tariff = Tariff(full_name, _prices(model, where), tiers)
    except PriceError as error:
        raise PriceError(f"{where}: {error}") from None
    _check_tiers(tariff, where)
    for number, cache_name in enumerate(model.caches):
        if cache_name not in caches:
            raise PriceError(f"{where}: cache {cache_name!r} is none of {', '.join(caches)}")
        cache = caches[cache_name]
        rules = _rules(cache, model.min_tokens, file, where)
        caveat = " ".join(filter(None, (model.caveat, cache.caveat)))
        entry_name = f"{full_name}+{cache_name}" if number else full_name
        yield Entry(entry_name, date, tariff, rules, caveat)


def _check_tiers(tariff: Tariff, where: str) -> None:
    """A tier prices everything that the base prices, so that no call fails for its length."""
    names = _PriceFields.__struct_fields__
    for number, tier in enumerate(tariff.tiers):
        for name in names:
            has_base = getattr(tariff.prices, name) is not None
            if has_base and getattr(tier.prices, name) is None:
                raise PriceError(f"{where}.tiers[{number}]: price {name!r} is missing")


def _prices(fields: _PriceFields, where: str) -> Prices:
    prices: dict[str, Decimal] = {}
    for name in _PriceFields.__struct_fields__:
        text = getattr(fields, name)
        if text is not None:
            prices[name] = usd(text, f"{where}.{name}")
    return Prices(**prices)


def _rules(cache: _Cache, min_tokens: int | None, file: _File, where: str) -> CacheRules:
    try:
        return CacheRules(
            kind=cache.kind,
            min_tokens=cache.min_tokens if min_tokens is None else min_tokens,
            ttl_s=cache.ttl_s,
            refreshed=cache.refreshed,
            granularity_tokens=cache.granularity_tokens,
            lookback_positions=cache.lookback_positions,
            max_breakpoints=cache.max_breakpoints,
            write=cache.write,
            reported_input_includes_cached=file.reported_input_includes_cached,
        )
    except PriceError as error:
        raise PriceError(f"{where}: {error}") from None
