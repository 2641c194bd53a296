"""`duramen replay` as a user meets it: every mistake is one line, and Ctrl-C loses nothing."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

DURAMEN = Path(sys.executable).with_name("duramen")
HEAD = [
    "schema_version",
    "duramen_version",
    "command",
    "engine",
    "model",
    "unit_tokens",
    "arrival",
    "time_scale",
    "num_warm_ups",
    "num_repeats",
    "interrupted",
    "device",
    "layouts",
]
NOWHERE = "http://127.0.0.1:9"


def session_lines(num_calls: int) -> str:
    messages: list[dict[str, str]] = [{"role": "user", "content": "Count with me."}]
    lines = []
    for number in range(num_calls):
        reply = {"role": "assistant", "content": f"That makes {number}."}
        lines.append(json.dumps({"session_id": "s", "messages": messages, "response": reply}))
        messages = [*messages, reply, {"role": "user", "content": f"And after {number}?"}]
    return "\n".join(lines) + "\n"


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    file = tmp_path / "recorded.jsonl"
    file.write_text(session_lines(3))
    return file


def start(*arguments: object, folder: Path) -> "subprocess.Popen[str]":
    """Temporary files go to `folder`: an engine's are there while it lives."""
    return subprocess.Popen(
        [DURAMEN, "replay", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(folder)},
    )


def fails(folder: Path, *arguments: object) -> str:
    """The one line that a mistake gives. Nothing is printed beside it, and no engine is left."""
    with start(*arguments, folder=folder) as process:
        output, errors = process.communicate(timeout=200)
    assert (process.returncode, output) == (2, ""), errors
    assert errors.startswith("duramen: error: ")
    assert errors.count("\n") == 1
    assert list(folder.glob("duramen-*")) == []
    return errors


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ('{"messages": [{"role": "user", "con', "bad.jsonl:1: the JSON is cut off in the middle"),
        (session_lines(2) + '{"messages": [\n', "bad.jsonl:3: the JSON is cut off in the middle"),
        ('{"a": 1}', "bad.jsonl:1: unknown form, an object with a"),
        (
            '{"timestamp": 0, "input_length": 9, "output_length": 1, "hash_ids": [1]}',
            "use `duramen simulate` for it",
        ),
        ('{"messages": [{"role": "user", "content": "Hi"}]}\n', None),
        ('{"instance_id": "a", "history": []}', "these recordings hold no call to a model"),
    ],
)
def test_bad_recordings(tmp_path: Path, smollm2: Path, content: str, line: str | None) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text(content)
    if line is None:  # a request that nobody answered is a call
        with start(file, "--json", "-", folder=tmp_path) as process:
            output, _ = process.communicate(timeout=60)
        assert json.loads(output)["layouts"]["stable"]["num_calls"] == 1
    else:
        assert line in fails(tmp_path, file)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "name recorded trajectories to replay, or take the package's: --demo"),
        (["no-such.jsonl"], "no-such.jsonl is no file"),
        (["--demo", "--model", "no-such"], "unknown model no-such: name a model's folder"),
        (["--demo", "--tokenizer", "no-such"], "no-such is no folder"),
        (["--demo", "--chat-template", "no-such"], "chat template no-such cannot be read"),
        (
            ["--demo", "--layout", "zigzag"],
            "unknown layout 'zigzag': take one of recorded, clock, ",
        ),
        (["--demo", "--kv-tokens", "many"], "many is neither a number"),
        (["--demo", "--kv-tokens", 3], "a cache of 3 tokens holds no unit of 16"),
        (["--demo", "--json", "/no/such/file"], "cannot write /no/such/file: its folder does not"),
        (["--demo", "--json", "/"], "cannot write /: it is a folder"),
        (
            ["--demo", "--overflow", "fail", "--kv-tokens", 64],
            "leave no room: larger_than_pool, 64",
        ),
    ],
)
def test_mistakes(tmp_path: Path, smollm2: Path, arguments: list[object], line: str) -> None:
    assert line in fails(tmp_path, *arguments)


@pytest.mark.parametrize(
    "option",
    [
        ["--upstream", NOWHERE],
        ["--port", 8000],
        ["--reply", "live"],
        ["--max-reply", 9],
        ["--temperature", 1],
        ["--seed", 1],
        ["--concurrency", 2],
        ["--arrival", "recorded"],
        ["--warm-up", 0],
        ["--repeat", 2],
    ],
)
def test_what_only_a_live_engine_can(tmp_path: Path, option: list[object]) -> None:
    assert f"{option[0]} " in (line := fails(tmp_path, "--demo", *option))
    assert "needs --engine live" in line


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--arrival", "recorded", "--reply", "live"], "--reply live waits for replies"),
        (["--arrival", "recorded", "--concurrency", 2], "--concurrency is for --arrival closed"),
        (["--arrival", "recorded", "--time-scale", 0], "a time scale of 0.0 is no positive number"),
        (["--arrival", "recorded", "--time-scale", "nan"], "of nan is no positive number"),
        (["--time-scale", 2], "--time-scale needs --arrival recorded"),
        (["--arrival", "sometimes"], "'sometimes' is not one of 'closed', 'recorded'"),
    ],
)
def test_recorded_times(tmp_path: Path, options: list[object], line: str) -> None:
    assert line in fails(tmp_path, "--demo", "--engine", "live", *options)


