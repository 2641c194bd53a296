"""`duramen lint` on files and folders, from the outside, and what it writes for CI."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from junitparser import Error, Failure, JUnitXml

from duramen.cli import main
from duramen.experiments.importers.bodies import is_body
from duramen.experiments.layouts.model import Model
from duramen.experiments.lint.bodies import check_body, given_body
from duramen.experiments.lint.finding import Source
from duramen.experiments.lint.json_places import read_placed
from duramen.experiments.lint.lint import Linter, Report
from duramen.experiments.lint.rules import RULES
from duramen.experiments.lint.sarif import as_sarif
from duramen.layout.errors import DuramenError, TrajectoryError

Capture = pytest.CaptureFixture[str]
CLOCK = "You help.\nThe current time is 2026-11-30 10:22:01.\n"


def no_model() -> Model:
    raise AssertionError("what is no log needs no model")


def linted(*paths: Path, **settings: Any) -> Report:
    return Linter(no_model, **settings).lint(paths)


def body_of(content: Any, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "system", "content": content}, {"role": "user", "content": "Hi."}]
    return {"model": "m", "messages": messages, **fields}


def write(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value), "utf-8", newline="")
    return path


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr("sys.argv", ["duramen", "lint", *map(str, arguments)])
    return main.run()


@pytest.mark.parametrize(
    "body",
    [
        body_of("It is 10:22:01 now: [10:22:01]"),
        body_of([{"type": "text", "text": "It is 10:22:01 now: [10:22:01]"}]),
        {"model": "claude-x", "system": "[10:22:01]", "messages": []},
        {"model": "m", "instructions": "[10:22:01]", "input": "Hi."},
        {"model": "m", "input": [{"role": "developer", "content": "[10:22:01]"}]},
        {"custom_id": "1", "method": "POST", "body": body_of("é\n[10:22:01]")},
    ],
)  # fmt: skip
def test_the_place_is_the_value_in_every_form_of_body(tmp_path: Path, body: Any) -> None:
    path = write(tmp_path / "body.json", body)
    found = [each for each in linted(path).findings if each.rule == "clock-in-root"]
    assert found
    line = path.read_text("utf-8").split("\n")[found[0].span.line - 1]  # type: ignore[union-attr]
    start, end = found[0].span.column - 1, found[0].span.end_column - 1  # type: ignore[union-attr]
    assert line[start:end] == "10:22:01"


def test_bodies_of_a_folder_are_compared(tmp_path: Path) -> None:
    def tool(name: str) -> dict[str, Any]:
        return {"type": "function", "function": {"name": name, "parameters": {}}}

    def body(text: str, *tools: str) -> dict[str, Any]:
        return {"model": "m", "tools": [tool(t) for t in tools], **body_of(text)}

    write(tmp_path / "one/a.json", body("Uhrzeit jetzt 10 Uhr. Hilf.", "x", "y"))
    write(tmp_path / "one/b.json", body("Uhrzeit jetzt 11 Uhr. Hilf.", "y", "x"))
    write(tmp_path / "other/c.json", body("Another agent.", "z"))
    write(tmp_path / "other/d.json", body("One more agent, of another kind.", "z", "w"))
    found = {(each.path.name, each.rule) for each in linted(tmp_path).findings}
    assert {name for name, _ in found} == {"b.json"}
    assert ("b.json", "tool-order") in found


def test_a_comment_keeps_a_rule_quiet_on_two_lines(tmp_path: Path) -> None:
    line = "Today is 2026-11-30. You are at step 3 of 9."
    path = write(tmp_path / "a.jinja", f"{{# duramen: ignore clock-in-root #}}\n{line}\n{line}\n")
    found = [(each.span.line, each.rule) for each in linted(path).findings if each.span]
    assert found == [(2, "counter-in-root"), (3, "clock-in-root"), (3, "counter-in-root")]
    quiet = linted(path, ignored=frozenset(["clock-in-root", "counter-in-root"]))
    assert quiet.findings == ()


def test_an_unknown_rule_is_a_mistake() -> None:
    with pytest.raises(DuramenError, match="no rule is called clocks"):
        Linter(no_model, ignored=frozenset(["clocks"]))


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.json", b"", "no JSON: expected a value"),
        ("a.json", b'{"messages": [1,}', r"a.json:1:17: no JSON"),
        ("a.json", b'{"model": "m", "messages": [{"role": 3}]}', "role"),
        ("a.json", b'{"model": "m", "messages": [{"role": "user", "content": NaN}]}', "NaN is no"),
        ("a.txt", b"caf\xe9", "byte 3 is not UTF-8"),
        ("a.json", b"[" * 100_000, "nested deeper"),
    ],
)
def test_what_is_broken_is_told_in_one_line(
    tmp_path: Path, name: str, data: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(TrajectoryError, match=message) as raised:
        linted(tmp_path / name)
    assert "\n" not in str(raised.value)
    reasons: list[str] = []
    write(tmp_path / "good.md", CLOCK)
    report = linted(tmp_path, skipped=reasons.append)
    assert [each.rule for each in report.findings] == ["clock-in-root"]
    assert reasons == [str(raised.value)]


def test_nothing_to_lint_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(TrajectoryError, match="holds nothing to lint"):
        linted(tmp_path)
    with pytest.raises(TrajectoryError, match="no file"):
        linted(tmp_path / "gone.md")


def test_a_folder_goes_on_past_what_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    write(tmp_path / "odd.json", '{"messages": [}')
    write(tmp_path / "good.md", "You help.\n")
    write(tmp_path / "ids.json", [1, 2, 3])
    assert run(monkeypatch, tmp_path) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        f"note: {tmp_path}/odd.json:1:15: no JSON: expected a value",
        f"note: {tmp_path}/ids.json bears token ids, no text",
        "2 files: clean",
    ]
    write(tmp_path / "bad.md", CLOCK)
    assert run(monkeypatch, tmp_path) == 1
    assert len(linted(tmp_path).as_json()["notes"]) == 2
    assert run(monkeypatch, tmp_path, tmp_path / "odd.json") == 2
    assert run(monkeypatch, tmp_path / "ids.json") == 0


def test_a_body_that_is_cut_off_is_never_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    write(tmp_path / "cut.json", '{"messages": [{"role": "user", "content": "Wher')
    write(tmp_path / "good.md", "You help.\n")
    for path in (tmp_path, tmp_path / "cut.json"):
        assert run(monkeypatch, path) == 1
        assert f"{tmp_path}/cut.json:1:48: error cut-off" in capsys.readouterr().out
    assert run(monkeypatch, tmp_path, "--ignore", "cut-off") == 0


@pytest.mark.parametrize("odd", [0, 1, 2])
def test_the_odd_one_of_a_folder_is_named(tmp_path: Path, odd: int) -> None:
    tools = [{"type": "function", "function": {"name": name}} for name in ("read", "write")]
    messages = [{"role": "system", "content": "You help."}, {"role": "user", "content": "Hi."}]
    for number in range(3):
        order = tools[::-1] if number == odd else tools
        body = {"model": "m", "tools": order, "messages": messages}
        write(tmp_path / f"{number}.json", body)
    [finding] = linted(tmp_path).findings
    assert (finding.rule, finding.path.name) == ("tool-order", f"{odd}.json")


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    for name in ("pipe", "pipe.json", "pipe.jsonl"):
        os.mkfifo(tmp_path / name)
        with pytest.raises(TrajectoryError, match=f"{name} is no file; expected"):
            linted(tmp_path / name)
    with pytest.raises(TrajectoryError, match="/dev/null is no file; expected"):
        linted(Path("/dev/null"))


HOSTILE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.just("It is 10:22 now"),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["role", "content", "text", "type", "tools", "function", "arguments",
                         "name", "tool_calls", "description", "cache_control", "system"]),
        inner,
        max_size=4,
    ),
    max_leaves=10,
)  # fmt: skip


FIELDS = ("messages", "input", "tools", "system", "instructions", "model", "cache_control")


@given(
    st.fixed_dictionaries(
        {},
        optional=dict.fromkeys(FIELDS, HOSTILE),
    )
)  # fmt: skip
@settings(suppress_health_check=[HealthCheck.filter_too_much])
def test_a_body_is_linted_or_refused(body: dict[str, Any]) -> None:
    text = json.dumps(body)
    source = Source(Path("a.json"), text)
    if not is_body(body):
        return
    try:
        given = given_body(source, read_placed(text))
    except TrajectoryError:
        return
    for finding in check_body(given):
        assert finding.span is not None
        assert finding.span.line == 1
        assert 1 <= finding.span.column < finding.span.end_column <= len(text) + 1


def test_exit_codes_and_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    clean, note = write(tmp_path / "clean.md", "You help.\n"), write(tmp_path / "n.txt", "a \nb")
    bad = write(tmp_path / "bad\n.md", CLOCK)
    assert run(monkeypatch, clean) == 0
    assert run(monkeypatch, note) == 0
    assert "note trailing-blanks" in capsys.readouterr().out
    assert run(monkeypatch, tmp_path) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{tmp_path}/bad\\n.md:2:21: warning clock-in-root: ")
    assert lines[-1] == "3 files: 0 errors, 1 warning, 1 note"
    assert run(monkeypatch, tmp_path, "--ignore", "clock-in-root") == 0
    assert run(monkeypatch, bad, "--ignore", "nothing") == 2
    assert run(monkeypatch) == 2
    assert run(monkeypatch, bad, "--sarif", tmp_path / "no" / "a.sarif") == 2


def test_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad, out = write(tmp_path / "bad.md", CLOCK), tmp_path / "out.json"
    assert run(monkeypatch, bad, "--json", out) == 1
    result = json.loads(out.read_text("utf-8"))
    assert (result["command"], result["num_files"], result["num_failing"]) == ("lint", 1, 1)
    [finding] = result["findings"]
    assert finding["span"] == {"line": 2, "column": 21, "end_line": 2, "end_column": 40}
    assert (finding["rule"], finding["severity"]) == ("clock-in-root", "warning")


def hostile_folder(folder: Path) -> Path:
    write(folder / "a dir/ü#%.md", CLOCK)
    write(folder / "clean.md", "You help.\n")
    system = r'{"role":"system","content":"<&\u0001\ud800 [10:22:01] \n"}'
    user, twice = '{"role":"user","content":"]]>"}', r'"\u0000":1,"\u0000":2'
    write(folder / "b.json", f'{{"model":"m","messages":[{system},{user}],{twice}}}')
    return folder


def test_junit_is_read_by_its_readers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, out = hostile_folder(tmp_path / "p"), tmp_path / "out.xml"
    assert run(monkeypatch, folder, "--junit", out) == 1
    xml = JUnitXml.fromfile(str(out))
    cases = [case for suite in xml for case in suite]
    failing = [case for case in cases if any(isinstance(r, Failure) for r in case.result)]
    assert not any(isinstance(r, Error) for case in cases for r in case.result)
    report = linted(folder)
    assert (xml.tests, xml.failures, xml.errors) == (len(cases), report.num_failing, 0)
    assert len(failing) == report.num_failing
    assert len(cases) == len(report.findings) + 1  # the clean file
    assert {re.sub(" .*", "", case.name) for case in cases} == {
        "duramen", *(each.rule for each in report.findings),
    }  # fmt: skip


def test_sarif(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the schema of SARIF 2.1.0 demands of the properties that are written, and no others."""
    folder, out = hostile_folder(tmp_path / "p"), tmp_path / "out.sarif"
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, folder, "--sarif", out) == 1
    log = json.loads(out.read_text("utf-8"))
    assert log.keys() == {"$schema", "version", "runs"}
    assert log["version"] == "2.1.0"
    [made] = log["runs"]
    assert made.keys() == {"tool", "columnKind", "invocations", "results"}
    assert made["columnKind"] == "unicodeCodePoints"
    assert made["invocations"] == [{"executionSuccessful": True}]
    rules = made["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == list(RULES)
    report = linted(folder)
    assert len(made["results"]) == len(report.findings) > 2
    for result, finding in zip(made["results"], report.findings, strict=True):
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"] == finding.rule
        assert result["level"] in ("error", "warning", "note")
        assert result["message"]["text"]
        [location] = result["locations"]
        artifact = location["physicalLocation"]["artifactLocation"]
        assert artifact["uriBaseId"] == "%SRCROOT%"
        assert artifact["uri"] in ("p/a%20dir/%C3%BC%23%25.md", "p/b.json")
        region = location["physicalLocation"]["region"]
        assert region.keys() == {"startLine", "startColumn", "endLine", "endColumn"}
        assert all(isinstance(number, int) and number >= 1 for number in region.values())


def test_fingerprints_stay_when_lines_move(tmp_path: Path) -> None:
    path = write(tmp_path / "a.md", CLOCK)
    before = as_sarif(linted(path), "1", tmp_path)["runs"][0]["results"][0]
    write(path, "First.\n" + CLOCK)
    after = as_sarif(linted(path), "1", tmp_path)["runs"][0]["results"][0]
    assert before["partialFingerprints"] == after["partialFingerprints"]
    assert before["locations"] != after["locations"]


def test_real_prompts_are_not_accused(shared_data: Path, notice: Callable[[str], None]) -> None:
    """Chat templates that were published: what is told of them is that they write the date."""
    report = linted(shared_data / "templates")
    assert {each.rule for each in report.findings} == {"volatile-placeholder"}
    assert all("strftime_now" in Path(each.path).read_text("utf-8") for each in report.findings)
    notice(f"lint: {len(report.findings)} findings in {len(report.paths)} real chat templates")
