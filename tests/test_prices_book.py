"""The packaged books of prices, and our own form of price file, read strictly."""

import json
from dataclasses import replace
from decimal import Decimal

import pytest

from duramen.experiments.prices.book import Book, Entry
from duramen.experiments.prices.book_file import parse_book
from duramen.experiments.prices.call import Usage
from duramen.experiments.prices.money import Prices, Tariff, Tier
from duramen.experiments.prices.read import PROVIDERS, load_book, packaged_book
from duramen.experiments.prices.rules import CacheRules
from duramen.layout.errors import DuramenError, PriceError


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_packaged_books_hold_together(provider):
    book = packaged_book([provider])
    assert book.entries
    for entry in book:
        assert entry.name.startswith(f"{provider}/")
        assert entry.key == f"{entry.name}@{entry.date}"
        prices = [entry.tariff.prices, *(tier.prices for tier in entry.tariff.tiers)]
        for level in prices:
            assert level.cached_read is not None
            assert level.cached_read < level.input < level.output
            if entry.rules.write:
                assert level.input < getattr(level, entry.rules.write)


def test_they_agree_with_other_peoples_prices(shared_data):
    """TraceLab's, of June 2026, on every model that both have."""
    path = shared_data / "tracelab" / "artifacts_utils_pricing.json"
    theirs = json.loads(path.read_text(), parse_float=Decimal, parse_int=Decimal)["exact"]
    book, num_both = packaged_book(), 0
    for name, prices in theirs.items():
        provider, model = name.split(":")
        ours = f"{ {'claude': 'anthropic', 'codex': 'openai'}[provider] }/{model}"
        if ours not in book.names():
            continue
        num_both += 1
        assert book.entry(ours).tariff.prices == Prices(
            prices["inputPerM"],
            prices["outputPerM"],
            prices["cachedInputPerM"],
            prices.get("cacheWrite5mInputPerM"),
            None,
            prices["inputPerM"] * 2 if provider == "claude" else None,
        )
    assert num_both == 5


def test_writes_cost_what_the_guides_say():
    for entry in packaged_book(["anthropic", "openai"]):
        prices = entry.tariff.prices
        if prices.write_5m is not None:
            assert (prices.write_5m, prices.write_1h) == (prices.input * 5 / 4, prices.input * 2)
        if prices.write_30m is not None:
            assert prices.write_30m == prices.input * 5 / 4


def test_a_model_in_two_caches_is_two_entries():
    book = packaged_book(["anthropic"])
    short, hour = (book.entry(f"anthropic/claude-opus-5-5{more}") for more in ("", "+1h"))
    assert short.tariff == hour.tariff
    assert (short.rules.ttl_s, short.rules.write) == (300.0, "write_5m")
    assert (hour.rules.ttl_s, hour.rules.write) == (3600.0, "write_1h")


def test_entries_by_name_and_by_key():
    book = packaged_book()
    entry = book.entry("openai/gpt-6.2-sol")
    assert book.entry(entry.key) is entry
    assert entry.cost(Usage(uncached=1_000_000)) == 4  # above 272,000 tokens
    assert entry.cost(Usage(uncached=100_000)) == Decimal("0.2")
    assert list(book.names()) == sorted(entry.name for entry in book)


def test_a_model_that_is_not_there():
    with pytest.raises(
        PriceError, match=r"no price for 'openai/gpt-6\.2-sole'.*openai/gpt-6\.2-sol"
    ):
        packaged_book().entry("openai/gpt-6.2-sole")
    with pytest.raises(PriceError, match=r"no price for 'x' among 0$"):
        Book(()).entry("x")
    with pytest.raises(PriceError, match="no prices for provider 'nobody'"):
        packaged_book(["nobody"])


def test_a_name_is_priced_once():
    tariff = Tariff("a/b", Prices(Decimal(1), Decimal(2)))
    entry = Entry("a/b", "2026-11-30", tariff, CacheRules("none"))
    later = replace(entry, date="2026-12-01")
    with pytest.raises(
        PriceError, match="a/b is priced twice: as a/b@2026-11-30 and as a/b@2026-12"
    ):
        Book((entry, later))


# Our own form, broken

GOOD = """
provider: acme
date: 2026-11-30
reported_input_includes_cached: true
sources: {page: {what: Acme's price page, date: 2026-11-29}}
caches:
  plain: {kind: automatic, min_tokens: 64, ttl_s: 300, granularity_tokens: 64, sources: [page]}
models:
  one: {input: "1", cached_read: "0.1", output: "2.50", caches: [plain], sources: [page]}
"""