def test_upstream(tmp_path: Path, smollm2: Path) -> None:
    upstream = ["--demo", "--engine", "live", "--upstream", NOWHERE]
    assert "needs the served model's tokenizer: --tokenizer DIR" in fails(tmp_path, *upstream)
    known = [*upstream, "--tokenizer", smollm2]
    assert f"no answer from the engine at {NOWHERE}" in fails(tmp_path, *known)
    for option in (["--kv-tokens", 999], ["--port", 8000]):
        assert f"{option[0]} is for an engine that is started" in fails(tmp_path, *known, *option)


@pytest.fixture
def model_copy(tmp_path: Path, tiny_model: Path) -> Path:
    return Path(shutil.copytree(tiny_model, tmp_path / "copy"))


@pytest.mark.parametrize(
    ("file", "content", "line"),
    [
        ("tokenizer.json", None, "tokenizer.json is missing"),
        ("tokenizer.json", "{", "tokenizer.json cannot be read"),
        ("config.json", "{", "a config file is broken JSON"),
        ("generation_config.json", "{", "a config file is broken JSON"),
        ("chat_template.jinja", "{% if %}", "chat template, line 1"),
    ],
)
def test_a_model_folder_with_a_broken_file(
    tmp_path: Path, model_copy: Path, file: str, content: str | None, line: str
) -> None:
    (model_copy / file).unlink(missing_ok=True)
    if content is not None:
        (model_copy / file).write_text(content)
    assert line in fails(tmp_path, "--demo", "--model", model_copy)


LIVE = ["--demo", "--engine", "live", "--reply", "live", "--max-reply", "4"]


@pytest.mark.live
def test_an_engine_that_will_not_start(tmp_path: Path, model_copy: Path) -> None:
    (model_copy / "config.json").write_text('{"model_type": "no-such-model"}')
    line = fails(tmp_path, *LIVE, "--model", model_copy)
    assert "vLLM did not start. Its log says: " in line
    assert "no-such-model" in line


@pytest.mark.live
def test_what_is_wrong_is_said_before_an_engine_starts(tmp_path: Path, tiny_model: Path) -> None:
    live = [*LIVE, "--model", tiny_model]
    assert "multiples of 32: not 48" in fails(tmp_path, *live, "--unit", 48)
    assert "a cache of 31 tokens holds no unit of 32" in fails(tmp_path, *live, "--kv-tokens", 31)
    alone = ["--demo", "--engine", "live", "--tokenizer", tiny_model]
    assert "needs the model to start: --model DIR" in fails(tmp_path, *alone)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert f"port {port} is taken" in fails(tmp_path, *live, "--port", port)


def test_json_has_the_agreed_form(tmp_path: Path, recording: Path, smollm2: Path) -> None:
    file = tmp_path / "result.json"
    arguments = ["--layout", "clock", "--layout", "stable", "--layout", "clock", "--json", file]
    with start(recording, *arguments, folder=tmp_path) as process:
        assert process.communicate(timeout=60) == ("", "")
    found = json.loads(file.read_text())
    assert list(found) == HEAD
    assert list(found["layouts"]) == ["clock", "stable"]
    assert (found["engine"], found["unit_tokens"]) == ("cache model of vLLM 0.32", 16)
    assert (found["command"], found["interrupted"]) == ("replay", False)
    assert (found["arrival"], found["time_scale"]) == ("closed", None)
    assert (found["num_warm_ups"], found["num_repeats"]) == (0, 1)
    stable = found["layouts"]["stable"]
    assert (stable["num_sessions"], stable["num_calls"], stable["num_skipped"]) == (1, 3, {})
    assert stable["prediction_mismatches"] is None  # nothing ran that could contradict
    assert stable["breaks"] == []
    assert stable["makespan_s"] is stable["engine_ttft_s"] is stable["open_loop"] is None
    assert stable["repeats"] is stable["spread"] is stable["same_cached_tokens"] is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["recorded.jsonl", "result.json"]


def test_the_table_shows_what_was_skipped(tmp_path: Path, recording: Path, smollm2: Path) -> None:
    with start(recording, "--kv-tokens", 48, folder=tmp_path) as process:
        table, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    assert "recorded: 1 of 3 calls skipped, larger than pool" in table
    assert "makespan" not in table


def wait_for(condition: Callable[[], Any], limit_s: float = 200) -> Any:
    deadline_s = time.monotonic() + limit_s
    while not (found := condition()):
        assert time.monotonic() < deadline_s, "waited in vain"
        time.sleep(0.05)
    return found


