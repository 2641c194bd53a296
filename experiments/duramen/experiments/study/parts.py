"""Layouts that are done, kept on disk so that a study that was cut short goes on where it was.

A part belongs to one layout and to everything that its figures depend on, by a digest of them.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from shutil import rmtree
from typing import Any

import msgspec

import duramen.experiments
import duramen.layout
import duramen.serving.kv
from duramen.experiments.layouts.catalogue import Layout
from duramen.experiments.layouts.model import Model
from duramen.experiments.study.results import LayoutResult
from duramen.experiments.trajectory import Session
from duramen.layout.errors import DuramenError

PREFIX = ".duramen-parts-"


@dataclass(frozen=True)
class Parts:
    """Files in `folder`, one per layout."""

    folder: Path

    @classmethod
    def open(cls, folder: Path, digest: str) -> "Parts":
        """The parts of what `digest` identifies; those of earlier choices are removed."""
        for other in folder.glob(f"{PREFIX}*"):
            if other.name != PREFIX + digest and other.is_dir():
                rmtree(other, ignore_errors=True)
        return cls(folder / (PREFIX + digest))

    def load(self, layout: Layout) -> LayoutResult | None:
        path = self._path(layout)
        try:
            return msgspec.json.decode(path.read_bytes(), type=LayoutResult)
        except (FileNotFoundError, msgspec.MsgspecError):  # not there, or half a file
            return None

    def save(self, layout: Layout, result: LayoutResult) -> None:
        """Whole or not at all. Raises DuramenError where it cannot be written."""
        path = self._path(layout)
        part = path.with_suffix(f".{os.getpid()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            part.write_bytes(msgspec.json.encode(result))
            part.replace(path)
        except OSError as error:
            raise DuramenError(f"cannot write {path}: {error.strerror}") from error

    def _path(self, layout: Layout) -> Path:
        digest = blake2b(layout.label.encode(), digest_size=4).hexdigest()
        return self.folder / f"{layout.name.value}-{digest}.json"


def digest_of(sessions: Sequence[Session], model: Model, choices: Any) -> str:
    """Identifies what figures depend on: the recordings, the model's text files, `choices` (JSON),
    and the code itself."""
    digest = blake2b(digest_size=16)
    encode = msgspec.json.Encoder(enc_hook=str).encode
    tokenizer = model.tokenizer
    for value in (choices, model.template.source, tokenizer.spec, tokenizer.config):
        digest.update(encode(value))
    digest.update(encode((sorted(model.turn_end_ids), dict(model.arguments))))
    for source in _sources():
        digest.update(source.read_bytes())
    for session in sessions:
        digest.update(encode((session.session_id, session.start_time_s, session.tools)))
        number_of: dict[int, int] = {}  # messages are shared between calls
        for call in session.calls:
            new = [number_of.get(id(message), message) for message in call.messages]
            for message in call.messages:
                number_of.setdefault(id(message), len(number_of))
            digest.update(encode((new, call.reply, call.time_s, call.tools)))
    return digest.hexdigest()


def _sources() -> list[Path]:
    """The files whose code makes the figures; the page only shows them."""
    packages = (duramen.experiments, duramen.layout, duramen.serving.kv)
    roots = [Path(root) for package in packages for root in package.__path__]
    files = [file for root in roots for file in root.rglob("*.py")]
    return sorted(file for file in files if file.parent.name != "page")
