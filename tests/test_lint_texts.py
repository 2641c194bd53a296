"""What `duramen lint` sees in texts, and where."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.experiments.lint.json_places import NotJson, read_placed
from duramen.experiments.lint.placeholders import code_spans, find_placeholders
from duramen.experiments.lint.texts import seen_in_file, seen_in_system

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=12,
)


def at_path(value: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


@given(JSON, st.booleans(), st.sampled_from([None, 1]))
def test_every_value_stands_at_its_place(value: Any, ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    placed = read_placed(text)
    assert placed.value == value
    for path, (start, end) in placed.places.items():
        assert json.loads(text[start:end]) == at_path(value, path)


@given(st.text(max_size=20), st.booleans(), st.data())
def test_a_part_of_a_string_is_found_as_it_is_spelled(
    value: str, ascii_only: bool, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(value)))
    end = data.draw(st.integers(start, len(value)))
    spelled = json.dumps([value], ensure_ascii=ascii_only)
    first, last = read_placed(spelled).inside((0,), start, end)
    assert json.loads(f'"{spelled[first:last]}"') == value[start:end]


@given(st.text(alphabet='{}[]",:0-1.eE+ntrufalse\\ \n', max_size=12))
def test_json_is_what_the_standard_library_takes(text: str) -> None:
    try:
        expected = json.loads(text)
    except ValueError:
        with pytest.raises(NotJson):
            read_placed(text)
    else:
        assert read_placed(text).value == expected


@pytest.mark.parametrize(
    "text", ["NaN", "[Infinity]", "[1,]", '{"a":1,}', "01", "", '"\t"', "[" * 999]
)
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(NotJson):
        read_placed(text)


def test_a_repeated_key_is_told_with_its_second_place() -> None:
    text = '{"a": {"b": 1, "b": 2}, "c": 3}'
    placed = read_placed(text)
    assert placed.value == {"a": {"b": 2}, "c": 3}
    assert placed.repeated == [(("a", "b"), 15, 18)]
    assert text[15:18] == '"b"'


@pytest.mark.parametrize(
    ("template", "kinds"),
    [
        ("{{ now }} {{ now() }} {{ current_date }} {{currentTime}}", ["a clock"] * 4),
        ("{date} {TODAY} {date:%Y-%m-%d} ${timestamp} $(date +%F) %(date)s", ["a clock"] * 6),
        ("{date.today()} {time.time()} {{ strftime_now() }} {% if now() %}", ["a clock"] * 4),
        ("{uuid} {uuid.uuid4()} {request_id} {{ sessionId }} ${run_id} $(uuidgen)", ["an id"] * 6),
        ("{step} {turn_number} {{ tokens_left }} {remaining_tokens}", ["a counter"] * 4),
        ("{{ names | random }} {random.randint(1, 6)}", ["chance"] * 2),
        ("<%= Time.now %> <%= today() %>", ["a clock"] * 2),
        ("{name} {{ user }} ${HOME} $(pwd) %(level)s {{ birth_date }} {start_date} {timeout}", []),
        ("{{ event.date }} {{ row.time }} {tool_call_id} {user_id} {max_steps}", []),
        ("{% for step in steps %}{{ step }}{% endfor %}{% set date = '1' %}{{ date }}", []),
        ('{"date": "..."} {"time"} \\frac{time}{2} x{date} {date}/y {} {0} {{}}', []),
        ("{# {{ now() }} #}", []),
    ],
)  # fmt: skip
def test_placeholders(template: str, kinds: list[str]) -> None:
    found = list(find_placeholders(template, is_template=True))
    assert [each.kind for each in found] == kinds
    assert all(template[each.start : each.end] == each.shown for each in found)


def test_code_is_an_example_in_markdown_and_filled_in_a_template() -> None:
    text = "a `{date}`\n```\n{date}\n```\n{date}\n"
    places = [each.start for each in find_placeholders(text, is_template=False)]
    assert places == [text.rindex("{")]
    assert len(list(find_placeholders(text, is_template=True))) == 3


@given(st.text(alphabet="{}%# a", max_size=30))
def test_code_spans_are_found_as_by_hand(text: str) -> None:
    spans, at = [], 0
    while at < len(text):
        closer = {"{{": "}}", "{%": "%}", "{#": "#}"}.get(text[at : at + 2])
        end = text.find(closer, at + 2) if closer else -1
        if end >= 0:
            spans.append((at, end + 2))
        at = end + 2 if end >= 0 else at + (2 if closer else 1)
    assert code_spans(text) == spans


def rules(text: str, *, markdown: bool = False, template: bool = False) -> list[str]:
    seen = seen_in_file(text, is_markdown=markdown, is_template=template)
    return [each.rule for each in seen]


FAR = "Some words about the task.\n" * 10


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-30T10:15:00Z\nYou help.", ["clock-in-root"]),
        (FAR + "Today is 2026-11-30.", ["clock-in-root"]),
        (FAR + "The treaty of 2019-05-01 holds.", []),  # written by hand, it stays
        (FAR + "Session: 0b9c8f5e-3f5a-4a43-8a39-0d8a9a3b3c11", ["id-in-root"]),
        (FAR + "Iteration: 7", ["counter-in-root"]),
        ("".join(f"- 2020-0{i}-11: release\n" for i in range(1, 8)), []),  # a list of dates
        ("a\r\nb", ["crlf"]),
        ("a \nb", ["trailing-blanks"]),
        ("a\n\n  \nb\n", []),  # a blank line is none that ends in blanks
        ("cafe\u0301", ["not-nfc"]),
        ("<s>[INST] Hi", ["bos-in-text"]),
        ("a <s>strike</s>", []),
        ("", []),
    ],
)
def test_prompt_files(text: str, expected: list[str]) -> None:
    assert rules(text) == expected


def test_two_blanks_are_a_line_break_in_markdown() -> None:
    assert rules("a  \nb", markdown=True) == []
    assert rules("a   \nb", markdown=True) == ["trailing-blanks"]


def test_constants_of_template_code_do_not_change() -> None:
    assert rules("{{ d or 'Today is 2026-11-30' }}", template=True) == []
    assert rules("{{ d }} Today is 2026-11-30", template=True) == ["clock-in-root"]


def test_what_was_sent_may_hold_a_time_anywhere() -> None:
    [seen] = seen_in_system(FAR + "[10:22:01] ready")
    assert (seen.rule, (FAR + "[10:22:01]")[seen.start : seen.end]) == ("clock-in-root", "10:22:01")


@given(st.text(max_size=60))
def test_whatever_a_text_holds_the_places_are_inside_it(text: str) -> None:
    for seen in seen_in_file(text, is_markdown=False, is_template=True):
        assert 0 <= seen.start < seen.end <= len(text)


@pytest.mark.parametrize(
    "piece", ["{{", "{% for ", "{#", "```\n", " ", "{date ", "<%", "$(", "e\u0301"]
)
def test_hostile_repetition_ends(piece: str) -> None:
    """Linear: a quadratic search of so much text would run into the suite's time limit."""
    list(seen_in_file(piece * 100_000, is_markdown=False, is_template=True))
