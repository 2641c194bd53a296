"""A prompt whose spans leave tokens uncovered is accepted: a check that is too weak."""

from duramen.experiments.record.scenario import Near, Scenario, Turn, Use

ZONES = "layout/duramen/layout/zones.py"
TEST = "tests/test_prompt_spans.py"
TEST_TEXT = """\
import pytest

from duramen.layout.errors import LayoutError
from duramen.layout.zones import Prompt, Span, Zone


def span(start: int, end: int) -> Span:
    return Span(start, end, Zone.TRUNK, source="test", digest=b"")


def test_spans_that_cover_every_token_are_accepted():
    assert len(Prompt(range(8), (span(0, 3), span(3, 8))).spans) == 2


def test_a_gap_between_spans_is_refused():
    with pytest.raises(LayoutError, match="previous one ended at 3"):
        Prompt(range(8), (span(0, 3), span(4, 8)))
"""
MORE_TESTS = """\


def test_overlapping_spans_are_refused():
    with pytest.raises(LayoutError, match="previous one ended at 3"):
        Prompt(range(8), (span(0, 3), span(2, 8)))


def test_a_span_that_ends_before_it_starts_is_refused():
    with pytest.raises(LayoutError):
        Prompt(range(8), (span(0, 3), span(3, 2)))
"""
LAST_TEST = """\
        Prompt(range(8), (span(0, 3), span(4, 8)))
"""
SOUND = "if span.start != position or span.end < span.start:"
FAULTY = "if span.start < position or span.end < span.start:"

SCENARIO = Scenario(
    name="span-gap",
    task=(
        "A planner change produced a prompt in which token 3 belonged to no span, and nothing "
        "complained until the attribution was wrong. Prompt should refuse spans that leave a gap. "
        "tests/test_prompt_spans.py shows it. Find the cause, mend it, and add the cases that are "
        "missing from that test file."
    ),
    path=ZONES,
    fault=(SOUND, FAULTY),
    test_path=TEST,
    test_text=TEST_TEXT,
    turns=(
        Turn(
            "I start by seeing how the test fails.",
            (Use("run_tests", {"path": TEST}),),
        ),
        Turn(
            "The gap is accepted silently. Now I look for where Prompt is defined.",
            (Use("grep", {"pattern": r"^class (Prompt|Span|Segment)\b", "path": "layout"}),),
        ),
        Turn(
            "Prompt is in zones.py. I read its check.",
            (Use("read_file", {"path": ZONES}, Near("class Prompt", 1, 22)),),
        ),
        Turn(
            "The loop compares span.start with the end of the previous span, but only with `<`: "
            "that catches overlaps and lets gaps through. Before I touch it I check what a span "
            "promises.",
            (Use("read_file", {"path": ZONES}, Near("class Span", 1, 19)),),
        ),
        Turn(
            "Spans are half-open and should follow each other without gap or overlap, so the "
            "start has to equal the position exactly.",
            (Use("edit_file", {"path": ZONES, "old_text": FAULTY, "new_text": SOUND}),),
        ),
        Turn(
            "Now the same tests again.",
            (Use("run_tests", {"path": TEST}),),
        ),
        Turn(
            "Both pass. The task also asks for the missing cases: overlap, and a span that ends "
            "before it starts. I look at the end of the test file first.",
            (Use("read_file", {"path": TEST}, Near("def test_a_gap", 0, 4)),),
        ),
        Turn(
            "I append the two cases behind the last test.",
            (
                Use(
                    "edit_file",
                    {"path": TEST, "old_text": LAST_TEST, "new_text": LAST_TEST + MORE_TESTS},
                ),
            ),
        ),
        Turn(
            "And run the whole file.",
            (Use("run_tests", {"path": TEST}),),
        ),
        Turn(
            "All four pass. One last look: does anything else compare span positions in this way?",
            (
                Use(
                    "grep",
                    {"pattern": r"span\.(start|end)\b", "path": "layout/duramen/layout/zones.py"},
                ),
            ),
        ),
        Turn(
            "Done. Prompt.__post_init__ compared a span's start with the end of the span before it "
            "by `<`, so it caught overlaps but no gaps. It now compares with `!=`. I added tests "
            "for overlapping spans and for a span that ends before it starts; all four tests in "
            "tests/test_prompt_spans.py pass. No other code in zones.py depends on the old check."
        ),
    ),
)
