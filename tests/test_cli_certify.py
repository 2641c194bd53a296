"""`duramen certify` from the outside."""

import json
from pathlib import Path
from typing import Any

import pytest
from certify_cases import FULL, STRIPPER, TEMPLATES

from duramen.cli import main
from duramen.layout.certify.transitions import TRANSITIONS

GAINED = ["thinking-tool-then-user", "thinking-on-tool-then-user"]
Capture = pytest.CaptureFixture[str]


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr("sys.argv", ["duramen", "certify", *map(str, arguments)])
    return main.run()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "templates"
    made.mkdir()
    for name, source in {"full": FULL, "stripper": STRIPPER, "broken": "{% for %}"}.items():
        (made / f"{name}.jinja").write_text(source, "utf-8")
    return made


def test_all_as_json(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "certified.json"
    assert run(monkeypatch, "--all", folder, "--json", out, "--out", tmp_path / "mended") == 0
    result: dict[str, Any] = json.loads(out.read_text("utf-8"))
    assert (result["command"], result["schema_version"]) == ("certify", 1)
    assert list(result["templates"]) == ["broken.jinja", "full.jinja", "stripper.jinja"]
    for verdicts in result["templates"].values():
        assert list(verdicts) == [t.name for t in TRANSITIONS]
    lost = result["templates"]["stripper.jinja"]["thinking-tool-then-user"]
    assert (lost["verdict"], lost["cause"], lost["at"]["token"]) == (
        "broken", "thinking-stripped", None,
    )  # fmt: skip
    assert result["templates"]["full.jinja"]["user-turn"]["at"] is None
    assert result["templates"]["broken.jinja"]["user-turn"]["verdict"] == "refused"
    assert result["certificates"]["stripper.jinja"]["mend"]["gained"] == GAINED
    assert [path.name for path in (tmp_path / "mended").iterdir()] == ["stripper.mended.jinja"]


def test_a_mended_file_certifies(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(monkeypatch, "--all", folder, "--out", folder, "--json", tmp_path / "a.json") == 0
    mended, out = folder / "stripper.mended.jinja", tmp_path / "b.json"
    assert run(monkeypatch, "--chat-template", mended, "--json", out) == 0
    verdicts = json.loads(out.read_text("utf-8"))["templates"]["stripper.mended.jinja"]
    broken = [name for name, one in verdicts.items() if one["verdict"] != "kept"]
    assert broken == ["tools-added"]


def test_table(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    assert run(monkeypatch, "--all", folder) == 0
    said = capsys.readouterr().out
    assert "thinking-tool-then-user: the thinking of an earlier reply is left out" in said
    assert "mend, line 3: `loop.index0 > ns.last` is always `true`" in said
    assert len([line for line in said.splitlines() if line.startswith("│")]) == 3


def test_a_model_folder_gives_tokens(
    smollm2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, file = tmp_path / "a.json", tmp_path / "stripper.jinja"
    file.write_text(STRIPPER, "utf-8")
    assert run(monkeypatch, smollm2, "--json", out) == 0
    assert len(json.loads(out.read_text("utf-8"))["templates"]) == 1
    assert run(monkeypatch, "--tokenizer", smollm2, "--chat-template", file, "--json", out) == 0
    result = json.loads(out.read_text("utf-8"))
    lost = result["templates"]["stripper.jinja"]["thinking-tool-then-user"]
    assert 0 < lost["at"]["token"] < lost["at"]["char"]
    assert result["certificates"]["stripper.jinja"]["seam_family"] == "gpt2"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "name what to certify: MODEL_DIR, --chat-template FILE"),
        (["--all", "{tmp}/nothing"], "is no folder"),
        (["--all", "{tmp}"], "holds no .jinja file"),
        (["--all", "{tmp}", "--chat-template", "x"], "--all DIR takes neither"),
        (["--chat-template", "{tmp}/nothing.jinja"], "cannot be read"),
        (["--chat-template", "{tmp}/bad.txt"], "chat template, line 1"),
        (["--chat-template", "{tmp}/bytes.txt"], "cannot be read"),
        (["{tmp}"], "holds no chat template"),
    ],
)
def test_mistakes(
    arguments: list[str],
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    (tmp_path / "bad.txt").write_text("{% for %}", "utf-8")
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe\xff")
    assert run(monkeypatch, *[argument.format(tmp=tmp_path) for argument in arguments]) == 2
    said = capsys.readouterr().err.strip()
    assert line in said
    assert len(said.splitlines()) == 1


def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, page = tmp_path / "templates", tmp_path / "page.md"
    made.mkdir()
    few = {name: TEMPLATES[name] for name in ("full", "stripper", "mover", "ignorer")}
    for name, source in few.items():
        (made / f"{name}.jinja").write_text(source, "utf-8")
    assert run(monkeypatch, "--all", made, "--markdown", page, "--json", tmp_path / "a.json") == 0
    text = page.read_text("utf-8")
    assert "here of 4 templates" in text
    assert "thinking-on-tool-then-user: the thinking of an earlier reply is left out" in text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert {row.split(" | ")[0].removeprefix("| ") for row in rows} >= set(few)


@pytest.mark.long
def test_the_gallery_is_up_to_date(
    shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "templates.md"
    folder = shared_data / "templates"
    assert run(monkeypatch, "--all", folder, "--markdown", page, "--json", tmp_path / "a.json") == 0
    published = Path(__file__).parents[1] / "docs" / "templates.md"
    assert page.read_text("utf-8") == published.read_text("utf-8")
