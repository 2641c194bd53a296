"""Volatile values as agents in the field write them, told from what a hand edits."""

import pytest
import volatile_pairs as listed

from duramen.layout.diagnose.numbers import number, roman
from duramen.layout.diagnose.place import ROOT, Place
from duramen.layout.diagnose.texts import text_change

FIRST_USER = Place(is_first_user=True)
AROUND = [("", ""), ("You are a careful agent.\n", "\nBe brief.")]
VOLATILE = [
    (cause, *pair)
    for cause, pairs in (
        ("clock", listed.CLOCKS),
        ("uuid-or-hash", listed.IDS),
        ("counter", listed.COUNTERS),
    )
    for pair in pairs
]


def cause(old: str, new: str, place: Place) -> str:
    found = text_change(old, new, place)
    assert found is not None
    return found.cause


@pytest.mark.parametrize(("expected", "line", "old", "new"), VOLATILE)
@pytest.mark.parametrize(("before", "behind"), AROUND)
def test_a_value_in_a_root(expected, line, old, new, before, behind):
    texts = [before + line.replace("{}", value) + behind for value in (old, new)]
    if (line, old, new) in listed.NOT_TOLD:
        expected = "history-edited"
    assert cause(*texts, ROOT) == expected


@pytest.mark.parametrize(("expected", "line", "old", "new"), VOLATILE)
def test_a_value_in_a_first_user_message_is_given_no_other_cause(expected, line, old, new):
    """There, where people write too, an edit may be said of it."""
    texts = [f"{line.replace('{}', value)}\nMy oven is broken. Help!" for value in (old, new)]
    assert cause(*texts, FIRST_USER) in (expected, "history-edited")


@pytest.mark.parametrize(("old", "new"), listed.EDITS_IN_MESSAGES)
@pytest.mark.parametrize("place", [Place(), FIRST_USER, Place(is_tool_output=True)])
def test_an_edit_in_a_message(old, new, place):
    assert cause(old, new, place) == "history-edited"


@pytest.mark.parametrize(("old", "new"), listed.EDITS_IN_LINES)
def test_an_edit_in_a_line_of_a_first_user_message(old, new):
    for before, behind in (("My oven is broken.\n", ""), ("", "\nMy oven is broken.")):
        assert cause(before + old + behind, before + new + behind, FIRST_USER) == "history-edited"


@pytest.mark.parametrize(("old", "new"), listed.EDITS_IN_ROOT)
def test_an_edit_in_a_root(old, new):
    assert cause(old, new, ROOT) == "history-edited"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12", 12),
        ("3rd", 3),
        ("Twenty-one", 21),
        ("eleventh", 11),
        ("drei", 3),
        ("deux", 2),
        ("三", 3),
        ("二十一", 21),
        ("no", 0),
        ("a dozen", 12),
        ("twenty-twenty", None),
        ("many", None),
        ("", None),
    ],
)
def test_numbers(text, expected):
    assert number(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("IV", 4),
        ("ix", 9),
        ("XLII", 42),
        ("CCCXCIX", 399),
        ("iV", None),
        ("iiii", None),
        ("", None),
    ],
)
def test_roman_numerals(text, expected):
    assert roman(text) == expected
