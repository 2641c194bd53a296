"""What is linted: files, told apart by their content, and folders of them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from os.path import realpath
from pathlib import Path
from typing import Literal

import msgspec

from duramen.experiments.importers.bodies import is_body
from duramen.experiments.importers.body import LOG_KEYS
from duramen.experiments.importers.documents import is_cut_off
from duramen.experiments.importers.read import SUFFIXES as LOG_SUFFIXES
from duramen.experiments.lint.bodies import GivenBody, given_body
from duramen.experiments.lint.finding import Source
from duramen.experiments.lint.json_places import NotJson, read_placed
from duramen.layout.errors import TrajectoryError

MARKDOWN_SUFFIXES = {".md", ".markdown"}
TEMPLATE_SUFFIXES = {".jinja", ".jinja2", ".j2", ".tmpl", ".tpl", ".mustache", ".hbs", ".prompt"}
PROMPT_SUFFIXES = {".txt", *MARKDOWN_SUFFIXES, *TEMPLATE_SUFFIXES}
_OF_RECORDINGS = LOG_KEYS | {"trajectory_format", "info", "trajectory", "history"}
MAX_BODY_CHARS = 32_000_000
Form = Literal["prompt", "body", "log", "ids", "cut-off"]


@dataclass(frozen=True)
class Linted:
    """`source`: None for a log, which is read call by call. `body`: of a body. A form of `ids` is a
    list of token ids, one of `cut-off` a .json file that ends in the middle."""

    path: Path
    form: Form
    source: Source | None = None
    body: GivenBody | None = None


def files_below(paths: Iterable[Path]) -> Iterator[Path]:
    """Each file once; a folder stands for the prompt files and the JSON below it, by name. Raises
    TrajectoryError where a path is none, or a folder holds nothing to lint."""
    done: set[str] = set()
    for path in paths:
        files = _below(path) if path.is_dir() else [path]
        if not path.exists():
            raise TrajectoryError(f"{path} is no file; expected a prompt, a body or a log")
        for file in files:
            if (real := realpath(file)) not in done:
                done.add(real)
                yield file


def _below(folder: Path) -> list[Path]:
    wanted = PROMPT_SUFFIXES | LOG_SUFFIXES
    found = sorted(file for file in folder.rglob("*") if file.suffix in wanted and file.is_file())
    found = [f for f in found if not any(p.startswith(".") for p in f.relative_to(folder).parts)]
    if not found:
        expected = ", ".join(sorted(wanted))
        raise TrajectoryError(f"{folder} holds nothing to lint; expected files in {expected}")
    return found


def open_file(path: Path) -> Linted:
    """Raises TrajectoryError at a file that cannot be read, is no UTF-8 or is a broken body."""
    if path.is_file() and path.suffix in LOG_SUFFIXES - {".json"}:
        return Linted(path, "log")
    source = Source(path, _text(path))
    start = source.text.lstrip()[:1]
    if path.suffix != ".json" and (path.suffix in PROMPT_SUFFIXES or start not in ("{", "[")):
        return Linted(path, "prompt", source)
    if len(source.text) > MAX_BODY_CHARS:
        return Linted(path, "log")
    try:
        placed = read_placed(source.text)
    except NotJson as error:
        if path.suffix != ".json":  # lines of JSON, or text that begins with a bracket
            return _lines_or_text(source)
        at = source.span(error.offset, error.offset)
        if _is_json(source.text.partition("\n")[0]):
            return Linted(path, "log")
        if (text := source.text.strip()) and is_cut_off(text.encode("utf-8", "surrogatepass")):
            return Linted(path, "cut-off", source)
        raise TrajectoryError(f"{path}:{at.line}:{at.column}: no JSON: {error}") from None
    if _is_ids(placed.value):
        return Linted(path, "ids", source)
    body = placed.value.get("body") if isinstance(placed.value, dict) else None
    value = body if is_body(body) else placed.value
    if is_body(value) and not _OF_RECORDINGS & placed.value.keys():
        return Linted(path, "body", source, given_body(source, placed))
    return Linted(path, "log")


def _is_ids(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(type(each) is int for each in value)


def _lines_or_text(source: Source) -> Linted:
    is_log = _is_json(source.text.lstrip().partition("\n")[0])
    return Linted(source.path, "log") if is_log else Linted(source.path, "prompt", source)


def _is_json(line: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(line), dict | list)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False


def _text(path: Path) -> str:
    if not path.is_file():  # a named pipe would keep its reader waiting
        raise TrajectoryError(f"{path} is no file; expected a prompt, a body or a log")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TrajectoryError(f"{path} cannot be read: {error.strerror}") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TrajectoryError(f"{path}: byte {error.start} is not UTF-8") from None
