"""Which parts of a text change from call to call: guessed from one text, proven by two."""

from itertools import combinations, pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from duramen.layout.diff import anchors, differences
from duramen.layout.volatility import VolatileField, compare, find_volatile

UUID = "550e8400-e29b-41d4-a716-446655440000"
HEX = "9f86d081884c7d659a2feaa0c55ad015"


def shown(text: str, fields: list[VolatileField]) -> list[tuple[str, str]]:
    return [(field.kind, text[field.start : field.end]) for field in fields]


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("Now: 2026-12-01T00:53", "clock", "2026-12-01T00:53"),
        ("at 2026-12-01T00:53:12.123456+00:00.", "clock", "2026-12-01T00:53:12.123456+00:00"),
        ("2026-12-01 00:53:12,123 start", "clock", "2026-12-01 00:53:12,123"),
        ("20261201T005605Z", "clock", "20261201T005605Z"),
        ("Today's date: 2026-12-01\nBe brief.", "clock", "2026-12-01"),
        ("12/01/2026 9:05 am", "clock", "12/01/2026 9:05 am"),
        ("Heute ist der 01.12.2026.", "clock", "01.12.2026"),
        ("今天是2026年12月1日", "clock", None),
        ("今天：2026年12月1日", "clock", "2026年12月1日"),
        ("Date: Tue, 01 Dec 2026 00:56:05 +0000", "clock", "Tue, 01 Dec 2026 00:56:05 +0000"),
        ("Tue Dec  1 00:56:05 UTC 2026", "clock", "Tue Dec  1 00:56:05 UTC 2026"),
        ("It is Tue Dec 1", "clock", "Tue Dec 1"),
        ("December 1, 2026", "clock", "December 1, 2026"),
        ("the 1st of December 2026, 14:05 CET", "clock", "1st of December 2026, 14:05 CET"),
        ("Tuesday, December 1, 2026 at 9:41 PM", "clock", "Tuesday, December 1, 2026 at 9:41 PM"),
        ("00:53 on 2026-12-01", "clock", "00:53 on 2026-12-01"),
        ("The time is 9:41 PM.", "clock", "9:41 PM"),
        ("[00:53:12] ready", "clock", "00:53:12"),
        ("Today is Tuesday.", "clock", "Tuesday"),
        ("timestamp=1796083200", "clock", "1796083200"),
        ("[1796083200] ready", "clock", "1796083200"),
        ("made 1796083200123", "clock", "1796083200123"),
        ("made 1796083200.5132", "clock", "1796083200.5132"),
        ("Current time: `2026-12-01T00:53`", "clock", "2026-12-01T00:53"),
        ("Knowledge cutoff: 2024-06. Current date: 2026-12-01", "clock", "2026-12-01"),
        (f"call {UUID}", "uuid", UUID),
        (f"{{{UUID.upper()}}}", "uuid", UUID.upper()),
        (f"request {HEX}", "id", HEX),
        ("request id: req_8fa2k3", "id", "req_8fa2k3"),
        ('{"session_id": "abc123"}', "id", "abc123"),
        ("id: 7f3k29xq", "id", "7f3k29xq"),
        ("x-hash: ab1; nonce=a1b2c3;", "id", "a1b2c3"),
        ("This is step 17 of 50.", "counter", "17"),
        ("step 17/50", "counter", "17"),
        ("turn: 5", "counter", "5"),
        ("call #12", "counter", "12"),
        ("Tokens used: 12,345", "counter", "12,345"),
        ("You have 12 steps remaining", "counter", "12"),
        ("You are on turn 7.", "counter", "7"),
    ],
)
def test_field(text, kind, value):
    assert shown(text, find_volatile(text)) == ([(kind, value)] if value else [])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "version 1.2.3, build 2024.05.13, python3.11",
        "api-version: 2023-06-01",
        "you are gpt-4o-2024-08-06",
        "Knowledge cutoff: 2024-06-01",
        "released on March 3, 2025; © 2024-01-01",
        "10.0.12.26:8080, port 8080, [::1]:80",
        "costs $12.30, 1,234.50 or $1796083200",
        "call +1 555 010 9999, 2025550123 or 1555010999",
        "ISBN 1593279280, 1610612736 bytes",
        f"https://example.org/{HEX}/2026-12-01?t=1796083200123&id={UUID}",
        f"commit {HEX}, sha256:{HEX}, colour #aabbcc1122334455",
        f"`{HEX}` and `2024-01-01`",
        f'```python\nid = "{UUID}"\nmade = "2024-01-01T10:00:00"\n```',
        f"~~~\n{HEX}",
        "Since 2019 and in the year 2026; 1999 was another one.",
        "Step 1: read. Step 2: write. Then go back to step 1.",
        "Step 1 of 3: read.\nStep 2 of 3: write.\nStep 3 of 3: test.",
        "[{id: item_001}, {id: item_002}]",
        "open 9:00 to 17:00, or 9:00-17:00, or between 9:00 and 12:00",
        "from 2026-01-01 to 2026-03-01; 2026-01-01 – 2026-03-01",
        "deadline 2026-12-24; at most turn: 50; timeout 00:30:00",
        "ratio 16:09, John 3:16, May 1 person go?",
        "/var/log/2026-12-01/app, 2026-12-01.txt, a@2026-12-01",
        "deadbeefdeadbeef 1234567890123456 feedface",
        "user id: 12ab34cd, model id: m1234567",
        "2026-13-01, 2026-12-32, 25:61, 32/13/2026",
    ],
)
def test_no_field(text):
    assert find_volatile(text) == []


