"""The table of `duramen why`: what counts as a break, what is folded, and sums with gaps."""

import io
from collections.abc import Sequence

import pytest
from rich.console import Console
from why_page_cases import FACTS, break_of, call_of

from duramen.cli.why_table import as_table
from duramen.experiments.why.explained import ExplainedCall
from duramen.layout.diagnose.causes import Cause


def said(calls: Sequence[ExplainedCall], **facts: object) -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(as_table(calls, {**FACTS, **facts}))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_sum_of_what_is_known_says_of_how_many_calls() -> None:
    calls = [call_of("s", i, delivered=None if i == 2 else 32) for i in range(16)]
    text = said(calls)
    assert "480, of 15 of 16 calls" in text
    assert "1,600 │" in text  # prompt tokens, known of all


@pytest.mark.parametrize("cause", ["not-reported", "shorter-than-unit", "last-token"])
def test_what_broke_nothing_is_a_note(cause: Cause) -> None:
    broken = break_of(cause, lost_tokens=16 * (cause == "last-token"))
    text = said([call_of("s", i, broken=broken) for i in range(3)])
    assert "0 breaks" in text
    assert text.count(f"note: {cause}, 3 calls, first s #0") == 1
    assert "lost tokens by cause" not in text
    assert ("(48 tokens)" in text) is (cause == "last-token")


def test_equal_breaks_in_a_row_are_one_line() -> None:
    clock, other = break_of("clock", dollars=0.5), break_of("counter", mend="move that")
    calls = [call_of("s", i, broken=clock) for i in range(1, 5)]
    calls += [call_of("s", 5, broken=other), call_of("s", 6, broken=clock)]
    text = said(calls)
    assert "6 breaks" in text
    assert text.count("s #1 to #4, 4 calls") == 2  # its row and its details
    assert text.count("seen first: ") == 1
    assert "cost: $2.000000" in text
    assert text.count("s #6") == 2


def test_ids_are_told_where_text_cannot_be() -> None:
    broken = break_of("unknown", layer="token", token=50, ids=(150, 7), around=("\ufffd", "x"))
    text = said([call_of("A and B", 1, broken=broken)])
    assert "token 50: id 150 became id 7" in text
    assert "was:" not in text


def test_forms_that_look_the_same_are_spelled_out() -> None:
    around = ("caf\u00e9 au lait", "cafe\u0301 au lait")
    text = said([call_of("s", 1, broken=break_of("unicode-normalisation", around=around))])
    assert "was:  'caf\\xe9 au lait'" in text
    assert "is:   'cafe\\u0301 au lait'" in text
    text = said([call_of("s", 1, broken=break_of("history-edited", around=around))])
    assert "was:  'caf\u00e9 au lait'" in text
