"""Volatile values as agents in the field write them, told from what a hand edits."""

import json
from pathlib import Path

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


@pytest.mark.parametrize("place", [ROOT, FIRST_USER])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Call the office at 555-0123.", "Call the office at 555-0124."),
        ("Support calls: +49 30 1234567", "Support calls: +49 30 7654321"),
        ("Call +49301234567 for help.", "Call +49301234568 for help."),
        ("Phone number: 030 12345", "Phone number: 030 12399"),
        ("Customer number 48213", "Customer number 90177"),
        ("Ticket number: 3", "Ticket number: 4"),
        ("Kundennummer: 48213", "Kundennummer: 90177"),
        ("Entry number 48213", "Entry number 90177"),
        ("The score is 3:2.", "The score is 3:4."),
        ("The total is 3:2", "The total is 4:2"),
        ("The final score was 3 : 2.", "The final score was 3 : 4."),
        ("Score: 3-2", "Score: 3-4"),
        ("In an emergency call 911.", "In an emergency call 112."),
        ("The score is 21:15.", "The score is 21:17."),
        ("We open at 9:00.", "We open at 10:00."),
        ("We open at 9:00 today.", "We open at 10:00 today."),
        ("The cafe closes at 5 pm.", "The cafe closes at 6 pm."),
        ("The show starts at 9:00.", "The show starts at 10:00."),
        ("Wir öffnen um 9:00 Uhr.", "Wir öffnen um 10:00 Uhr."),
    ],
)
def test_a_number_that_names_something_and_an_hour_that_was_agreed(old, new, place):
    assert cause(old, new, place) == "history-edited"


@pytest.mark.parametrize(
    ("expected", "old", "new"),
    [
        ("counter", "Request number 41", "Request number 42"),
        ("counter", "Usage: 1 234 567 tokens", "Usage: 1 834 560 tokens"),
        ("counter", "Tokens used: 100", "Tokens used: 9000"),
        ("counter", "turn 3: read", "turn 4: read"),
        ("counter", "step 3 - 12 of 40 files", "step 4 - 12 of 40 files"),
        ("counter", "Ticket 3 of 10", "Ticket 4 of 10"),
        ("clock", "The shop is open. It is 9:00 now.", "The shop is open. It is 10:00 now."),
        ("clock", "Session started at 9:00:01", "Session started at 9:00:07"),
    ],
)
def test_what_still_counts_beside_them(expected, old, new):
    assert cause(old, new, ROOT) == expected


# of hand-written lines: values are open-ended, and some are not told yet
MIN_TOLD = {"clock": 0.95, "counter": 0.98, "uuid-or-hash": 0.98, "history-edited": 0.98}
PLACES = {
    "system": ROOT,
    "tool description": ROOT,
    "first user": FIRST_USER,
}


@pytest.mark.parametrize(("expected", "least"), list(MIN_TOLD.items()))
def test_lines_of_many_kinds_of_prompts(expected, least):
    """[cause, place, line, before, after], by authors who had not seen the rules."""
    path = Path(__file__).with_name("volatile_lines.jsonl")
    rows = [json.loads(row) for row in path.read_text("utf-8").splitlines()]
    rows = [row for row in rows if row[0] == expected]
    missed = []
    for _, place, line, *values in rows:
        texts = [f"Be careful.\n{line.replace('{}', value)}\nBe brief.\n" for value in values]
        if (told := cause(*texts, PLACES[place])) != expected:
            missed.append((told, place, line, *values))
    assert len(rows) > 150
    assert len(missed) <= (1 - least) * len(rows), missed
