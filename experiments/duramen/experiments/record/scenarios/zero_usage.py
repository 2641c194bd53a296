"""A count of 0 cached tokens is read as "not reported": a truth test where None was meant."""

from duramen.experiments.record.scenario import Near, Scenario, Turn, Use

IMPORTERS = "experiments/duramen/experiments/importers"
MESSAGES = f"{IMPORTERS}/messages.py"
TRAJECTORY = "experiments/duramen/experiments/trajectory.py"
TEST = "tests/test_usage.py"
TEST_TEXT = """\
import pytest

from duramen.experiments.importers.messages import check_usage
from duramen.layout.errors import TrajectoryError


def test_zero_cached_tokens_stay_zero():
    usage = {"prompt_tokens": 12, "prompt_tokens_details": {"cached_tokens": 0}}
    assert check_usage(usage, "log.jsonl:1").cached_tokens == 0


def test_cached_tokens_that_are_not_reported_stay_none():
    assert check_usage({"prompt_tokens": 12}, "log.jsonl:1").cached_tokens is None


def test_a_count_that_is_text_is_refused():
    with pytest.raises(TrajectoryError, match="prompt_tokens is '12'"):
        check_usage({"prompt_tokens": "12"}, "log.jsonl:1")
"""
SOUND = """\
    if value is None:
        return None
    if isinstance(value, bool)"""
FAULTY = """\
    if not value:
        return None
    if isinstance(value, bool)"""

SCENARIO = Scenario(
    name="zero-usage",
    task=(
        "In the replay report, calls without any cache hit show up as 'not reported' instead of 0 "
        "cached tokens, so the hit rate comes out too high. The recordings do say 0. "
        "tests/test_usage.py has a case for it. Please find out where the zero gets lost and mend "
        "it."
    ),
    path=MESSAGES,
    fault=(SOUND, FAULTY),
    test_path=TEST,
    test_text=TEST_TEXT,
    turns=(
        Turn(
            "First I want to see the test fail, and where the importers fill in cached tokens.",
            (
                Use("grep", {"pattern": "cached_tokens", "path": IMPORTERS}),
                Use("run_tests", {"path": TEST}),
            ),
        ),
        Turn(
            "The test confirms it: 0 becomes None. What does the form of a recording promise about "
            "usage? I read the contract before the code.",
            (Use("read_file", {"path": TRAJECTORY}, Near("class Usage", 1, 6)),),
        ),
        Turn(
            "None means not reported and is never the same as 0. Now check_usage.",
            (Use("read_file", {"path": MESSAGES}, Near("def check_usage", 0, 19)),),
        ),
        Turn(
            "check_usage hands every count to _check_count, and passes an explicit 0 on as it is. "
            "So the zero has to be lost in there.",
            (Use("read_file", {"path": MESSAGES}, Near("def _check_count", 0, 6)),),
        ),
        Turn(
            "`if not value` is true for None, and for 0, and for an empty text. I look for other "
            "places with the same mistake before I edit.",
            (Use("grep", {"pattern": r"if not \w+:", "path": IMPORTERS}),),
        ),
        Turn(
            "I replace the test by one for None.",
            (
                Use(
                    "edit_file",
                    {"path": MESSAGES, "old_text": "if not", "new_text": "if value is None:"},
                ),
            ),
        ),
        Turn(
            "That text is not unique, and my new text would have left the name behind. I give the "
            "whole line with the ones around it.",
            (Use("edit_file", {"path": MESSAGES, "old_text": FAULTY, "new_text": SOUND}),),
        ),
        Turn(
            "Now the tests.",
            (Use("run_tests", {"path": TEST}),),
        ),
        Turn(
            "They pass. I read the function once more as it stands now.",
            (Use("read_file", {"path": MESSAGES}, Near("def _check_count", 0, 6)),),
        ),
        Turn(
            "Done. The count check in importers/messages.py returned None for everything that is "
            "falsy, so a recorded 0 turned into 'not reported'. It now returns None for null only; "
            "0 stays 0, and an empty text is refused like any other text. The three tests in "
            "tests/test_usage.py pass, one of which failed before."
        ),
    ),
)
