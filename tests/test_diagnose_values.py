"""Which kind of value changed between two versions of a text: two texts in, one cause out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.layout.diagnose.place import ROOT, Place
from duramen.layout.diagnose.texts import text_change

FIRST_USER = Place(is_first_user=True)
DEEP = Place()
TOOL = Place(is_tool_output=True)


def cause(old: str, new: str, place: Place = ROOT) -> str | None:
    found = text_change(old, new, place)
    return found and found.cause


def both(template: str, old: str, new: str, place: Place = ROOT) -> str | None:
    return cause(template.replace("{}", old), template.replace("{}", new), place)


@pytest.mark.parametrize(
    ("template", "old", "new"),
    [
        ("The time is {}. Be brief.", "2026-12-01T00:53:12Z", "2026-12-01T00:53:15Z"),
        ("You are helpful.\nCurrent date: {}\nBe brief.", "2026-12-01", "2026-12-02"),
        ("Today is {}.", "Tuesday", "Wednesday"),
        ("Today is {}.", "Tuesday, December 1, 2026", "Wednesday, December 2, 2026"),
        ("<env>\nDate: {}\n</env>", "Tue Dec  1 00:56:05 UTC 2026", "Tue Dec  1 01:02:00 UTC 2026"),
        ("Now {} UTC", "23:59", "00:03"),
        ("timestamp={}", "1796083200", "1796083290"),
        ("ts: {}", "1796083200123", "1796083200950"),
        ("[{}] system ready", "1796083200.513", "1796083221.020"),
        ("Heute ist der {}.", "01.12.2026", "02.12.2026"),
        ("Aktuelle Uhrzeit: {}", "14:05 Uhr", "14:06 Uhr"),
        ("Nous sommes le {}.", "mardi 1 décembre 2026", "mercredi 2 décembre 2026"),
        ("Fecha actual: {}", "1 de diciembre de 2026", "2 de diciembre de 2026"),
        ("今天是{}。", "2026年12月1日", "2026年12月2日"),
        ("現在の時刻：{}", "午後3時05分", "午後3時06分"),
        ("Сейчас {}", "1 декабря 2026, 10:05", "1 декабря 2026, 10:07"),
        ("The repository was indexed {}.", "3 minutes ago", "8 minutes ago"),
        ("The repository was indexed {}.", "59 minutes ago", "1 hour ago"),
        ("It is {} now.", "half past nine", "a quarter to ten"),
        ("Generated at {}", "20261201T005605Z", "20261201T005711Z"),
        ("Local time: {}", "9:41 PM", "9:42 PM"),
        ("week {} of our calendar, now", "2026-W48", "2026-W49"),
        ('{"now": "{}", "user": "ada"}', "2026-12-01 10:00", "2026-12-01 10:05"),
        ("<context>\n  <clock>{}</clock>\n</context>", "08:15", "08:17"),
        ("(it's {} where the user is)", "7pm", "8pm"),
        ("The current year is {}.", "2026", "2027"),
        ("Good {}! You are a helper.", "morning", "afternoon"),
        ("Last sync: {}.", "just now", "4 minutes ago"),
        ("Last sync: {}.", "12 seconds ago", "2 minutes ago"),
        ("Server uptime: {}", "2 days, 4:05", "2 days, 4:09"),
        ("Data di oggi: {}", "martedì 1 dicembre 2026", "mercoledì 2 dicembre 2026"),
        ("오늘은 {}입니다.", "2026년 12월 1일", "2026년 12월 2일"),
        ("Current week: {}", "49", "50"),
        ("Сегодня {}", "вторник", "среда"),
        ("currentTime: {}", "10:05", "10:09"),
        ("The user's local date is {}.", "Tue Dec 01 2026", "Wed Dec 02 2026"),
        ("Le {} à Paris", "01/12/2026", "02/12/2026"),
        ("We are in {}.", "December 2026", "January 2027"),
        ("The date today: {}", "01/12/26", "02/12/26"),
        ("time.time() = {}", "1796083200.123", "1796083260.456"),
    ],
)
def test_a_clock(template, old, new):
    assert both(template, old, new) == "clock"


@pytest.mark.parametrize(
    ("template", "old", "new"),
    [
        ("call {}", "550e8400-e29b-41d4-a716-446655440000", "7c9e6679-7425-40de-944b-e07fc1f90ae7"),
        ("request {}", "9f86d081884c7d659a2feaa0c55ad015", "60303ae22b998861bce3b28f33eec1be"),
        ("x-request-id: {}", "req_8fa2k3", "req_1zz9q0"),
        ("trace {} end", "01ARZ3NDEKTSV4RRFFQ69G5FAV", "01ARZ3NDEM4Q8K2P0XWY7R5TBC"),
        ("id={}", "V1StGXR8_Z5jdHi6B-myT", "kP9aQ2LmX_7cVbN3e-RtY"),
        ("billing: cc_version=2.1.3; cch={};", "00a1f", "9be42"),
        ("HEAD {} on main", "a1b2c3d", "e4f5a6b"),
        ("nonce: {}", "918237", "440120"),
        ("cache buster {}", "dGhpcyBpcyBh", "c29tZSBvdGhl"),
        ("seed={}", "83112", "10724"),
        ('{"session_id": "{}", "lang": "en"}', "abc123", "xyz789"),
        ("# {}\nYou are a helper", "f3a9c2", "0be771"),
        ("at /srv/agents/{}/repo", "wt-a83jd02k", "wt-0dk3ms9q"),
        ("https://cdn.example/s.js?v={}", "83ab1c", "c01f99"),
        ("cache-bust:{}", "0.8213901273", "0.1192837465"),
        ("instance i-{} (eu)", "0abcd1234ef567890", "0fedc9876ba543210"),
        ("correlationId: {}", "7781923", "1120934"),
        ("machine: {}", "ip-10-0-3-17", "ip-10-0-9-201"),
        ("cwd /tmp/run-{}/work", "8f3ka92m", "p0q7zz1x"),
        ("chatcmpl-{} is the id", "B9MBs8CjcvOU2jLn4n570S5qMJKcT", "A1xQ8kPzTnM0vRw3LbY6sDfGhJ2cE"),
    ],
)
def test_an_id(template, old, new):
    assert both(template, old, new) == "uuid-or-hash"


@pytest.mark.parametrize(
    ("template", "old", "new"),
    [
        ("This is step {} of 40.", "3", "4"),
        ("Tokens left: {}", "12,345", "11,002"),
        ("Budget used so far: {}", "$0.42", "$0.57"),
        ("{} complete", "41%", "47%"),
        ("Turn {}", "9", "10"),
        ("You have {} attempts remaining.", "5", "4"),
        ("Schritt {} von 20", "7", "8"),
        ("第{}步", "3", "4"),
        ('{"iteration": {}, "max": 50}', "11", "12"),
        ("Calls made: {}/100", "17", "18"),
    ],
)
def test_a_counter(template, old, new):
    assert both(template, old, new) == "counter"
    assert both(template, old, new, FIRST_USER) == "counter"


@pytest.mark.parametrize(
    ("template", "old", "new"),
    [
        ("You've taken {} actions.", "four", "five"),
        ("This is your {} attempt.", "2nd", "3rd"),
        ("Progress: [{}]", "###.......", "####......"),
        ("epoch {}/10", "2", "3"),
        ("turns_taken: {}\nmax: 30", "9", "10"),
        ("Il reste {} essais.", "4", "3"),
    ],
)
def test_a_counter_in_a_root(template, old, new):
    assert both(template, old, new) == "counter"


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("The deadline is 2024-03-01.", "The deadline is 2024-04-15.", ROOT),
        ("Book a flight on May 15, 2024.", "Book a flight on May 20, 2024.", FIRST_USER),
        ("I leave at 10:00 on Monday.", "I leave at 11:00 on Monday.", DEEP),
        ("Due 2024-03-01: tell them.", "It was moved to 2024-04-15: tell them.", ROOT),
        ("I need 3 tickets.", "I need 4 tickets.", DEEP),
        ("Answer in 3 sentences.", "Answer in 5 sentences.", ROOT),
        ("The cost is 120 dollars.", "The cost is 95 dollars.", DEEP),
        ("Use python3.11 here.", "Use python3.12 here.", ROOT),
        ("Be brief and kind.", "Be brief and honest.", ROOT),
        ("- apples\n- pears\n- plums", "- pears\n- apples\n- plums", ROOT),
        ("Open utils_v2.py first.", "Open utils_v3.py first.", DEEP),
        ("He said “no”.", 'He said "no".', DEEP),
        ("Red, green and blue.", "Red, blue and green.", ROOT),
        ("Version 1.2.3", "Version 1.2.4", ROOT),
        ("Use at most 200 tokens.", "Use at most 400 tokens.", ROOT),
        ("You may use 3 retries.", "You may use 5 retries.", ROOT),
        ("Fix issue #123 in the repo.", "Fix issue #124 in the repo.", FIRST_USER),
        ("my order W2378156 is late", "my order W9911202 is late", DEEP),
        ("modified: 2026-01-05  main.py", "modified: 2026-01-15  main.py", TOOL),
        ("Open from 9:00 to 17:00.", "Open from 9:00 to 18:00.", ROOT),
        ("Refunds within 14 days.", "Refunds within 30 days.", ROOT),
        ("The train leaves at 10:05.", "The train leaves at 11:20.", FIRST_USER),
        ("Temperature 0.2", "Temperature 0.7", ROOT),
        ("The limit is 10 MB.", "The limit is 20 MB.", ROOT),
        ("a member since 2019", "a member since 2020", FIRST_USER),
    ],
)
def test_a_hand_that_edits(old, new, place):
    assert cause(old, new, place) == "history-edited"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("one\ntwo\n", "one\r\ntwo\r\n", "whitespace"),
        ("one \ntwo", "one\ntwo", "whitespace"),
        ("if x:\n    y()", "if x:\n\ty()", "whitespace"),
        ("the end", "the end\n", "whitespace"),
        ("10 km", "10\u00a0km", "whitespace"),
        ("café au lait", "cafe\u0301 au lait", "unicode-normalisation"),
        ("ﬁne ①", "fine 1", "unicode-normalisation"),
        ("ｆｕｌｌ", "full", "unicode-normalisation"),
        ('{"a": 1, "b": {"c": 2}}', '{"b": {"c": 2}, "a": 1}', "json-key-order"),
        ('Rules: {"a": 1, "b": [2]} end', 'Rules: {"b": [2], "a": 1} end', "json-key-order"),
        ('got {"x": true, "y": null}', "got {'x': True, 'y': None}", "re-serialised-arguments"),
        ('got {"x": "\\u00e9"}!', 'got {"x": "é"}!', "re-serialised-arguments"),
        ('got {"x": 1.0, "y": 2}', 'got {"x": 1, "y": 2}', "re-serialised-arguments"),
        ('got {"x": "a\\/b"}', 'got {"x": "a/b"}', "re-serialised-arguments"),
        ("<think>\nhm\n</think>\n\nYes.", "Yes.", "thinking-stripped"),
        ("<think>\n\n</think>\n\nYes.", "Yes.", "empty-thinking"),
        ("Yes.", "<think></think>Yes.", "empty-thinking"),
        ("[THINK]hm[/THINK]Yes.", "Yes.", "thinking-stripped"),
        ("line of output\n" * 40, "[Old tool result content cleared]", "history-pruned"),
        ("line of output\n" * 40, "", "history-pruned"),
        ("line of output\n" * 40, "line of output\n" * 3 + "... (truncated)", "history-pruned"),
    ],
)
def test_a_text(old, new, expected):
    assert cause(old, new) == expected


def test_a_tool_output_that_was_cut():
    old = "".join(f"{i}: some line\n" for i in range(60))
    assert cause(old, old[:300], TOOL) == "history-pruned"
    assert cause(old, old[:100] + "\n[... 500 characters omitted ...]\n" + old[-100:], TOOL) == (
        "history-pruned"
    )


def test_the_first_of_two_changes_counts():
    old = "Now: 2026-12-01T10:00:00Z\nStep 3 of 9\nBe kind.\n"
    new = "Now: 2026-12-01T10:00:05Z\nStep 4 of 9\nBe brave.\n"
    assert cause(old, new) == "clock"
    turned = ["".join(reversed(text.splitlines(keepends=True))) for text in (old, new)]
    assert cause(*turned) == "history-edited"


@given(st.text(), st.text())
def test_any_texts(old, new):
    found = text_change(old, new, ROOT)
    assert (found is None) == (old == new)
    if found is not None:
        assert 0 < found.confidence <= 1
        assert "\n" not in found.evidence
