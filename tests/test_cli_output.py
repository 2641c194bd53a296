"""What every command does where its output cannot be written."""

import subprocess
import sys
from pathlib import Path

import pytest

from duramen.cli.output import write_text
from duramen.layout.errors import DuramenError

DURAMEN = Path(sys.executable).with_name("duramen")
FULL = Path("/dev/full")
SAID = "No space left on device\n"


def duramen(*arguments: object) -> tuple[int | None, str]:
    """With a standard output that takes nothing."""
    with FULL.open("w") as full:
        done = subprocess.run(
            [str(DURAMEN), *map(str, arguments)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "arguments", [("--version",), ("--help",), ("doctor",), ("doctor", "--json", "-")]
)
def test_a_full_disk_behind_standard_output(arguments: tuple[str, ...]) -> None:
    assert duramen(*arguments) == (2, f"duramen: error: cannot write the output: {SAID}")


def test_more_than_a_buffer_of_output(tmp_path: Path) -> None:
    (tmp_path / "many.md").write_text("It is 10:22:01 now.\n" * 200, "utf-8")
    code, err = duramen("lint", tmp_path, "--json", "-")
    assert (code, err) == (2, f"duramen: error: cannot write the output: {SAID}")


@pytest.mark.parametrize("option", ["--json", "--sarif", "--junit"])
def test_a_full_disk_behind_a_file(tmp_path: Path, option: str) -> None:
    (tmp_path / "a.md").write_text("You help.\n", "utf-8")
    code, err = duramen("lint", tmp_path, option, FULL)
    assert (code, err) == (2, f"duramen: error: cannot write {FULL}: {SAID}")


def test_a_device_is_written_and_not_replaced() -> None:
    write_text("x", Path("/dev/null"))
    assert Path("/dev/null").is_char_device()
    with pytest.raises(DuramenError, match="cannot write /dev/full: No space"):
        write_text("x", FULL)