def test_our_own_form():
    (entry,) = parse_book(GOOD, "acme.yaml")
    assert entry.key == "acme/one@2026-11-30"
    assert entry.tariff.prices == Prices(Decimal(1), Decimal("2.5"), Decimal("0.1"))
    assert entry.rules == CacheRules("automatic", 64, 300.0, granularity_tokens=64)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('input: "1"', "input: 1.0", r"models\.one: Expected `str`, got `float` - at `\$\.input`"),
        ('input: "1"', "input: 1", r"models\.one: Expected `str`, got `int` - at `\$\.input`"),
        ('input: "1"', 'input: "-1"', r"models\.one\.input: '-1' is no price"),
        ('input: "1"', 'input: "-0"', r"models\.one\.input: '-0' is no price"),
        ('input: "1"', 'input: "NaN"', r"models\.one\.input: 'NaN' is no price"),
        ('input: "1"', 'input: "Infinity"', r"models\.one\.input: 'Infinity' is no price"),
        ('input: "1"', 'input: "1,5"', r"models\.one\.input: '1,5' is no price"),
        ('input: "1"', 'input: "1e99"', r"models\.one\.input: '1e99' is no price"),
        ('input: "1"', 'input: "1e-99"', r"models\.one\.input: '1e-99' has more than 40 digits"),
        ('input: "1"', f'input: "0.{"3" * 99}"', r"models\.one\.input: .* more than 40 digits"),
        ('input: "1", ', "", r"models\.one: .*missing required field `input`"),
        ('output: "2.50"', "output: null", r"models\.one: Expected `str`, got `null`"),
        ("cached_read", "cached_raed", r"models\.one: .*unknown field `cached_raed`"),
        ("caches: [plain]", "caches: [fancy]", r"models\.one: cache 'fancy' is none of plain"),
        ("caches: [plain]", "caches: []", r"models\.one: caches is empty"),
        ("caches: [plain], sources: [page]", "caches: [plain], sources: []", "sources are none"),
        ("64, sources: [page]", "64, sources: [rumour]", r"caches\.plain: .*unknown rumour"),
        ("kind: automatic", "kind: magic", r"caches\.plain: Invalid enum value 'magic'"),
        (
            "granularity_tokens: 64",
            "granularity_tokens: 50",
            r"caches\.plain: granularity_tokens 50",
        ),
        ("ttl_s: 300", "ttl_s: .nan", r"caches\.plain: ttl_s nan"),
        ("ttl_s: 300", "ttl_s: 300, assumed: [luck]", r"caches\.plain: assumed fields luck"),
        ("date: 2026-11-30", "date: 2026-13-30", r"acme\.yaml: date: '2026-13-30' is no date"),
        ("date: 2026-11-29", "date: yesterday", r"sources\.page\.date: 'yesterday' is no date"),
        ("what: Acme's price page", "what: ' '", r"sources\.page\.what is empty"),
        ("provider: acme", "provider: acme\nprovider: other", "key 'provider' stands twice"),
        ("  one:", '  one: {}\n  "one":', "key 'one' stands twice"),
        ("provider: acme", "", "missing required field `provider`"),
        ("sources: [page]}\n", "sources: [page]\n", "no YAML that can be read"),
    ],
)
def test_our_own_form_broken(old, new, message):
    assert old in GOOD
    with pytest.raises(DuramenError, match=message) as raised:
        parse_book(GOOD.replace(old, new), "acme.yaml")
    assert str(raised.value).startswith("acme.yaml")
    assert "\n" not in str(raised.value)


def test_tiers_of_our_own_form():
    text = GOOD.rstrip().removesuffix("}") + ", tiers: [{above: 10, applies_to: excess, %s}]}"
    (entry,) = parse_book(text % 'input: "9", cached_read: "1", output: "8"', "acme.yaml")
    assert entry.tariff.tiers == (Tier(10, Prices(Decimal(9), Decimal(8), Decimal(1)), "excess"),)
    with pytest.raises(
        PriceError, match=r"models\.one\.tiers\[0\]: price 'cached_read' is missing"
    ):
        parse_book(text % 'input: "9", output: "8"', "acme.yaml")
    with pytest.raises(PriceError, match=r"models\.one: acme/one: tiers must ascend"):
        parse_book(
            text.replace("above: 10", "above: 0") % 'input: "9", cached_read: "1", output: "8"',
            "acme.yaml",
        )


@pytest.mark.parametrize("text", ["", "[]", "3", "a: [", "\t- x", "&a [*a]", "null", "x" * 10])
def test_a_file_that_is_no_book(tmp_path, text):
    path = tmp_path / "prices.yaml"
    path.write_text(text)
    with pytest.raises(DuramenError, match=r"prices\.yaml"):
        load_book(path)


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(DuramenError, match="cannot be read: No such file"):
        load_book(tmp_path / "none.yaml")
    with pytest.raises(DuramenError, match="cannot be read: Is a directory"):
        load_book(tmp_path)
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DuramenError, match=r"bytes\.yaml is no UTF-8 text"):
        load_book(tmp_path / "bytes.yaml")


def test_a_book_of_the_users(tmp_path):
    path = tmp_path / "acme.yaml"
    path.write_text("\ufeff" + GOOD)
    assert load_book(path).names() == ("acme/one",)