def processes_in(folder: Path) -> dict[int, str]:
    """Running processes whose command line names `folder`: an engine's events go there."""
    found = {}
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it ended while we looked
        if str(folder) in line and "duramen replay" not in line:
            found[int(file.parent.name)] = line
    return found


def is_server(command_line: str) -> bool:
    """The one that leads the engine's process group, not the guard that started it."""
    return "api_server" in command_line and "guard" not in command_line


def engine_log(folder: Path) -> str:
    return "".join(log.read_text(errors="replace") for log in folder.glob("duramen-vllm-*/*.log"))


@pytest.fixture
def engine_folder(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "tmp"
    folder.mkdir()
    yield folder
    wait_for(lambda: not processes_in(folder), 30)
    assert list(folder.glob("duramen-*")) == []


@pytest.mark.live
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
@pytest.mark.parametrize(
    "end", ["ctrl-c", pytest.param("ctrl-c twice", marks=pytest.mark.long), "the engine dies"]
)
def test_an_end_in_the_middle_keeps_what_was_done(
    tmp_path: Path, tiny_model: Path, engine_folder: Path, end: str
) -> None:
    """In the second of three layouts, while the engine works."""
    file = tmp_path / "result.json"
    layouts = ["--layout", "stable", "--layout", "clock", "--layout", "recorded", "--json", file]
    with start(*LIVE, "--limit", 2, "--model", tiny_model, *layouts, folder=engine_folder) as run:
        resets = "POST /reset_prefix_cache"
        wait_for(lambda: engine_log(engine_folder).count(resets) == 2 or run.poll() is not None)
        num_done = engine_log(engine_folder).count("POST /v1/chat/completions")
        wait_for(
            lambda: engine_log(engine_folder).count("POST /v1/chat/completions") > num_done + 2
        )
        [server] = [p for p, line in processes_in(engine_folder).items() if is_server(line)]
        if end == "the engine dies":
            os.killpg(server, signal.SIGKILL)
        else:
            run.send_signal(signal.SIGINT)
        if end == "ctrl-c twice":
            time.sleep(0.2)  # while the engine is being stopped
            run.send_signal(signal.SIGINT)
        output, errors = run.communicate(timeout=60)
    assert output == ""
    assert errors.count("\n") == 1
    if end == "the engine dies":
        assert run.returncode == 2
        assert errors.startswith("duramen: error: ")
    else:
        assert (run.returncode, errors) == (130, "duramen: interrupted\n")
    found = json.loads(file.read_text())
    assert found["interrupted"] is True
    assert list(found["layouts"]) == ["stable", "clock"]
    stable, clock = found["layouts"].values()
    assert stable["num_calls"] == 20
    assert 0 < clock["num_calls"] < 20
    assert clock["cached_tokens"] + clock["uncached_tokens"] == clock["prompt_tokens"] > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["result.json", "tmp"]


@pytest.mark.live
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
def test_ctrl_c_between_calls_at_recorded_times(
    tmp_path: Path, tiny_model: Path, engine_folder: Path
) -> None:
    """The first two of five sessions; most of their calls are not due yet."""
    file = tmp_path / "result.json"
    arguments = ["--demo", "--engine", "live", "--max-reply", "4", "--limit", 2, "--json", file]
    arguments += ["--arrival", "recorded", "--time-scale", "0.2", "--model", tiny_model]
    with start(*arguments, folder=engine_folder) as run:
        calls = "POST /v1/chat/completions"
        wait_for(lambda: engine_log(engine_folder).count(calls) > 4 or run.poll() is not None)
        run.send_signal(signal.SIGINT)
        output, errors = run.communicate(timeout=60)
    assert (run.returncode, output, errors) == (130, "", "duramen: interrupted\n")
    found = json.loads(file.read_text())
    assert (found["interrupted"], found["arrival"], found["time_scale"]) == (True, "recorded", 0.2)
    assert (found["num_warm_ups"], found["num_repeats"]) == (1, 1)
    [recorded] = found["layouts"].values()
    assert 0 < recorded["num_calls"] < 20
    assert recorded["engine_ttft_s"] is None  # the run did not come to its end
    assert recorded["open_loop"]["max_in_flight"] > 0


@pytest.mark.live
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
def test_ctrl_c_while_the_engine_starts(
    tmp_path: Path, tiny_model: Path, engine_folder: Path
) -> None:
    file = tmp_path / "result.json"
    with start(*LIVE, "--model", tiny_model, "--json", file, folder=engine_folder) as run:
        wait_for(lambda: processes_in(engine_folder))
        run.send_signal(signal.SIGINT)
        output, errors = run.communicate(timeout=60)
    assert (run.returncode, output, errors) == (130, "", "duramen: interrupted\n")
    assert not file.exists()
