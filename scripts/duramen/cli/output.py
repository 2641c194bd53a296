"""How every command writes its JSON: whole or not at all."""

import json
import os
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from duramen.layout.errors import DuramenError

SCHEMA_VERSION = 1


def write_json(command: str, fields: dict[str, Any], json_file: str) -> None:
    """`fields` behind the ones that every result carries, to `json_file`, "-" for stdout."""
    head = {
        "schema_version": SCHEMA_VERSION,
        "duramen_version": version("duramen"),
        "command": command,
    }
    text = json.dumps(head | fields, indent=2) + "\n"
    if json_file == "-":
        sys.stdout.write(text)
        return
    path = Path(json_file)
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=path.parent, prefix=path.name, delete=False
        ) as file:
            file.write(text)
        os.replace(file.name, path)
    except OSError as error:
        raise DuramenError(f"cannot write {json_file}: {error.strerror}") from error
