"""Reading JSON strictly: one JSON document per line, or one that spans the whole file.

A document comes with the place it was read from (`FILE:LINE`), which every error about it starts
with. Lines are read one at a time; only a document that spans lines is read whole. A byte order
mark and blank lines are allowed, anything else that is not JSON is an error; but a last line that
ends in the middle is one that is being written, and waits for its end.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from os.path import realpath
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


@dataclass
class Lines:
    """`skipped`: numbers of lines that are left out, from 1. `num_cut_bytes`: of a last line that
    was being written; 0 until all is read, and where there is none."""

    path: Path
    skipped: Collection[int] = ()
    num_cut_bytes: int = 0

    def documents(self) -> Iterator[Document]:
        """Yield the file's documents in order, at least one.

        Raises TrajectoryError where the file cannot be read, is empty or holds broken JSON.
        """
        check_is_file(self.path)
        try:
            yield from self._documents()
        except OSError as error:
            raise TrajectoryError(f"{self.path} cannot be read: {error.strerror}") from error

    def _documents(self) -> Iterator[Document]:
        path, lines = self.path, self._lines()
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
            if not line.endswith(b"\n") and is_cut_off(line):
                self.num_cut_bytes = len(line)
                return
            yield Document(f"{path}:{number}", _decode_line(line, f"{path}:{number}"))

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        with self.path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if number == 1:
                    _check_text(line, self.path)
                    line = line.removeprefix(BYTE_ORDER_MARK)
                if line.strip() and number not in self.skipped:
                    yield number, line


def read_documents(path: Path) -> Iterator[Document]:
    """As `Lines.documents`, of every line."""
    return Lines(path).documents()


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
    given: set[str] = set()
    for path in paths:
        for file in _files_below(path, suffixes) if path.is_dir() else [path]:
            real = realpath(file)  # Path.resolve raises at a loop of links
            if real in given:
                raise TrajectoryError(f"{file} is given twice")
            given.add(real)
            yield file


def _files_below(folder: Path, suffixes: AbstractSet[str]) -> list[Path]:
    found = (file for file in folder.rglob("*") if file.suffix in suffixes)
    files = sorted(file for file in found if not file.is_dir())
    if not files:
        expected = ", ".join(sorted(suffixes))
        raise TrajectoryError(f"{folder} holds no trajectories; expected files in {expected}")
    return files


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


def is_cut_off(data: bytes) -> bool:
    """Whether JSON ends in the middle."""
    try:
        msgspec.json.decode(data)
    except (ValueError, RecursionError) as error:
        said = str(error)
        return "truncated" in said or said.endswith(f"invalid number (byte {len(data)})")
    return False


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
