"""The bounds of a prompt: what counts as known content, token by token."""

import pytest

from duramen.layout.bounds import ContentIndex
from duramen.layout.segment_cache import text_digest
from duramen.layout.zones import Prompt, Span, Zone


def prompt(*texts: str) -> Prompt:
    """One token per character, one span per text."""
    spans: list[Span] = []
    ids: list[int] = []
    for text in texts:
        start = len(ids)
        ids += [ord(character) for character in text]
        spans.append(Span(start, len(ids), Zone.LEAF, text, text_digest(text)))
    return Prompt(ids, tuple(spans))


@pytest.fixture
def index() -> ContentIndex:
    """Session "a" has sent root, tool, ask."""
    made = ContentIndex()
    made.add("a", prompt("root", "tool", "ask"))
    return made


@pytest.mark.parametrize(
    ("session_id", "texts", "expected"),
    [
        ("a", ("root", "tool", "ask", "more"), 11),
        ("a", ("now", "root", "ask"), 7),  # wherever it stood
        ("a", ("root", "root"), 8),
        ("a", ("roo", "ttool"), 0),  # the same text cut elsewhere is another segment
        ("b", ("root", "tool", "else"), 8),  # another session's leading run
        ("b", ("root", "else", "tool"), 4),  # but only the run
        ("b", ("tool", "root"), 0),
        ("a", (), 0),
    ],
)
def test_known_content(
    index: ContentIndex, session_id: str, texts: tuple[str, ...], expected: int
) -> None:
    assert index.num_known(session_id, prompt(*texts), lcp=0) == expected


@pytest.mark.parametrize(
    ("lcp", "expected"),
    [
        (0, 3),  # "ask" was there
        (2, 5),  # and the first two tokens of "fresh"
        (5, 8),
        (6, 8),  # the common prefix ends inside of what is known anyway
        (9, 9),
    ],
)
def test_a_common_prefix_is_known_even_inside_a_segment(
    index: ContentIndex, lcp: int, expected: int
) -> None:
    assert index.num_known("a", prompt("fresh", "ask", "!"), lcp) == expected


def test_a_sampled_text_is_known_to_its_session_alone(index: ContentIndex) -> None:
    index.add("a", prompt("root", "tool", "ask"), text_digest("answer"))
    index.add("c", prompt("root", "tool", "ask"), None)
    assert index.num_known("a", prompt("answer"), lcp=0) == 6
    assert index.num_known("c", prompt("answer"), lcp=0) == 0
