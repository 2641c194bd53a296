"""What `duramen lint` says: a rule, a place in a file, what is seen there and what to change."""

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

Severity = Literal["error", "warning", "note"]


class Span(NamedTuple):
    """Lines and columns count from 1, columns in characters; the end column is the one behind."""

    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True)
class Finding:
    """`span`: None where the place in the file is not known. `where`: the session and call, the
    field of a body or the tool, in words."""

    rule: str
    path: Path
    span: Span | None
    message: str
    mend: str
    where: str = ""

    @property
    def place(self) -> str:
        """FILE:LINE:COLUMN, as editors and CI read it."""
        at = self.span or Span(1, 1, 1, 1)
        return f"{self.path}:{at.line}:{at.column}"


@dataclass(frozen=True)
class Source:
    """A file's text, without a byte order mark."""

    path: Path
    text: str

    @cached_property
    def _starts(self) -> list[int]:
        starts, at = [0], self.text.find("\n")
        while at >= 0:
            starts.append(at + 1)
            at = self.text.find("\n", at + 1)
        return starts

    def span(self, start: int, end: int) -> Span:
        """Of characters [start, end)."""
        return Span(*self._place(start), *self._place(end))

    def _place(self, offset: int) -> tuple[int, int]:
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1
