"""Reading JSON strictly: one JSON document per line, or one that spans the whole file.

A document comes with the place it was read from (`FILE:LINE`), which every error about it starts
with. Lines are read one at a time; only a document that spans lines is read whole. A byte order
mark and blank lines are allowed, anything else that is not JSON is an error.
"""

import re
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from duramen.layout.errors import TrajectoryError

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
NOT_TEXT = {b"\x1f\x8b": "gzip", b"PK": "zip", b"\x28\xb5": "zstd", b"BZ": "bzip2", b"\xfd7": "xz"}
OPENS_MORE_LINES = (b"{", b"[", b",")  # how the first line of an indented document ends


class Document(NamedTuple):
    where: str
    value: Any


def read_documents(path: Path) -> Iterator[Document]:
    """Yield the file's documents in order, at least one.

    Raises TrajectoryError where the file cannot be read, is empty or holds broken JSON.
    """
    check_is_file(path)
    try:
        yield from _documents(path)
    except OSError as error:
        raise TrajectoryError(f"{path} cannot be read: {error.strerror}") from error


def check_is_file(path: Path) -> None:
    """Raises TrajectoryError at what is none: a named pipe would keep its reader waiting."""
    try:
        is_file = path.is_file()
    except OSError as error:
        raise TrajectoryError(f"{path} cannot be read: {error.strerror}") from error
    if not is_file:
        found = "a directory" if path.is_dir() else "no file"
        raise TrajectoryError(f"{path} is {found}; expected a JSON or JSONL file")


def files_of(paths: Iterable[Path], suffixes: AbstractSet[str]) -> Iterator[Path]:
    """The files among `paths`; a folder stands for the files below it with such a suffix, by name.

    Raises TrajectoryError where a file comes twice, or a folder holds none.
    """
    given: set[Path] = set()
    for path in paths:
        for file in _files_below(path, suffixes) if path.is_dir() else [path]:
            if file.resolve() in given:
                raise TrajectoryError(f"{file} is given twice")
            given.add(file.resolve())
            yield file


def _files_below(folder: Path, suffixes: AbstractSet[str]) -> list[Path]:
    files = sorted(file for file in folder.rglob("*") if file.suffix in suffixes)
    if not files:
        expected = ", ".join(sorted(suffixes))
        raise TrajectoryError(f"{folder} holds no trajectories; expected files in {expected}")
    return files


def _documents(path: Path) -> Iterator[Document]:
    lines = _lines(path)
    first = next(lines, None)
    if first is None:
        raise TrajectoryError(f"{path} is empty; expected at least one JSON document")
    number, line = first
    if line.rstrip().endswith(OPENS_MORE_LINES):
        whole = path.read_bytes().removeprefix(BYTE_ORDER_MARK)
        yield Document(f"{path}:{number}", _decode_whole(whole, path))
        return
    yield Document(f"{path}:{number}", _decode_line(line, f"{path}:{number}"))
    for number, line in lines:
        yield Document(f"{path}:{number}", _decode_line(line, f"{path}:{number}"))


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if number == 1:
                _check_text(line, path)
                line = line.removeprefix(BYTE_ORDER_MARK)
            if line.strip():
                yield number, line


def _check_text(start: bytes, path: Path) -> None:
    for magic, name in NOT_TEXT.items():
        if start.startswith(magic):
            raise TrajectoryError(f"{path} is {name}-compressed; decompress it first")
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise TrajectoryError(f"{path} is UTF-16; expected JSON in UTF-8")
    if start.startswith(b"#"):
        raise TrajectoryError(
            f"{path} starts with a # comment and is no JSON (TraceLab's segments for readers are "
            "like that; its round traces and replay CSVs can be simulated)"
        )


def _decode_line(line: bytes, where: str) -> Any:
    try:
        return msgspec.json.decode(line)
    except (ValueError, RecursionError) as error:
        raise TrajectoryError(f"{where}: {_explain(error)}; expected one JSON document") from error


def _decode_whole(data: bytes, path: Path) -> Any:
    try:
        return msgspec.json.decode(data)
    except (ValueError, RecursionError) as error:
        where = f"{path}:{_line_of(error, data)}"
        raise TrajectoryError(f"{where}: {_explain(error)}; expected a JSON document") from error


def _line_of(error: Exception, data: bytes) -> int:
    """The line that msgspec's message points to; the last one where the document is cut off."""
    at_byte = re.search(r"\(byte (\d+)\)", str(error))
    if at_byte:
        data = data[: int(at_byte[1])]
    elif "truncated" not in str(error):
        return 1
    return data.rstrip().count(b"\n") + 1


def _explain(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "the JSON is nested too deeply"
    if "truncated" in str(error):
        return "the JSON is cut off in the middle"
    return f"not valid JSON in UTF-8 ({error})"
