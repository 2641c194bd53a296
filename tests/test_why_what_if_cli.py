"""`duramen why --what-if` from the command line: tables, JSON, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner
from why_cases import SYSTEM

from duramen.cli.main import app
from duramen.layout.errors import LayoutError, PriceError, TrajectoryError

PAYER = "openai/gpt-5.4"


def run(*arguments: object) -> Any:
    result = CliRunner().invoke(app, ["why", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def write_log(path: Path, lines: list[Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def agent_lines(name: str, num_calls: int, content: Any) -> list[Any]:
    """An agent's calls, each with one more tool output."""
    messages: list[Any] = [SYSTEM, {"role": "user", "content": "Read all the files."}]
    lines = []
    for number in range(num_calls):
        used = {"name": "read", "arguments": f'{{"path": "{number}.txt"}}'}
        call = {"id": f"c{number}", "type": "function", "function": used}
        reply = {"role": "assistant", "content": None, "tool_calls": [call]}
        lines.append({"session_id": name, "messages": [*messages], "response": reply})
        messages += [reply, {"role": "tool", "tool_call_id": f"c{number}", "content": content}]
    return lines


@pytest.fixture
def log(smollm2: Path, tmp_path: Path) -> Path:
    lines = agent_lines("long", 8, "The lamp of the pier is lit. " * 40)
    lines += agent_lines("short", 3, "Lit.")
    return write_log(tmp_path / "log.jsonl", lines)


def test_the_json(log: Path) -> None:
    plan = ("--what-if", "drop-tool-outputs:k=2")
    result = run("--log", log, *plan, "--price", PAYER, "--unit", 64, "--json", "-")
    found = json.loads(result.stdout)
    assert found["command"] == "why"
    assert found["unit_tokens"] == 64
    answer = found["what_if"]
    assert answer["plan"] == "drop-tool-outputs:k=2"
    gpus = {f"{gpu}/llama-3.1-8b-bf16@2026-11-09" for gpu in ("h100-sxm", "h200-sxm", "l4")}
    assert set(answer["payers"]) == set(answer["totals"]) == {PAYER, *gpus}
    long, short = answer["sessions"]
    assert (long["session"], long["num_calls"], long["changes"]) == ("long", 8, True)
    assert (short["changes"], short["best"], short["always"]) == (False, {}, None)
    assert [moment["call"] for moment in long["moments"]] == [3, 4, 5, 6, 7]
    best = long["best"][PAYER]
    [tried] = [each for each in long["tried"] if each["call"] == best["call"]]
    assert tried["computed_tokens_now"] > 0
    assert tried["dropped_cached_tokens_now"] > tried["computed_tokens_now"]
    assert tried["dropped_cached_tokens_now"] % 64 == 0
    assert best["num_later_calls"] == 7 - best["call"]
    assert best["net_usd"] == pytest.approx(
        best["saved_usd_per_call"] * best["num_later_calls"] - best["now_usd"]
    )
    assert long["always"]["num_calls_that_compute_more"] == 5
    assert answer["totals"][PAYER]["net_usd"] == best["net_usd"]
    assert best["now_s"] is None
    assert all(long["best"][gpu]["now_s"] is not None for gpu in gpus)
    assert any("10 s after" in note for note in answer["notes"])


def test_the_tables(log: Path) -> None:
    said = run("--log", log, "--what-if", "drop-tool-outputs:k=2", "--tables").stdout
    for words in (
        "drop-tool-outputs:k=2: changes 1 of 2 sessions",
        "long: 8 calls",
        "token for token, pruning at call",
        "as a rolling rule: 5 calls compute more",
        "anthropic/claude-sonnet-5-5+1h",
        "l4/llama-3.1-8b-bf16@2026-11-09",
        "all sessions, each at its best call",
        "replies are taken as recorded",
    ):
        assert words in said


def test_a_session_is_one_line(log: Path) -> None:
    said = run("--log", log, "--what-if", "drop-tool-outputs:k=2", "--price", PAYER).stdout
    [line] = [line for line in said.splitlines() if line.startswith("long: ")]
    assert f"{PAYER}: pruning at call " in line
    assert "token for token" not in said
    assert "all sessions, each at its best call" in said


def test_piped_figures_are_whole(log: Path) -> None:
    said = run("--log", log, "--what-if", "drop-tool-outputs:k=2").stdout
    assert "\u2026" not in said
    assert "net where it gains" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("a", "b", "--what-if", "move-clock"), "goes with --log"),
        (("--what-if", "move-clock"), "goes with --log"),
        (("--log", "x", "--what-if", "move-clock", "--out", "page.html"), "writes no --out"),
    ],
)
def test_mistakes(arguments: tuple[str, ...], said: str) -> None:
    result = CliRunner().invoke(app, ["why", *arguments])
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())


def test_what_is_refused(log: Path, tmp_path: Path) -> None:
    with pytest.raises(LayoutError, match="unknown what-if 'prune'"):
        run("--log", log, "--what-if", "prune")
    with pytest.raises(PriceError, match="no price for"):
        run("--log", log, "--what-if", "move-clock", "--price", "us/none")
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"timestamp": 0, "input_length": 9, "output_length": 1, "hash_ids": [1]}\n')
    with pytest.raises(TrajectoryError, match="bears no text"):
        run("--log", trace, "--what-if", "move-clock")
