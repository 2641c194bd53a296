"""Writes small recordings and reads them again."""

import json
from pathlib import Path
from typing import Any

from duramen.experiments.importers.read import read_sessions
from duramen.experiments.trajectory import Session


def read_lines(folder: Path, values: list[Any], name: str = "log.jsonl") -> list[Session]:
    """A file of one JSON value a line."""
    path = folder / name
    path.write_text("".join(json.dumps(value) + "\n" for value in values), encoding="utf-8")
    return list(read_sessions([path]))


def read_document(folder: Path, value: Any, name: str = "log.json") -> list[Session]:
    """A file of one JSON value over many lines."""
    path = folder / name
    path.write_text(json.dumps(value, indent=1), encoding="utf-8")
    return list(read_sessions([path]))
