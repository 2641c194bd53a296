"""Where the tags of a chat template stand in its source, and one small change of it.

Jinja's syntax tree knows lines only, so the tags are found anew. What is found wrongly does no
harm: every edit is tried on the template before it is offered.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

_STRING = r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\""
_TAG = re.compile(
    r"\{#.*?#\}|\{%[-+]?\s*raw\s*[-+]?%\}.*?\{%[-+]?\s*endraw\s*[-+]?%\}"
    rf"|(?P<output>\{{\{{-?)(?P<expression>(?:{_STRING}|.)*?)-?\}}\}}"
    rf"|(?P<block>\{{%[-+]?)(?P<statement>(?:{_STRING}|.)*?)[-+]?%\}}",
    re.DOTALL,
)
_JOINS = re.compile(r"\s*[+~](?!=)\s*")
# What decides nothing in a condition. Behind `or false` an `and` would bind otherwise.
_CONSTANT = re.compile(
    r"\s+and\s+(?:true|not\s+false)(?=\s*(?:$|\)|and\b|or\b))"
    r"|\s+or\s+(?:false|not\s+true)(?=\s*(?:$|\)|or\b))"
)


@dataclass(frozen=True)
class Tag:
    """Characters [start, end) of the source; [inner, inner_end) without the brackets."""

    start: int
    end: int
    inner: int
    inner_end: int
    is_output: bool


@dataclass(frozen=True)
class Edit:
    """`text` instead of characters [start, end) of a source, between `before` and `after`.

    `rule`: what that does, in words. `is_fill`: it only writes what is missing somewhere, so that
    what is kept already stays as it is written.
    """

    rule: str
    start: int
    end: int
    text: str
    before: str = ""
    after: str = ""
    is_fill: bool = False

    @property
    def written(self) -> str:
        return f"{self.before}{self.text}{self.after}"

    def apply(self, source: str) -> str:
        return source[: self.start] + self.written + source[self.end :]


def tags(source: str) -> Iterator[Tag]:
    """Outputs and statements in order; comments and raw text are left out."""
    for match in _TAG.finditer(source):
        name = "expression" if match["output"] else "statement"
        if match[name] is not None:
            yield Tag(*match.span(), *match.span(name), name == "expression")


def masked(source: str, tag: Tag) -> str:
    """The inside of the tag with every string blanked out: same length, no quotes."""
    inside = source[tag.inner : tag.inner_end]
    return re.sub(_STRING, lambda string: '"' + " " * (len(string[0]) - 2) + '"', inside)


def without_constants(source: str) -> str:
    """`{% if a and true %}` becomes `{% if a %}`."""
    for tag in reversed(list(tags(source))):
        inside = masked(source, tag)
        if tag.is_output or not inside.lstrip().startswith(("if ", "elif ")):
            continue
        for found in reversed(list(_CONSTANT.finditer(inside))):
            start, end = (tag.inner + place for place in found.span())
            source = source[:start] + source[end:]
    return source


class Gap(NamedTuple):
    """A place where something can be written: `before`, an expression, `after`."""

    position: int
    before: str
    after: str


def gaps(source: str) -> Iterator[Gap]:
    """In front of and behind outputs, and between the pieces of text that one puts together."""
    for tag in tags(source):
        if tag.is_output:
            strip = "-" if source.startswith("{{-", tag.start) else ""
            yield Gap(tag.start, f"{{{{{strip} ", f" {strip}}}}}")
        yield from _inner_gaps(source, tag)
        if tag.is_output:
            strip = "-" if source.endswith("-}}", 0, tag.end) else ""
            yield Gap(tag.end, f"{{{{{strip} ", f" {strip}}}}}")


def _inner_gaps(source: str, tag: Tag) -> Iterator[Gap]:
    inside = masked(source, tag)
    if '"' not in inside:
        return  # `+` may add numbers here
    joins = [join for join in _JOINS.finditer(inside) if _is_top(inside[: join.start()])]
    for join in joins:
        yield Gap(tag.inner + join.end(), "", join[0])
    if joins and inside.lstrip().startswith("set "):
        yield Gap(tag.inner + len(inside.rstrip()), joins[-1][0], "")


def _is_top(expression: str) -> bool:
    return all(expression.count(a) == expression.count(b) for a, b in ("()", "[]", "{}"))


def line_of(source: str, position: int) -> int:
    return source.count("\n", 0, position) + 1
