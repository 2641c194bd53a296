"""`duramen certify` from the outside."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from certify_cases import FULL, STRIPPER, TEMPLATES

from duramen.cli import certify_bounded, main
from duramen.cli.certify_bounded import Bounds, certified_within
from duramen.layout.certify.certified import certified
from duramen.layout.certify.transitions import TRANSITIONS
from duramen.layout.errors import TokenizerError
from duramen.layout.tokenizer import Tokenizer

DOUBLER = (
    "{% set ns = namespace(s='abc') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}"
    "{% endfor %}{{ ns.s }}"
)
ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{{ i }}{% endfor %}{% endfor %}"
SMALL = Bounds(cpu_s=2, memory_bytes=256 << 20)
needs_limits = pytest.mark.skipif(
    sys.platform != "linux", reason="memory and processor time are bounded on Linux only"
)
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


def test_a_mended_file_says_what_was_changed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(monkeypatch, "--all", folder, "--out", tmp_path, "--json", tmp_path / "a.json") == 0
    first, _, rest = (tmp_path / "stripper.mended.jinja").read_text("utf-8").partition("\n")
    assert first.startswith("{# Mended by duramen ")
    for words in ("from stripper.jinja", *GAINED, "line 3: `loop.index0 > ns.last` is always"):
        assert words in first
    assert first.endswith(" #}")
    assert "{% if m.reasoning_content %}" in rest  # and not: `m.reasoning_content and true`


@pytest.mark.parametrize(
    ("steps", "code"),
    [(["user-turn"], 0), (["user-turn", GAINED[0]], 1), ([], 0)],
)
def test_required_steps(
    folder: Path, monkeypatch: pytest.MonkeyPatch, steps: list[str], code: int
) -> None:
    required = [word for step in steps for word in ("--require", step)]
    assert run(monkeypatch, "--chat-template", folder / "stripper.jinja", *required) == code


def test_one_template_needs_no_legend(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    assert run(monkeypatch, "--chat-template", folder / "stripper.jinja") == 0
    said = capsys.readouterr().out
    assert said.count("│ user-turn ") == 1
    assert "  1 user-turn: " not in said


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
        (["{tmp}", "--require", "user-turns"], "no step is called 'user-turns': user-turn"),
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
    assert "of 4 have a small proven mend, " in text
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


def test_in_bounds_nothing_changes(smollm2: Path) -> None:
    for source in (FULL, STRIPPER, "{% for %}"):
        assert certified_within(source, None) == certified(source)
    tokenizer = Tokenizer.load(smollm2, STRIPPER)
    assert certified_within(STRIPPER, smollm2) == certified(STRIPPER, tokenizer)


def test_a_mistake_comes_back_from_the_child(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="tokenizer"):
        certified_within(FULL, tmp_path)


@needs_limits
@pytest.mark.parametrize(
    "source",
    ["{{ '%09999999999d' % 1 }}", "{{ 'a'.center(10**10) }}", "{{ 'x' * 10**10 }}", DOUBLER],
)
def test_a_template_that_eats_memory(source: str) -> None:
    found = certified_within(source, None, SMALL)
    why = "the chat template takes more than 0.25 GiB of memory"
    assert found.refused == why
    assert list(found.outcomes) == [t.name for t in TRANSITIONS]
    assert {(one.verdict, one.why) for one in found.outcomes.values()} == {("refused", why)}


@needs_limits
def test_one_that_eats_time_is_one_row_or_one_line(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(certify_bounded, "BOUNDS", SMALL)
    bad, out = folder / "endless.jinja", tmp_path / "a.json"
    bad.write_text(ENDLESS.replace("{{ i }}", ""), "utf-8")
    why = "the chat template takes more than 2 s of processor time"
    assert run(monkeypatch, "--chat-template", bad) == 2
    assert capsys.readouterr().err.strip() == f"duramen: error: {why}"
    (folder / "full.jinja").rename(folder / "last.jinja")
    assert run(monkeypatch, "--all", folder, "--json", out) == 0
    verdicts = json.loads(out.read_text("utf-8"))["templates"]
    assert verdicts["endless.jinja"]["user-turn"]["verdict"] == "refused"
    assert verdicts["endless.jinja"]["user-turn"]["why"] == why
    assert verdicts["last.jinja"]["user-turn"]["verdict"] == "kept"


@contextmanager
def certifying(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A run that does not end by itself, and the id of its child."""
    file = tmp_path / "endless.jinja"
    file.write_text(ENDLESS, "utf-8")
    command = [sys.executable, "-m", "duramen.cli.main", "certify", "--chat-template", str(file)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, process_group=0) as started:
        children = Path(f"/proc/{started.pid}/task/{started.pid}/children")
        while not (child := children.read_text("ascii").split()):
            assert started.poll() is None
            time.sleep(0.01)
        yield started, int(child[0])


def is_over(process_id: int) -> bool:
    """Gone, or init has yet to reap it."""
    try:
        state = Path(f"/proc/{process_id}/stat").read_text("utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state.rpartition(")")[2].split()[0] in "ZX"


def assert_soon_over(child: int) -> None:
    for _ in range(1000):  # far less than the processor time that the child may take
        if is_over(child):
            return
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    pytest.fail("the child has outlived its parent")


@needs_limits
def test_interrupted_in_native_code(tmp_path: Path) -> None:
    with certifying(tmp_path) as (started, child):
        os.kill(started.pid, signal.SIGINT)  # to the parent alone: it must end its child
        _, said = started.communicate()
    assert (started.returncode, said.decode().strip()) == (130, "duramen: interrupted")
    assert_soon_over(child)


@needs_limits
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_killed_it_leaves_no_child(tmp_path: Path, number: signal.Signals) -> None:
    with certifying(tmp_path) as (started, child):
        os.kill(started.pid, number)
        started.wait()
    assert_soon_over(child)
