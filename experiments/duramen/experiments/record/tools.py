"""The scripted agent's tools: they really read, search, edit and test a checkout.

Outputs are text, at most MAX_OUTPUT_CHARS long, and say where they were cut. A tool that cannot do
what it was asked answers `error: ...` instead of raising, as agents' tools do.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

MAX_OUTPUT_CHARS = 1_200
SOURCE_FOLDERS = ("layout", "experiments")
PYTEST_OPTIONS = ("-q", "--color=no", "-p", "no:cacheprovider", "--basetemp=.pytest")
TEST_TIMEOUT_S = 120


def _tool(name: str, description: str, **parameters: tuple[str, str]) -> dict[str, Any]:
    properties = {
        key: {"type": kind, "description": text} for key, (kind, text) in parameters.items()
    }
    schema = {"type": "object", "properties": properties, "required": list(parameters)}
    function = {"name": name, "description": description, "parameters": schema}
    return {"type": "function", "function": function}


TOOL_DEFINITIONS = [
    _tool(
        "list_files",
        "List the files below a folder with their number of lines.",
        path=("string", "Folder, relative to the root of the repository."),
    ),
    _tool(
        "grep",
        "Search files for a regular expression; answers path:line: text.",
        pattern=("string", "Python regular expression, matched against each line."),
        path=("string", "File or folder to search."),
    ),
    _tool(
        "read_file",
        "Read a range of lines of a file.",
        path=("string", "File to read."),
        start_line=("integer", "First line, counted from 1."),
        end_line=("integer", "Last line, included."),
    ),
    _tool(
        "edit_file",
        "Replace a piece of text that occurs exactly once in a file.",
        path=("string", "File to edit."),
        old_text=("string", "Text to replace, with enough around it to be unique."),
        new_text=("string", "Text to put in its place."),
    ),
    _tool(
        "run_tests",
        "Run pytest on a file or folder and return its report.",
        path=("string", "Test file or folder."),
    ),
]


class Tools:
    """The tools, bound to a checkout. All paths are relative to its root."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._run: dict[str, Callable[..., str]] = {
            "list_files": self._list_files,
            "grep": self._grep,
            "read_file": self._read_file,
            "edit_file": self._edit_file,
            "run_tests": self._run_tests,
        }

    def run(self, name: str, arguments: dict[str, Any]) -> str:
        output = self._run[name](**arguments).replace(f"{self._root}/", "")
        if len(output) <= MAX_OUTPUT_CHARS:
            return output
        num_cut = len(output) - MAX_OUTPUT_CHARS
        return f"{output[:MAX_OUTPUT_CHARS]}\n[... {num_cut} more characters cut]"

    def _list_files(self, path: str) -> str:
        lines = [f"{name} ({len(self._lines(name))} lines)" for name in self._files(path)]
        return "\n".join(lines) or f"error: no files below {path}"

    def _grep(self, pattern: str, path: str) -> str:
        expression = re.compile(pattern)
        found = [
            f"{name}:{number}: {line.strip()}"
            for name in self._files(path)
            for number, line in enumerate(self._lines(name), start=1)
            if expression.search(line)
        ]
        return "\n".join(found) or "no matches"

    def _read_file(self, path: str, start_line: int, end_line: int) -> str:
        if not (self._root / path).is_file():
            return f"error: {path} does not exist"
        lines = self._lines(path)[start_line - 1 : end_line]
        return "\n".join(f"{number}\t{line}" for number, line in enumerate(lines, start=start_line))

    def _edit_file(self, path: str, old_text: str, new_text: str) -> str:
        text = (self._root / path).read_text(encoding="utf-8")
        num_found = text.count(old_text)
        if num_found != 1:
            return f"error: old_text occurs {num_found} times in {path}; it must occur exactly once"
        (self._root / path).write_text(text.replace(old_text, new_text), encoding="utf-8")
        first_line = text[: text.index(old_text)].count("\n") + 1
        return f"edited {path} at line {first_line}"

    def _run_tests(self, path: str) -> str:
        command = [sys.executable, "-m", "pytest", *PYTEST_OPTIONS, path]
        source = os.pathsep.join(str(self._root / folder) for folder in SOURCE_FOLDERS)
        result = subprocess.run(
            command,
            cwd=self._root,
            env=os.environ | {"PYTHONPATH": source, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=TEST_TIMEOUT_S,
            check=False,
        )
        return (result.stdout + result.stderr).strip()

    def _files(self, path: str) -> list[str]:
        start = self._root / path
        files = [start] if start.is_file() else sorted(start.rglob("*.py"))
        return [str(file.relative_to(self._root)) for file in files]

    def _lines(self, name: str) -> list[str]:
        return (self._root / name).read_text(encoding="utf-8").splitlines()
