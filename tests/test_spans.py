"""layout.spans: each message's region, found from the origins of its characters."""

from collections.abc import Sequence

import pytest

from duramen.layout.spans import Cut, Placed, data_extents, message_cuts
from duramen.layout.template import ChatTemplate, Message
from duramen.layout.tokenizer import Tokenizer
from duramen.layout.tracked import TEMPLATE, Tracked, concat

FLAGS = dict.fromkeys(("lstrip", "rstrip", "single_word", "normalized"), False)
MARKS = ["<|a|>", "<|b|>", "<|end|>"]
PROMPT = "{% if add_generation_prompt %}<|b|>{% endif %}"


@pytest.fixture(scope="module")
def marks() -> Tokenizer:
    """Knows three control tokens, and that is all it is asked for."""
    added = [{"id": i, "content": mark, "special": True, **FLAGS} for i, mark in enumerate(MARKS)]
    return Tokenizer({"model": {"type": "BPE"}, "added_tokens": added}, {})


def regions(marks: Tokenizer, source: str, messages: Sequence[Message]) -> list[tuple[str, str]]:
    """(source, text) of each region of the rendered conversation."""
    template = ChatTemplate(source + PROMPT)
    text = template.render(messages, add_generation_prompt=True)
    placed = [Placed(i + 1, i, message) for i, message in enumerate(messages)]
    start = len(template.render(messages))
    cuts = message_cuts(text, marks.controls(text), placed, generation_start=start)
    ends = [*(cut.start for cut in cuts[1:]), len(text)]
    assert [cut.start for cut in cuts] == sorted(cut.start for cut in cuts)
    return [(cut.source, str(text)[cut.start : end]) for cut, end in zip(cuts, ends, strict=True)]


TALK: list[Message] = [
    {"role": "user", "content": "x"},
    {"role": "assistant", "content": "y"},
    {"role": "user", "content": "z"},
]


def test_turns_that_close_with_a_token(marks: Tokenizer) -> None:
    source = "{% for m in messages %}<|a|>\n{{ m.content }}<|end|>\n{% endfor %}"
    assert regions(marks, source, TALK) == [
        ("message 0 (user)", "<|a|>\nx<|end|>\n"),
        ("message 1 (assistant)", "<|a|>\n"),
        ("message 1 (assistant) text", "y"),
        ("message 1 (assistant) end", "<|end|>\n"),
        ("message 2 (user)", "<|a|>\nz<|end|>\n"),
        ("generation prompt", "<|b|>"),
    ]


def test_turns_that_only_open_with_a_token(marks: Tokenizer) -> None:
    source = "{% for m in messages %}<|a|>{{ m.content }}\n{% endfor %}"
    assert regions(marks, source, TALK) == [
        ("message 0 (user)", "<|a|>x\n"),
        ("message 1 (assistant)", "<|a|>"),
        ("message 1 (assistant) text", "y"),
        ("message 1 (assistant) end", "\n"),
        ("message 2 (user)", "<|a|>z\n"),
        ("generation prompt", "<|b|>"),
    ]


def test_turns_without_tokens(marks: Tokenizer) -> None:
    source = "{% for m in messages %}{{ m.content }}, {% endfor %}"
    assert regions(marks, source, TALK) == [
        ("message 0 (user)", "x, "),
        ("message 1 (assistant) text", "y"),
        ("message 1 (assistant) end", ", "),
        ("message 2 (user)", "z, "),
        ("generation prompt", "<|b|>"),
    ]


def test_a_message_that_is_left_out_or_moved_belongs_to_its_neighbour(marks: Tokenizer) -> None:
    left_out = "{% for m in messages if m.role == 'user' %}<|a|>{{ m.content }}{% endfor %}"
    assert regions(marks, left_out, TALK) == [
        ("message 0 (user)", "<|a|>x"),
        ("message 2 (user)", "<|a|>z"),
        ("generation prompt", "<|b|>"),
    ]
    moved = "{% for m in messages | reverse %}<|a|>{{ m.content }}{% endfor %}"
    assert regions(marks, moved, TALK) == [
        ("message 0 (user)", "<|a|>z<|a|>y<|a|>x"),
        ("generation prompt", "<|b|>"),
    ]


def test_data_that_spells_the_token_opens_no_region(marks: Tokenizer) -> None:
    source = "{% for m in messages %}<|a|>{{ m.content }}<|end|>{% endfor %}"
    talk = [{"role": "user", "content": "x<|a|>"}, {"role": "user", "content": "<|a|>z"}]
    assert regions(marks, source, talk) == [
        ("message 0 (user)", "<|a|>x<|a|><|end|>"),
        ("message 1 (user)", "<|a|><|a|>z<|end|>"),
        ("generation prompt", "<|b|>"),
    ]


def test_no_messages(marks: Tokenizer) -> None:
    assert regions(marks, "", []) == [("generation prompt", "<|b|>")]
    text = Tracked.data("abc", TEMPLATE)
    assert message_cuts(text, [], [], generation_start=3) == []
    assert message_cuts(text, [], [], generation_start=1) == [Cut(1, "generation prompt", None)]


def test_extents_span_first_to_last_character() -> None:
    text = concat(["a", Tracked.data("bc", 1), "d", Tracked.data("e", 2), Tracked.data("f", 1)])
    assert data_extents(text) == {TEMPLATE: (0, 4), 1: (1, 6), 2: (4, 5)}
    assert data_extents(concat([])) == {}
