"""The command line as a user meets it: exit codes, one-line errors, and what `doctor` reports."""

import io
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest
from rich.console import Console

from duramen.cli.doctor import abilities, show
from duramen.cli.main import COMMANDS, Entry, run
from duramen.serving.probe import DISTRIBUTIONS, CachedModel, Engine, Facts, Gpu, Machine

DURAMEN = Path(sys.executable).with_name("duramen")
HEAVY = {"aiohttp", "numpy", "tokenizers", "torch", "transformers", "vllm", "zmq"}

BARE = Facts(
    python="3.11.7",
    packages=dict.fromkeys(DISTRIBUTIONS),
    engine=None,
    machine=Machine("Linux", "x86_64", "a CPU", 2, 2**34, ("avx2",), ()),
    flash_attention=None,
    models=(),
)
MODEL = CachedModel("smollm2", Path("/cache/smollm2"), 1)
CPU_BUILD = Engine("cpu", "0.32.0")
GPU_BUILD = Engine("gpu", "0.32.0")


def duramen(*arguments, **environment):
    return subprocess.run(
        [DURAMEN, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )


def test_version():
    done = duramen("--version")
    assert (done.returncode, done.stdout) == (0, f"duramen {version('duramen')}\n")


def test_help_lists_every_command():
    done = duramen("--help")
    assert done.returncode == 0
    assert [name for name in COMMANDS if f" {name} " not in done.stdout] == []


def test_help_imports_nothing_heavy():
    code = "import sys; from duramen.cli.main import run; run(); print(*sys.modules, sep='\\n')"
    command = [sys.executable, "-c", code, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert HEAVY & set(done.stdout.splitlines()) == set()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_help(name):
    done = duramen(name, "--help")
    assert done.returncode == 0, done.stderr
    assert f"Usage: duramen {name}" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["simulat"], "No such command 'simulat'. Did you mean 'simulate'?"),
        (["--no-such"], "No such option: --no-such"),
        (["doctor", "--no-such"], "No such option: --no-such"),
        (["doctor", "--json", "/no/such/x"], "cannot write /no/such/x: No such file or directory"),
    ],
)
def test_a_mistake_gives_one_line(arguments, line):
    done = duramen(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"duramen: error: {line}\n"


@pytest.fixture
def run_raising(monkeypatch, tmp_path):
    """Run `duramen broken`, a command whose body is the given line."""

    def run_body(body):
        (tmp_path / "broken_command.py").write_text(f"def broken():\n    {body}\n")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "broken_command", raising=False)
        monkeypatch.setitem(COMMANDS, "broken", Entry("broken_command", "broken", "Fail."))
        monkeypatch.setattr(sys, "argv", ["duramen", "broken"])
        return run()

    return run_body


def test_an_error_of_ours_gives_one_line(run_raising, capsys):
    body = "from duramen.layout.errors import LayoutError; raise LayoutError('no room: 5 > 4')"
    assert run_raising(body) == 2
    assert capsys.readouterr() == ("", "duramen: error: no room: 5 > 4\n")


def test_an_interrupt_gives_one_line(run_raising, capsys):
    assert run_raising("raise KeyboardInterrupt") == 130
    assert capsys.readouterr() == ("", "duramen: interrupted\n")


def test_a_bug_is_not_hidden(run_raising):
    with pytest.raises(ZeroDivisionError):
        run_raising("1 / 0")


def test_a_reader_that_has_gone_is_no_error():
    reading, writing = os.pipe()
    os.close(reading)
    command = [DURAMEN, "doctor", "--json", "-"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


def test_doctor_as_json():
    report = json.loads(duramen("doctor", "--json", "-").stdout)
    assert list(report) == [
        "schema_version",
        "duramen_version",
        "command",
        "python",
        "engine",
        "packages",
        "machine",
        "flash_attention",
        "models",
        "abilities",
    ]
    assert report["duramen_version"] == version("duramen")
    assert report["packages"]["tokenizers"] == version("tokenizers")
    assert report["machine"]["num_cores"] == os.cpu_count()
    assert report["abilities"][0] == {
        "name": "simulate",
        "command": "simulate",
        "ready": True,
        "lacks": [],
    }


def test_doctor_writes_json_to_a_file(tmp_path):
    file = tmp_path / "doctor.json"
    assert duramen("doctor", "--json", str(file)).stdout == ""
    assert json.loads(file.read_text())["command"] == "doctor"


@pytest.mark.parametrize(
    ("function", "found"), [("flash_attn_varlen_func", "flash_attn"), ("another_function", None)]
)
def test_doctor_tries_flash_attention(tmp_path, function, found):
    (tmp_path / "flash_attn.py").write_text(f"def {function}(): ...\n")
    report = json.loads(duramen("doctor", "--json", "-", PYTHONPATH=str(tmp_path)).stdout)
    assert report["flash_attention"] == found


def test_doctor_lists_whole_models_only(tmp_path):
    for name, marker in [("whole", "complete.json"), ("broken", "config.json")]:
        (tmp_path / "models" / name).mkdir(parents=True)
        (tmp_path / "models" / name / marker).write_text("{}")
    report = json.loads(duramen("doctor", "--json", "-", DURAMEN_CACHE=str(tmp_path)).stdout)
    whole = tmp_path / "models" / "whole"
    assert report["models"] == [{"name": "whole", "path": str(whole), "size_bytes": 2}]


H100 = replace(BARE.machine, gpus=(Gpu("NVIDIA H100", 80 * 2**30),))
SIMULATED = ["simulate", "replay_simulate", "replay_upstream"]


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (BARE, ["simulate"]),
        (replace(BARE, models=(MODEL,)), SIMULATED),
        (replace(BARE, engine=CPU_BUILD), ["simulate"]),
        (replace(BARE, models=(MODEL,), engine=CPU_BUILD), [*SIMULATED, "replay_live_cpu"]),
        (replace(BARE, models=(MODEL,), engine=GPU_BUILD), SIMULATED),  # no GPU
        (replace(BARE, models=(MODEL,), machine=H100), SIMULATED),  # no engine
        (
            replace(BARE, models=(MODEL,), engine=GPU_BUILD, machine=H100),
            [*SIMULATED, "replay_live_gpu"],
        ),
        (
            replace(
                BARE,
                models=(MODEL,),
                engine=CPU_BUILD,
                machine=replace(BARE.machine, cpu_flags=()),
            ),
            SIMULATED,  # the CPU is too old
        ),
    ],
)
def test_what_can_run(facts, expected):
    assert [ability.name for ability in abilities(facts) if ability.ready] == expected


def test_what_lacks_comes_with_the_way_to_get_it():
    unseen = replace(BARE, machine=replace(BARE.machine, gpus=None))
    console = Console(file=io.StringIO(), width=200)
    show(unseen, console)
    text = re.sub(r"\s+", " ", console.file.getvalue())
    assert "GPUs cannot be seen: pip install '.[vllm]' in a checkout of Duramen" in text
    assert "vLLM's CPU build is not installed: scripts/setup, in a checkout of Duramen" in text
    mend = "pip install '.[model]' in a checkout of Duramen, then duramen model fetch"
    assert f"no model in the cache: {mend}" in text
