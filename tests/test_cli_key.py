"""`duramen key`: what it prints, and what it does to a key file."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from duramen.cli.main import run
from duramen.serving.gateway.key_file import key_line, read_keys
from duramen.serving.gateway.tenants import Tenants

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `duramen key`; its exit code, standard output and standard error."""

    def run_key(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["duramen", "key", *map(str, arguments)])
        code = run()
        return code, *capsys.readouterr()

    return run_key


def test_a_key_and_its_line(key: Run) -> None:
    code, out, err = key("alice")
    found = re.fullmatch(r"key for alice: +(dk-\S{43})\nline for the key file: (.+)\n", out)
    assert (code, err) == (0, "")
    assert found
    assert found[2] == key_line("alice", found[1])


def test_two_keys_differ(key: Run) -> None:
    assert key("alice") != key("alice")


def test_a_file_is_made_for_its_owner_alone(key: Run, tmp_path: Path) -> None:
    path = tmp_path / "keys"
    before = os.umask(0)
    try:
        code, out, _ = key("alice", "--file", path)
    finally:
        os.umask(before)
    found = re.fullmatch(rf"key for alice: (dk-\S{{43}})\nits line was added to {path}\n", out)
    assert code == 0
    assert found
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text() == f"{key_line('alice', found[1])}\n"
    assert Tenants.load(path, print).find(f"Bearer {found[1]}").name == "alice"


def test_a_second_key_leaves_the_first(key: Run, tmp_path: Path) -> None:
    path = tmp_path / "keys"
    key("alice", "--file", path)
    first = path.read_text()
    assert key("alice", "--file", path)[0] == 0
    assert path.read_text().startswith(first)
    assert [line.name for line in read_keys(path).values()] == ["alice", "alice"]


@pytest.mark.parametrize("name", ["", "a b", "-a", "ä", "a#b", "a" * 65, "a\n"])
def test_a_name_that_cannot_be(key: Run, tmp_path: Path, name: str) -> None:
    for more in ((), ("--file", tmp_path / "keys")):
        code, out, err = key(*more, "--", name)
        assert (code, out) == (2, "")
        assert err == (
            f"duramen: error: {name!r} cannot be a tenant's name: "
            "use 1 to 64 of A-Z a-z 0-9 . _ -, a letter or digit first\n"
        )
    assert not (tmp_path / "keys").exists()


def test_a_file_that_cannot_be_used_is_left_alone(key: Run, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("dk-alice\n")
    broken.chmod(0o600)
    for path, problem in (
        (broken, f"{broken} line 1 is not of the form"),
        (tmp_path, f"cannot read {tmp_path}: Is a directory"),
        (tmp_path / "no" / "keys", f"cannot write {tmp_path / 'no' / 'keys'}: No such file"),
    ):
        code, out, err = key("alice", "--file", path)
        assert (code, out) == (2, "")
        assert err.startswith(f"duramen: error: {problem}")
    assert broken.read_text() == "dk-alice\n"
