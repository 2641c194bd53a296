"""JSON with the place of each of its values, by RFC 8259: a linter must say where.

Slower than msgspec, so only what is linted as one body is read with it.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Any

Path = tuple[str | int, ...]
MAX_DEPTH = 128
_BLANKS = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_NO_NUMBER = re.compile(r"NaN|-?Infinity")
_WORDS = {"true": True, "false": False, "null": None}
_STRINGS = json.JSONDecoder()
_ESCAPE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\."
)


class NotJson(Exception):
    """`offset`: the character at which the text stops being JSON."""

    def __init__(self, what: str, offset: int) -> None:
        super().__init__(what)
        self.offset = offset


@dataclass
class Placed:
    """`places`: of each value, by its path, the characters [start, end). `repeated`: where a key
    stands that its object had before; the last value counts, as everywhere in Python."""

    text: str
    value: Any = None
    places: dict[Path, tuple[int, int]] = field(default_factory=dict)
    repeated: list[tuple[Path, int, int]] = field(default_factory=list)

    def inside(self, path: Path, start: int, end: int) -> tuple[int, int]:
        """Where characters [start, end) of the string at `path` are spelled."""
        first, last = self.places[path]
        offsets = [_raw_offset(self.text, first + 1, last - 1, at) for at in (start, end)]
        return offsets[0], offsets[1]


def read_placed(text: str) -> Placed:
    """Raises NotJson."""
    placed = Placed(text)
    placed.value, end = _value(placed, _skip(text, 0), (), 0)
    end = _skip(text, end)
    if end < len(text):
        raise NotJson("more text behind the value", end)
    return placed


def _skip(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return found.end() if found else at


def _value(placed: Placed, at: int, path: Path, depth: int) -> tuple[Any, int]:
    if depth > MAX_DEPTH:
        raise NotJson(f"nested deeper than {MAX_DEPTH} levels", at)
    first = placed.text[at : at + 1]
    value: Any
    if first == "{":
        value, end = _object(placed, at + 1, path, depth)
    elif first == "[":
        value, end = _array(placed, at + 1, path, depth)
    elif first == '"':
        value, end = _string(placed.text, at)
    else:
        value, end = _scalar(placed.text, at)
    placed.places[path] = at, end
    return value, end


def _object(placed: Placed, at: int, path: Path, depth: int) -> tuple[dict[str, Any], int]:
    text, value = placed.text, dict[str, Any]()
    at = _skip(text, at)
    if text[at : at + 1] == "}":
        return value, at + 1
    while True:
        if text[at : at + 1] != '"':
            raise NotJson("expected a key in quotes", at)
        key, end = _string(text, at)
        if key in value:
            placed.repeated.append(((*path, key), at, end))
        end = _skip(text, end)
        if text[end : end + 1] != ":":
            raise NotJson("expected a colon behind the key", end)
        value[key], end = _value(placed, _skip(text, end + 1), (*path, key), depth + 1)
        at = _skip(text, end)
        if text[at : at + 1] == "}":
            return value, at + 1
        if text[at : at + 1] != ",":
            raise NotJson("expected a comma or }", at)
        at = _skip(text, at + 1)


def _array(placed: Placed, at: int, path: Path, depth: int) -> tuple[list[Any], int]:
    text, value = placed.text, list[Any]()
    at = _skip(text, at)
    if text[at : at + 1] == "]":
        return value, at + 1
    while True:
        item, end = _value(placed, at, (*path, len(value)), depth + 1)
        value.append(item)
        at = _skip(text, end)
        if text[at : at + 1] == "]":
            return value, at + 1
        if text[at : at + 1] != ",":
            raise NotJson("expected a comma or ]", at)
        at = _skip(text, at + 1)


def _string(text: str, at: int) -> tuple[str, int]:
    try:
        return _STRINGS.raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise NotJson(error.msg.lower(), error.pos) from None


def _scalar(text: str, at: int) -> tuple[Any, int]:
    for word, value in _WORDS.items():
        if text.startswith(word, at):
            return value, at + len(word)
    found = _NUMBER.match(text, at)
    if found is None:
        misspelled = _NO_NUMBER.match(text, at)
        what = f"{misspelled[0]} is no JSON number, expected" if misspelled else "expected"
        raise NotJson(f"{what} a value", at)
    spelled = found[0]
    is_whole = spelled.lstrip("-").isdecimal()
    return int(spelled) if is_whole and len(spelled) < 4000 else float(spelled), found.end()


def _raw_offset(text: str, at: int, end: int, num_chars: int) -> int:
    """Where the string that is spelled from `at` to `end` has spelled `num_chars` characters."""
    while num_chars > 0 and at < end:
        escape = _ESCAPE.search(text, at, min(end, at + num_chars + 11))
        if escape is None or escape.start() - at >= num_chars:
            return min(at + num_chars, end)
        num_chars -= escape.start() - at + 1
        at = escape.end()
    return at
