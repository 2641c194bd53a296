"""How every command writes its JSON: whole or not at all."""

import json
import os
import sys
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from duramen.layout.errors import DuramenError

SCHEMA_VERSION = 1


def check_json_file(json_file: str | None) -> None:
    """Raise DuramenError, before the work is done, if `write_json` could not write there."""
    if json_file in (None, "-"):
        return
    path = Path(str(json_file))
    if path.is_dir():
        raise DuramenError(f"cannot write {json_file}: it is a folder")
    if not os.access(path.parent, os.W_OK):
        reason = "is not writable" if path.parent.is_dir() else "does not exist"
        raise DuramenError(f"cannot write {json_file}: its folder {reason}")


def as_text(command: str, fields: dict[str, Any]) -> str:
    """JSON: `fields` behind the ones that every result carries."""
    return json.dumps(with_head(command, fields), indent=2) + "\n"


def with_head(command: str, fields: dict[str, Any]) -> dict[str, Any]:
    head = {
        "schema_version": SCHEMA_VERSION,
        "duramen_version": version("duramen"),
        "command": command,
    }
    return head | fields


def write_json(command: str, fields: dict[str, Any], json_file: str) -> None:
    """A result to `json_file`, "-" for stdout."""
    text = as_text(command, fields)
    if json_file == "-":
        sys.stdout.write(text)
        return
    write_text(text, Path(json_file))


def write_text(text: str, file: Path) -> None:
    """Whole or not at all. Raises DuramenError."""
    path = file.resolve()
    is_replaced = not (path.is_fifo() or path.is_char_device())
    part = path.with_name(f".{path.name}.{os.getpid()}") if is_replaced else path
    try:
        part.write_text(text, encoding="utf-8")
        if is_replaced:
            part.replace(path)
    except OSError as error:
        if is_replaced:
            with suppress(OSError):
                part.unlink()
        raise DuramenError(f"cannot write {file}: {error.strerror}") from error
