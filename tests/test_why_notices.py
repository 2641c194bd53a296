"""Notices: settings that a whole log does not seem to fit."""

import pytest
from why_page_cases import call_of

from duramen.experiments.why.explained import ExplainedCall
from duramen.experiments.why.notices import notices


def told(*calls: ExplainedCall, unit: int = 16, is_default: bool = False) -> list[str]:
    return list(notices(calls, unit, "smollm2", is_default=is_default))


@pytest.mark.parametrize(
    ("delivered", "unit", "is_told"),
    [
        ((64, 128, 192), 16, True),
        ((0, None, 64, 128, 192), 16, True),
        ((64, 128, 192), 64, False),
        ((64, 128, 128), 16, False),  # two different counts are too few
        ((64, 80, 192), 16, False),
    ],
)
def test_a_larger_unit(delivered: tuple[int | None, ...], unit: int, is_told: bool) -> None:
    notes = told(*(call_of("s", i, delivered=d) for i, d in enumerate(delivered)), unit=unit)
    expected = ["every delivered count is a multiple of 64: is --unit 64 meant?"]
    assert notes == (expected if is_told else [])


def test_units_of_a_provider_are_not_the_engines() -> None:
    calls = [call_of("s", i, delivered=128 * i, provider="openai") for i in range(1, 5)]
    assert told(*calls) == []


def test_another_tokenizer() -> None:
    close, far = (call_of("s", 0, reported_tokens=tokens) for tokens in (104, 150))
    assert told(close, close, far) == []
    [note] = told(far, far, close)
    assert note.startswith("2 of 3 calls report another prompt length than tokenizer and template")
    assert "the first 150 tokens and not 100" in note


def test_the_default_where_another_model_is_named() -> None:
    call = call_of("s", 0, model="qwen3-32b")
    assert told(call) == []
    [note] = told(call, call_of("s", 1, model="other"), is_default=True)
    assert "the requests name 'qwen3-32b' and 1 more" in note
    assert "--model DIR" in note
    [note] = told(call_of("s", 0, model="claude", provider="anthropic"), is_default=True)
    assert note.endswith("sizes are approximate")
