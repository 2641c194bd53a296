"""scripts/bench as far as it goes without running a benchmark."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def bench(*arguments: str) -> tuple[int, str, str]:
    done = subprocess.run([ROOT / "scripts/bench", *arguments], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("arguments", [("--help",), ("why", "--help"), ("-h", "nothing")])
def test_help_runs_nothing(arguments: tuple[str, ...]) -> None:
    code, out, err = bench(*arguments)
    names = [line.split()[0] for line in out.splitlines()[1:]]
    assert (code, err) == (0, "")
    assert out.startswith("usage: scripts/bench [NAME...]\n")
    files = sorted((ROOT / "scripts").glob("bench_*.py"))
    assert names == [file.stem.removeprefix("bench_") for file in files]


def test_a_name_that_no_benchmark_has() -> None:
    said = "scripts/bench: error: no benchmark is called nothing; scripts/bench --help lists them\n"
    assert bench("why", "nothing") == (2, "", said)
