"""`duramen lint` on recorded calls: the breaks that `why` names, and guesses that a log refutes."""

import json
from pathlib import Path
from typing import Any

import pytest

from duramen.experiments.layouts.model import Model
from duramen.experiments.lint.finding import Finding
from duramen.experiments.lint.lint import Linter
from duramen.experiments.opening import load_model
from duramen.layout.errors import TrajectoryError

POLICY = "You look up orders for a shop that sells tools, and answer in one short sentence. " * 3


@pytest.fixture(scope="module")
def model(smollm2: Path) -> Model:
    return load_model(smollm2, None)


def call(session: str, system: str, *texts: str) -> dict[str, Any]:
    """User and assistant in turns; the last text is the reply."""
    roles = ("user", "assistant")
    said = [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]
    messages = [{"role": "system", "content": system}, *said[:-1]]
    return {"session_id": session, "messages": messages, "response": said[-1]}


def found(model: Model, path: Path, *calls: dict[str, Any]) -> list[Finding]:
    path.write_text("".join(json.dumps(each) + "\n" for each in calls), "utf-8")
    return list(Linter(lambda: model).lint([path]).findings)


def test_breaks_of_a_cause_are_told_once_a_session(model: Model, tmp_path: Path) -> None:
    turns = ["Where is é17?", "Packed.", "And 18?", "Left.", "And 19?", "Waits."]
    calls = [
        call("a", f"It is 10:0{i}:00. {POLICY}", *turns[: 2 * i + 2]) for i in range(3)
    ]  # fmt: skip
    [finding] = found(model, tmp_path / "a.jsonl", *calls)
    assert (finding.rule, finding.where) == ("clock", "session a, call 1, against call 0")
    assert finding.message.endswith("; 2 calls of the session")
    assert finding.span is not None
    assert finding.span.line == 2  # the first line that bears call 1's newest message
    line = (tmp_path / "a.jsonl").read_text("utf-8").split("\n")[1]
    assert line[finding.span.column - 1 :].startswith("And 18?")


def test_a_guess_stands_until_a_second_session_refutes_it(model: Model, tmp_path: Path) -> None:
    dated = f"Rules as of 2026-01-31. {POLICY}"
    first, second = (
        call("a", dated, "Where is 17?", "Packed."),
        call("b", dated, "And 18?", "Left."),
    )
    [finding] = found(model, tmp_path / "one.jsonl", first)
    assert (finding.rule, finding.where) == ("clock-in-root", "system text")
    assert found(model, tmp_path / "two.jsonl", first, second) == []


def test_sessions_of_one_name_in_two_files_stay_apart(model: Model, tmp_path: Path) -> None:
    for name in ("a", "b"):
        folder = tmp_path / name
        folder.mkdir()
        before = call("s", f"At 10:00:00. {POLICY}", "Where is 17?", "Packed.")
        after = call("s", f"At 10:05:00. {POLICY}", "Where is 17?", "Packed.", "And 18?", "Left.")
        found(model, folder / "log.jsonl", before, after)
    report = Linter(lambda: model).lint([tmp_path])
    clocks = [each.path.parent.name for each in report.findings if each.rule == "clock"]
    assert sorted(set(clocks)) == ["a", "b"]


def test_a_broken_log_is_told_or_left_out(model: Model, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"messages": [{"role": "user"', "utf-8")
    with pytest.raises(TrajectoryError, match=r"a\.jsonl:1: the JSON is cut off"):
        Linter(lambda: model).lint([tmp_path / "a.jsonl"])
    reasons: list[str] = []
    assert Linter(lambda: model, skipped=reasons.append).lint([tmp_path]).findings == ()
    assert len(reasons) == 1
    (tmp_path / "package.json").write_text('{"name": "x"}', "utf-8")
    report = Linter(lambda: model).lint([tmp_path])
    assert report.notes == (*reasons, f"{tmp_path}/package.json is no recording or body")
    assert (report.paths, report.findings) == ((), ())


def test_real_recordings_break_no_text_rule(model: Model, shared_data: Path) -> None:
    folders = [shared_data / name for name in ("swe-agent", "mini-swe-agent", "sharegpt")]
    assert Linter(lambda: model).lint(folders).findings == ()


def test_lines_that_cannot_be_read_leave_the_others(model: Model, tmp_path: Path) -> None:
    turns = ["Where is 17?", "Packed.", "And 18?", "Left."]
    calls = [call("a", f"It is 10:0{i}:00. {POLICY}", *turns[: 2 * i + 2]) for i in range(2)]
    log = tmp_path / "a.jsonl"
    lines = [json.dumps(each) for each in calls]
    log.write_text("\n".join([lines[0], "not json", lines[1], lines[1][:50]]), "utf-8")
    report = Linter(lambda: model).lint([tmp_path])
    assert [each.rule for each in report.findings] == ["clock"]
    assert report.paths == (log,)
    broken, cut = report.notes
    assert broken.startswith(f"{log}:2: ")
    assert cut.endswith("the last line is cut off: its 50 bytes are left out")
    with pytest.raises(TrajectoryError, match=r"a\.jsonl:2"):
        Linter(lambda: model).lint([log])
