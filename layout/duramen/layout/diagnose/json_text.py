"""The same JSON in two spellings: other key order, or other blanks, escapes, numbers, quotes."""

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

MAX_CHARS = 2**18  # of a JSON value inside other text
_MAX_LITERAL_CHARS = 2**14  # of one in Python's spelling, which is slower to read
_MAX_ENCLOSING = 8
_TOKENS = re.compile(
    r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|[-+0-9.eE]+|[A-Za-z_]+|[\[\]{}:,]', re.S
)
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:[.][0-9]+)?(?:[eE][+-]?[0-9]+)?")
_MAX_NUMBER_CHARS = 24
_WORDS = {"true": True, "false": False, "null": None, "none": None}
Spelling = Literal["same", "order", "respelled", "other"]


class Json(NamedTuple):
    value: Any


def read(text: str) -> Json | None:
    """`text` as JSON, or as Python writes the same; None where it is neither."""
    try:
        return Json(json.loads(text))
    except (ValueError, RecursionError):
        return _python_literal(text)


def _python_literal(text: str) -> Json | None:
    text = text.strip()
    if len(text) > _MAX_LITERAL_CHARS or not text.startswith(("{", "[", "(")):
        return None
    try:
        return Json(ast.literal_eval(text))
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return None


def alike(old: Any, new: Any) -> bool:
    """The same values, in any order of keys; 1 is 1.0, and true is "True"."""
    try:
        return bool(_canonical(old) == _canonical(new))
    except RecursionError:
        return False


def _canonical(value: Any) -> Any:
    """Hashable and equal where values are alike."""
    if isinstance(value, Mapping):
        return "{}", frozenset((str(key), _canonical(item)) for key, item in value.items())
    if isinstance(value, str):
        inner = _inner(value)
        return _spoken(value) if inner is None else _canonical(inner)
    if isinstance(value, Sequence):
        return "[]", tuple(_canonical(item) for item in value)
    return "nan" if value != value else value


def _inner(text: str) -> Any:
    """The object or list that a string holds as JSON; None where it holds none."""
    if not text.startswith(("{", "[")) or len(text) > MAX_CHARS:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _spoken(text: str) -> Any:
    """What a short string says where it is a number or a word for a value."""
    if len(text) > _MAX_NUMBER_CHARS:
        return text
    if _NUMBER.fullmatch(text):
        return float(text) if "." in text or "e" in text.lower() else int(text)
    return _WORDS.get(text.lower(), text)


def same_order(old: Any, new: Any) -> bool:
    """Whether the keys of both, which are alike, come in one order everywhere."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        if list(map(str, old)) != list(map(str, new)):
            return False
        return all(map(same_order, old.values(), new.values()))
    if isinstance(old, list | tuple) and isinstance(new, list | tuple):
        return all(map(same_order, old, new))
    if isinstance(old, str) and isinstance(new, str) and old != new:
        was, now = _inner(old), _inner(new)
        return was is None or now is None or same_order(was, now)
    return True


def spelling(old: str, new: str) -> Spelling:
    """How two texts that are JSON (or Python's form of it) relate; "other" where they say
    different things or are no JSON."""
    if old == new:
        return "same"
    before, after = read(old), read(new)
    if before is None or after is None or not alike(before.value, after.value):
        return "other"
    return "order" if _parts_in_order(old, new) else "respelled"


def _parts_in_order(old: str, new: str) -> bool:
    """Whether the first difference that is more than blanks is one of order."""
    try:
        if same_order(read(old)[0], read(new)[0]):  # type: ignore[index]
            return False
    except RecursionError:
        return False
    tokens = zip(_TOKENS.finditer(old), _TOKENS.finditer(new), strict=False)
    parted = next(((was[0], now[0]) for was, now in tokens if was[0] != now[0]), None)
    return parted is None or _meaning(parted[0]) != _meaning(parted[1])


def _meaning(token: str) -> Any:
    found = read(token) if token[0] in "\"'-0123456789" else None
    if found is None and token[0] == "'":
        return token[1:-1]
    return _WORDS.get(token.lower(), token) if found is None else found.value


class Pair(NamedTuple):
    """A JSON value that encloses one place of two texts, as text."""

    old: str
    new: str


def enclosing(old: str, new: str, position: int) -> Iterator[Pair]:
    """JSON objects and lists that begin in what both texts have in common, before `position`, and
    end behind it in both: the smallest first."""
    low = max(position - MAX_CHARS, 0)
    old_window, new_window = (text[low : position + MAX_CHARS] for text in (old, new))
    for start in _open_brackets(old_window[: position - low]):
        ends = [_end(text, start) for text in (old_window, new_window)]
        if all(end is not None and end > position - low for end in ends):
            yield Pair(old_window[start : ends[0]], new_window[start : ends[1]])


def _open_brackets(text: str) -> Iterator[int]:
    """Brackets that are not closed in `text`, from the last one on; strings are not looked into, so
    that some are guessed wrong."""
    depth = given = 0
    for found in re.finditer(r"[\[\]{}]", text[::-1]):
        if found[0] in "]}":
            depth += 1
        elif depth:
            depth -= 1
        else:
            yield len(text) - 1 - found.start()
            given += 1
            if given == _MAX_ENCLOSING:
                return


def _end(text: str, start: int) -> int | None:
    try:
        return json.JSONDecoder().raw_decode(text, start)[1]
    except (ValueError, RecursionError):
        return _literal_end(text, start)


def _literal_end(text: str, start: int) -> int | None:
    """The end of a value as Python writes it: where the bracket at `start` is closed."""
    depth = 0
    for found in _TOKENS.finditer(text, start, start + _MAX_LITERAL_CHARS):
        if found[0] in "[{":
            depth += 1
        elif found[0] in "]}":
            depth -= 1
            if not depth:
                end = found.end()
                return end if _python_literal(text[start:end]) else None
    return None


def sorted_words(value: Any) -> Any:
    """`value` with the items of lists of words in sorted order: schemas list what is required and
    allowed in no order."""
    if isinstance(value, Mapping):
        return {key: sorted_words(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [sorted_words(item) for item in value]
        return sorted(items) if all(isinstance(item, str) for item in items) else items
    return value