def test_several_fields_in_order():
    text = f"Now 2026-12-01, turn: 5\n\nid {UUID}\n```\n2026-12-01\n```\nIt is 00:53 now."
    assert shown(text, find_volatile(text)) == [
        ("clock", "2026-12-01"),
        ("counter", "5"),
        ("uuid", UUID),
        ("clock", "00:53"),
    ]


PIECES = st.sampled_from(
    [
        *("2026-12-01", "00:53", "Dec 1", "today is ", "Tuesday", HEX, UUID, "id", "http://"),
        *("step ", "17", " of ", "50", "turn", "#", ":", ", ", "[", "]", " ", "\n", "`", "```\n"),
        *("\ud800", "٣"),
    ]
)
TEXTS = st.lists(PIECES, max_size=12).map("".join)


@given(TEXTS)
def test_fields_are_in_order_and_apart(text):
    end = 0
    for field in find_volatile(text):
        assert end <= field.start < field.end <= len(text)
        assert "\n" not in text[field.start : field.end]
        end = field.end


N = 250_000
HOSTILE = {
    "digits": "1" * N,
    "dates": "2026-12-01 " * (N // 11),
    "hex": "a1" * (N // 2),
    "hex with dashes": "a1b2c3d4-" * (N // 9),
    "spaces": "now" + " " * N + "1",
    "times": "12:34:" * (N // 6),
    "backticks": "`" * N,
    "fences": "```\n" * (N // 4),
    "weekdays": "Mon, " * (N // 5) + "1",
    "days": "May 1 " * (N // 6),
    "ids": "request_id=aaaa" * (N // 15),
    "long id": "nonce=" + "a" * N + "1",
    "turns": "turn 5 of " * (N // 10),
    "schemes": "http://" * (N // 7),
    "urls": "http://a " * (N // 9),
    "numbers": "1,111" * (N // 5),
    "surrogates": "\ud800 1" * (N // 3),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_ends(name):
    """Time that grows with the square of the text would outlast the run's timeout."""
    assert len(find_volatile(HOSTILE[name])) <= N


def test_a_hostile_megabyte_ends():
    text = "\n".join(each[:60_000] for each in HOSTILE.values())
    assert len(text) > 10**6
    assert find_volatile(text) != []
    assert compare(text, f"x{text}y") != []


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("a", "a", []),
        ("at 2026-12-01T00:53 b", "at 2026-12-02T01:54 b", [("clock", "2026-12-02T01:54")]),
        (
            f"r {HEX} 2026-12-01",
            f"r {HEX[::-1]} 2026-12-02",
            [("id", HEX[::-1]), ("clock", "2026-12-02")],
        ),
        ("lunch 12:15 there", "lunch 12:16 there", [("clock", "12:16")]),
        ("n 1796083200", "n 1796083260", [("clock", "1796083260")]),
        ("ver=2; cch=9a3f1;", "ver=2; cch=07be4;", [("id", "07be4")]),
        (
            f"`{UUID}`",
            "`123e4567-e89b-12d3-a456-426614174000`",
            [("uuid", "123e4567-e89b-12d3-a456-426614174000")],
        ),
        ("seen 41 times", "seen 42 times", [("counter", "42")]),
        ("seen many times", "seen 42 times", [("changed text", "42")]),
        ("v 1.2.3", "v 1.2.4", [("changed text", "4")]),
        ("be kind", "be brief", [("changed text", "brief")]),
        ("be kind and brief", "be brief", [("changed text", "")]),
        ("on 2026-12-01", "only on 2026-12-01", [("changed text", "only ")]),
        ("", "2026-12-01", [("clock", "2026-12-01")]),
        ("2026-12-01", "", [("changed text", "")]),
    ],
)
def test_compare(old, new, expected):
    assert shown(new, compare(old, new)) == expected


@given(TEXTS, TEXTS)
@example("", "2026-12-01#")
def test_what_compare_leaves_out_stood_in_the_old_text(old, new):
    fields = compare(old, new)
    assert (fields == []) == (old == new)
    kept, end = "", 0
    for field in fields:
        assert end <= field.start <= field.end <= len(new)
        kept += new[end : field.start]
        end = field.end
    rest = iter(old)
    assert all(character in rest for character in kept + new[end:] if character.isalnum())


def test_differences_of_lines_and_words():
    old = "One agent.\nNow: 2026\nstep 17 of 50\nend end end"
    new = "One agent.\nNow: 2027\nstep 18 of 50\nend end end\nmore"
    found = [(old[d.old_start : d.old_end], new[d.start : d.end]) for d in differences(old, new)]
    assert found == [("2026", "2027"), ("17", "18"), ("", "\nmore")]


@given(st.text("ab \n1", max_size=30), st.text("ab \n1", max_size=30))
def test_differences_make_the_new_text_of_the_old_one(old, new):
    made, old_end, end = "", 0, 0
    for each in differences(old, new):
        assert old[old_end : each.old_start] == new[end : each.start]
        assert (each.old_start, each.start) != (old_end, end) or not made
        made += old[old_end : each.old_start] + new[each.start : each.end]
        old_end, end = each.old_end, each.end
    assert made + old[old_end:] == new


@given(st.lists(st.integers(0, 5), max_size=7), st.lists(st.integers(0, 5), max_size=7))
def testanchors_are_the_longest_run(old, new):
    pairs = [
        (i, new.index(x)) for i, x in enumerate(old) if old.count(x) == 1 and new.count(x) == 1
    ]
    runs = (
        run
        for size in range(len(pairs), -1, -1)
        for run in combinations(pairs, size)
        if all(a[1] < b[1] for a, b in pairwise(run))
    )
    found = anchors(old, new)
    assert len(found) == len(next(runs))
    assert set(found) <= set(pairs)
    assert all(a < c and b < d for (a, b), (c, d) in pairwise(found))
