"""The recorder and the demo set that it made."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from duramen.experiments.importers.read import read_sessions
from duramen.experiments.record.agent import check_anonymous, record
from duramen.experiments.record.demo import demo_paths
from duramen.experiments.record.scenarios import span_gap
from duramen.experiments.record.scenarios.catalog import SCENARIOS
from duramen.experiments.record.tools import MAX_OUTPUT_CHARS, Tools
from duramen.experiments.trajectory import Origin
from duramen.layout.errors import TrajectoryError

REPO = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def demo():
    return list(read_sessions(demo_paths()))


def test_demo_set_is_large_enough_and_small_enough(demo):
    assert [session.session_id for session in demo] == [s.name for s in SCENARIOS]
    assert [len(s.calls) for s in demo] == [len(s.turns) for s in SCENARIOS]
    assert len(demo) >= 4
    assert sum(len(session.calls) for session in demo) >= 40
    assert sum(path.stat().st_size for path in demo_paths()) < 1_000_000


def test_demo_prompts_grow_by_the_reply_and_its_results_alone(demo):
    for session in demo:
        for call, after in zip(session.calls, session.calls[1:], strict=False):
            num_sent = len(call.messages)
            assert after.messages[:num_sent] == call.messages
            assert after.messages[num_sent] == call.reply
            results = after.messages[num_sent + 1 :]
            assert [m["tool_call_id"] for m in results] == [
                tool_call["id"] for tool_call in call.reply["tool_calls"]
            ]
            assert after.time_s > call.time_s
        assert "tool_calls" not in session.calls[-1].reply
        assert {call.tools for call in session.calls} == {None}
        assert len(session.tools) == 5


def test_demo_prompts_fit_the_demo_model(demo, notice):
    """At most 3,500 tokens, and enough for caching to matter. The JSON text of a prompt takes more
    tokens than its ChatML text; starcoder's vocabulary is as large as SmolLM2's (49k)."""
    path = REPO.parent / "shared" / "data" / "tokenizers" / "starcoder" / "tokenizer.json"
    if not path.exists():
        notice(f"no tokenizer at {path}: the demo's prompts are not counted")
        return
    tokenizer = Tokenizer.from_file(str(path))
    for session in demo:
        last = json.dumps([session.tools, session.calls[-1].messages], ensure_ascii=False)
        assert 2_000 < len(tokenizer.encode(last).ids) <= 3_500


def test_demo_sessions_follow_one_another(demo):
    starts = sorted(
        (s.start_time_s, s.start_time_s + s.calls[-1].time_s) for s in demo if s.start_time_s
    )
    assert len(starts) == len(demo)
    assert all(end < start for (_, end), (start, _) in pairwise(starts))


def test_demo_says_what_is_real(demo):
    for session in demo:
        assert session.origins == {
            "messages": Origin.RECORDED,
            "tools": Origin.RECORDED,
            "reply": Origin.ASSUMED,
            "time_s": Origin.ASSUMED,
            "start_time_s": Origin.ASSUMED,
        }


def test_each_demo_session_finds_a_failure_and_proves_the_fix(demo):
    for session in demo:
        outputs = [m["content"] for m in session.calls[-1].messages if m["role"] == "tool"]
        reports = [text for text in outputs if "[100%]" in text]
        assert "FAILURES" in reports[0]
        assert " passed in " in reports[-1]
        assert "failed" not in reports[-1]


def test_demo_shows_no_place_user_or_machine():
    for path in demo_paths():
        text = path.read_text(encoding="utf-8")
        for trace in ("/tmp", "/home", "/root", "/Users", "/work", "site-packages"):
            assert trace not in text


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_scenario_still_fits_the_code(scenario, tmp_path):
    path = tmp_path / scenario.path
    path.parent.mkdir(parents=True)
    path.write_text((REPO / scenario.path).read_text(encoding="utf-8"), encoding="utf-8")
    scenario.seed(tmp_path)
    assert scenario.fault[1] in path.read_text(encoding="utf-8")
    with pytest.raises(TrajectoryError, match="mend the scenario"):
        scenario.seed(tmp_path)  # the sound text is gone now


def test_a_session_can_be_recorded_again(tmp_path, demo):
    path, end_s = record(span_gap.SCENARIO, REPO, tmp_path / "out", start_s=1000.0)
    assert end_s > 1000.0
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["span-gap.jsonl"]
    [again] = read_sessions([path])
    [before] = [session for session in demo if session.session_id == "span-gap"]
    assert [call.reply["content"] for call in again.calls] == [
        call.reply["content"] for call in before.calls
    ]
    reports = [m["content"] for m in again.calls[-1].messages if "[100%]" in str(m["content"])]
    assert [report.splitlines()[-1].split(" in ")[0] for report in reports] == [
        "1 failed, 1 passed",
        "2 passed",
        "4 passed",
    ]
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert lines[0]["timing"]["tools_s"] > 0


def test_recording_needs_the_root_of_the_repo(tmp_path):
    with pytest.raises(TrajectoryError, match=r"holds no pyproject\.toml"):
        record(span_gap.SCENARIO, tmp_path, tmp_path / "out", start_s=0.0)
    assert not (tmp_path / "out").exists()


def test_a_recording_that_shows_its_place_is_refused(tmp_path):
    check_anonymous("layout/duramen/layout/zones.py", tmp_path)
    with pytest.raises(TrajectoryError, match="must not be published"):
        check_anonymous(f"rootdir: {tmp_path}", tmp_path)


def test_tools_answer_exactly(tmp_path):
    (tmp_path / "a.py").write_text("x = 1\ny = 2\n")
    (tmp_path / "long.py").write_text("#" * 2_000)
    tools = Tools(tmp_path)
    assert tools.run("list_files", {"path": "."}) == "a.py (2 lines)\nlong.py (1 lines)"
    assert tools.run("grep", {"pattern": "= 2$", "path": "."}) == "a.py:2: y = 2"
    assert tools.run("grep", {"pattern": "z", "path": "a.py"}) == "no matches"
    read = {"path": "a.py", "start_line": 2, "end_line": 9}
    assert tools.run("read_file", read) == "2\ty = 2"
    assert tools.run("read_file", read | {"path": "b.py"}) == "error: b.py does not exist"
    edit = {"path": "a.py", "old_text": "y = 2", "new_text": "y = 3"}
    assert tools.run("edit_file", edit) == "edited a.py at line 2"
    assert (tmp_path / "a.py").read_text() == "x = 1\ny = 3\n"
    assert tools.run("edit_file", edit).startswith("error: old_text occurs 0 times in a.py")
    output = tools.run("read_file", {"path": "long.py", "start_line": 1, "end_line": 1})
    assert output == "1\t" + "#" * (MAX_OUTPUT_CHARS - 2) + "\n[... 802 more characters cut]"
