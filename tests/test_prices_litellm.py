"""LiteLLM's map of prices as a book: digits as written, our cache rules, odd entries."""

import json
import os
from decimal import Decimal

import pytest

from duramen.experiments.prices.call import Usage
from duramen.experiments.prices.money import Prices, Tier
from duramen.experiments.prices.read import load_book, packaged_book
from duramen.experiments.prices.rules import CacheRules
from duramen.layout.errors import PriceError


def litellm(tmp_path, models):
    path = tmp_path / "model_prices_and_context_window.json"
    path.write_text(models if isinstance(models, str) else json.dumps(models))
    os.utime(path, (1764460800, 1764460800))  # 2025-11-30
    return load_book(path)


PLAIN = {
    "mode": "chat",
    "litellm_provider": "openai",
    "input_cost_per_token": 3e-07,
    "output_cost_per_token": 2.5e-06,
}


def test_litellm_digits_are_taken_as_written(tmp_path):
    book = litellm(
        tmp_path,
        '{"m": {"mode": "chat", "litellm_provider": "mistral", '
        '"input_cost_per_token": 2.9999999999999999e-07, "output_cost_per_token": 1e-06}}',
    )
    entry = book.entry("mistral/m")
    assert entry.tariff.prices.input == Decimal("0.29999999999999999")
    assert entry.date == "2025-11-30"


def test_litellm_all_the_prices(tmp_path):
    model = {
        **PLAIN,
        "litellm_provider": "anthropic",
        "cache_read_input_token_cost": 3e-08,
        "cache_creation_input_token_cost": 3.75e-07,
        "cache_creation_input_token_cost_above_1hr": 6e-07,
        "input_cost_per_token_above_200k_tokens": 6e-07,
        "output_cost_per_token_above_200k_tokens": 5e-06,
        "cache_read_input_token_cost_above_200k_tokens": 6e-08,
        "cache_creation_input_token_cost_above_1hr_above_200k_tokens": 1.2e-06,
        "input_cost_per_token_above_200k_tokens_batches": 1.0,
        "input_cost_per_token_flex": "free",
    }
    entry = litellm(tmp_path, {"claude-x": model}).entry("anthropic/claude-x")
    base = [Decimal(text) for text in ("0.3", "2.5", "0.03", "0.375")]
    assert entry.tariff.prices == Prices(*base, None, Decimal("0.6"))
    high = Prices(Decimal("0.6"), Decimal(5), Decimal("0.06"), write_1h=Decimal("1.2"))
    assert entry.tariff.tiers == (Tier(200_000, high, "request"),)
    assert entry.rules == packaged_book().entry("anthropic/claude-fable-5-1").rules
    assert entry.caveat == "Cache rules as for anthropic/claude-fable-5-1."
    with pytest.raises(PriceError, match="no price 'write_5m' above 200000 tokens"):
        entry.cost(Usage(write_5m=200_001))


@pytest.mark.parametrize("entry", packaged_book().entries, ids=lambda entry: entry.name)
def test_litellm_takes_the_rules_of_our_own_entry(tmp_path, entry):
    provider, name = entry.name.split("+")[0].split("/")
    litellm_name = {"google": "gemini"}.get(provider, provider)
    model = {**PLAIN, "litellm_provider": litellm_name, "cache_read_input_token_cost": 1e-08}
    found = litellm(tmp_path, {f"{litellm_name}/{name}": model}).entry(f"{provider}/{name}")
    assert found.rules == packaged_book().entry(f"{provider}/{name}").rules


def test_litellm_openai_with_writes_takes_the_newer_rules(tmp_path):
    cached = {**PLAIN, "cache_read_input_token_cost": 3e-08}
    book = litellm(
        tmp_path, {"old": cached, "new": {**cached, "cache_creation_input_token_cost": 4e-07}}
    )
    assert book.entry("openai/old").rules.kind == "automatic"
    assert book.entry("openai/new").rules.write == "write_30m"
    assert book.entry("openai/new").tariff.prices.write_30m == Decimal("0.4")


def test_litellm_unknown_rules_are_said_and_priced_without_caching(tmp_path):
    nobody = {**PLAIN, "litellm_provider": "nobody", "cache_read_input_token_cost": 3e-08}
    nameless = {key: value for key, value in PLAIN.items() if key != "litellm_provider"}
    book = litellm(tmp_path, {"m": nobody, "n": nameless, "o": PLAIN})
    assert book.entry("nobody/m").rules == CacheRules("none")
    assert (
        book.entry("nobody/m").caveat == "Priced without caching: no rules are known for 'nobody'."
    )
    assert (
        book.entry("unknown/n").caveat
        == "Priced without caching: no rules are known for 'unknown'."
    )
    assert (
        book.entry("openai/o").caveat
        == "Priced without caching: no price of a cached token is given."
    )


def test_litellm_leaves_out_what_is_no_text_model(tmp_path):
    book = litellm(
        tmp_path,
        {
            "sample_spec": {"mode": "one of: chat", "input_cost_per_token": "a string"},
            "image": {**PLAIN, "mode": "image_generation"},
            "modeless": {**PLAIN, "mode": None},
            "no input": {**PLAIN, "input_cost_per_token": None},
            "no output": {"mode": "chat", "input_cost_per_token": 1e-06},
            "kept": {**PLAIN, "cache_read_input_token_cost": None, "input_cost_per_token": "3e-07"},
        },
    )
    assert book.names() == ("openai/kept",)
    assert book.entry("openai/kept").tariff.prices.input == Decimal("0.3")


def test_litellm_says_where_a_model_stands_twice(tmp_path):
    dearer = {**PLAIN, "input_cost_per_token": 9e-07}
    book = litellm(tmp_path, {"m": PLAIN, "openai/m": dearer})
    assert book.entry("openai/m").tariff.prices.input == Decimal("0.3")
    assert "Also listed as openai/m, at other prices." in book.entry("openai/m").caveat


@pytest.mark.parametrize(
    ("models", "message"),
    [
        (
            {"m": {**PLAIN, "input_cost_per_token": "cheap"}},
            r"m\.input_cost_per_token: 'cheap' is no",
        ),
        (
            {"m": {**PLAIN, "input_cost_per_token": -1e-06}},
            r"m\.input_cost_per_token: '-.*' is no price",
        ),
        ({"m": {**PLAIN, "input_cost_per_token": True}}, r"m\.input_cost_per_token is True, not a"),
        ({"m": {**PLAIN, "input_cost_per_token": [1]}}, r"m\.input_cost_per_token is \[1\], not a"),
        ({"m": {**PLAIN, "input_cost_per_token": float("nan")}}, r"m\.input_cost_per_token is nan"),
        (
            {"m": {**PLAIN, "input_cost_per_token_above_9k_tokens": 1e-06}},
            "m: above 9k tokens it has",
        ),
        ({"m": []}, "m is list, not a mapping"),
        ({}, "prices no text model"),
        ("[]", "holds no mapping"),
        ('{"a": ', "no JSON that can be read"),
        ('{"a": {}, "a": {}}', "key 'a' stands twice"),
        ('{"a": 1e9999999999999999999}', "no JSON that can be read"),
    ],
)
def test_litellm_broken(tmp_path, models, message):
    with pytest.raises(PriceError, match=message) as raised:
        litellm(tmp_path, models)
    assert "model_prices_and_context_window.json" in str(raised.value)
