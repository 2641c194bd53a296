"""`duramen export` as a user meets it."""

import json
from pathlib import Path

import pytest

from duramen.cli.main import run

LINES = [
    {"session_id": "s", "messages": [{"role": "user", "content": "Hi."}], "response": "Hello."},
    {
        "session_id": "s",
        "messages": [
            {"role": "user", "content": "Hi."},
            {"role": "assistant", "content": "Hello."},
            {"role": "user", "content": "Bye."},
        ],
        "response": "Bye.",
    },
]


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    file = tmp_path / "recorded.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    return file


def export(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr("sys.argv", ["duramen", "export", *map(str, arguments)])
    return run()


@pytest.mark.parametrize(
    ("form", "name", "files"),
    [
        ("mooncake", "trace.jsonl", ["trace.jsonl"]),
        ("otel", "spans.json", ["spans.json"]),
        ("aiperf", "inputs.json", ["inputs.json"]),
        ("aiperf", "payloads", ["payloads", "payloads/000000-s.jsonl"]),
        ("atif", "trajectory.json", ["trajectory.json"]),
        ("atif", "trajectories", ["trajectories", "trajectories/000000-s.json"]),
    ],
)
def test_files(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    recording: Path,
    tmp_path: Path,
    smollm2: Path,
    form: str,
    name: str,
    files: list[str],
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    more = ("--tokenizer", smollm2, "--block-size", 8) if form == "mooncake" else ()
    assert export(monkeypatch, recording, "--to", form, "--out", folder / name, *more) == 0
    made = sorted(str(file.relative_to(folder)) for file in folder.rglob("*"))
    assert made == files
    assert capsys.readouterr().out == f"2 calls of 1 sessions: {folder / name}\n"


def test_mistakes_are_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    recording: Path,
    tmp_path: Path,
) -> None:
    edited = LINES[1] | {"messages": [{"role": "user", "content": "Other."}]}
    recording.write_text("".join(json.dumps(line) + "\n" for line in [LINES[0], edited]))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "old.jsonl").write_text("{}")
    for arguments, expected in [
        (("atif", "--out", tmp_path / "one.json"), "are 2 trajectories, one file each"),
        (("aiperf", "--out", tmp_path / "full"), "is not empty: name a new folder"),
        (("aiperf", "--out", recording.with_suffix("")), None),
        (("aiperf", "--out", tmp_path / "no" / "where"), "its folder is not there"),
        (("otel", "--out", tmp_path / "no" / "x.json"), "its folder does not exist"),
        (("otel", "--out", tmp_path / "x.json", "--block-size", 8), "is for --to mooncake"),
    ]:
        code = export(monkeypatch, recording, "--to", *arguments)
        error = capsys.readouterr().err
        if expected is None:
            assert code == 0
        else:
            assert code == 2
            assert error.startswith("duramen: error: ")
            assert expected in error
            assert error.count("\n") == 1
