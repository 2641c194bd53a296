"""Providers' rules on two calls: which of them forbids a hit. Figures are the price book's."""

from typing import Any

import pytest

from duramen.experiments.prices.read import packaged_book
from duramen.experiments.trajectory import Call, Message, Sending
from duramen.experiments.why.provider import num_blocks, provider_of, provider_reason

BOOK = packaged_book()
ANTHROPIC = BOOK.entry("anthropic/claude-sonnet-5-5").rules
OPENAI = BOOK.entry("openai/gpt-5.4-mini").rules
CLAUDE = Sending(provider="anthropic", model="claude-sonnet-5-5")


def messages(number: int) -> tuple[Message, ...]:
    return tuple({"role": "user", "content": f"part {i}"} for i in range(number))


def call(
    number: int, marks: tuple[int, ...] | None = None, time_s: float = 0.0, **more: Any
) -> Call:
    sending = Sending(provider="anthropic", model="claude-sonnet-5-5", marks=marks, **more)
    return Call(messages(number), None, time_s, sending=sending)


def reason(before: Call, after: Call, num_known: int = 10_000) -> str | None:
    provider = provider_of(after.sending, BOOK)
    assert provider is not None
    found = provider_reason(provider, before, after, num_known)
    return None if found is None else found.cause


def test_the_book_decides_whose_rules_hold() -> None:
    found = provider_of(CLAUDE, BOOK)
    assert found is not None
    assert (found.rules, found.is_sure) == ((ANTHROPIC,), True)
    dated = provider_of(Sending(provider="openai", model="gpt-5.4-mini-2026-03-01"), BOOK)
    assert dated is not None
    assert (dated.rules, dated.is_sure) == ((OPENAI,), True)
    unknown = provider_of(Sending(provider="anthropic", model="claude-next"), BOOK)
    assert unknown is not None
    assert not unknown.is_sure
    assert ANTHROPIC in unknown.rules
    assert provider_of(Sending(), BOOK) is None
    assert provider_of(Sending(provider="vllm"), BOOK) is None


def test_below_the_minimum() -> None:
    least = ANTHROPIC.min_tokens
    pair = call(3, (2,)), call(5, (4,))
    assert reason(*pair, least - 1) == "below-minimum"
    assert reason(*pair, least) is None


@pytest.mark.parametrize("asked_s", [None, 3600.0])
def test_expired(asked_s: float | None) -> None:
    life_s = asked_s or ANTHROPIC.ttl_s
    before = call(3, (2,), ttl_s=asked_s)
    assert reason(before, call(5, (4,), life_s)) is None
    assert reason(before, call(5, (4,), life_s + 1)) == "ttl-expired"


def test_marks() -> None:
    reach = ANTHROPIC.lookback_positions
    assert reach is not None
    before = call(3, (0, 2))
    assert reason(before, call(3 + reach - 1, (reach + 1,))) is None
    assert reason(before, call(3 + reach, (reach + 2,))) == "lookback-exceeded"
    # one more breakpoint within reach of the earlier one mends it
    assert reason(before, call(3 + reach, (4, reach + 2))) is None
    assert reason(before, call(5, (0,))) == "breakpoint-moved"
    assert reason(before, call(5, ())) == "breakpoint-moved"
    assert reason(call(3, ()), call(5, (4,))) == "breakpoint-moved"
    assert reason(call(3), call(5, (4,))) is None  # no marks on record: nothing is claimed


def test_blocks_of_a_message() -> None:
    calls = [{"function": {"name": "read", "arguments": "{}"}}] * 3
    assert num_blocks({"role": "user", "content": "text"}) == 1
    assert num_blocks({"role": "user", "content": [{"type": "text", "text": "a"}] * 2}) == 2
    assert num_blocks({"role": "assistant", "content": "I read", "tool_calls": calls}) == 4
    assert num_blocks({"role": "assistant", "content": None, "tool_calls": calls}) == 3
    assert num_blocks({"role": "assistant", "content": "x", "reasoning_content": "hm"}) == 2
    assert num_blocks({"role": "tool", "content": ""}) == 1


@pytest.mark.parametrize(
    ("provider", "model", "expected"),
    [
        ("anthropic", "us.anthropic.claude-sonnet-4-6-v1:0", "known"),
        ("anthropic", "vertex_ai/claude-sonnet-5-5@20261001", "known"),
        ("anthropic", "claude-sonnet-9", "fallback"),
        ("anthropic", None, "fallback"),
        ("anthropic", "qwen3-32b", None),
        ("openai", "o4-mini", "fallback"),
        ("openai", "openai/gpt-oss-120b", None),
        ("openai", "hosted_vllm/Qwen/Qwen3-32B", None),
    ],
)
def test_rules_follow_the_model(provider: str, model: str | None, expected: str | None) -> None:
    found = provider_of(Sending(provider=provider, model=model), BOOK)
    kind = None if found is None else "known" if found.is_sure else "fallback"
    assert kind == expected


def test_a_fallback_says_that_it_is_one() -> None:
    provider = provider_of(Sending(provider="anthropic", model="claude-next"), BOOK)
    assert provider is not None
    found = provider_reason(provider, call(1), call(2), 10)
    assert found is not None
    assert "'claude-next' is not in the price book" in found.evidence
