"""Volatile fields of the root: found, proven by an earlier root, or moved to the call's end."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from duramen.layout.volatility import VolatileField, compare, find_volatile
from duramen.serving.gateway.policies.content import (
    SEPARATOR,
    Message,
    num_root,
    texts,
    with_texts,
)

MAX_MOVED = 32  # a text with more fields holds a log or a table, which stays as it is


@dataclass(frozen=True)
class Moved:
    """`lines`: what stands for each placeholder. `fields`: where it stood in the client's text."""

    messages: list[Message]
    lines: tuple[str, ...] = ()
    fields: tuple[VolatileField, ...] = ()

    @property
    def kinds(self) -> str:
        counted = Counter(field.kind for field in self.fields)
        return ", ".join(f"{number} {kind}" for kind, number in sorted(counted.items()))


def root_fields(messages: Sequence[Message]) -> tuple[VolatileField, ...]:
    """The fields of the root that look volatile. Characters count through all text parts of a
    message, with one between two parts."""
    return tuple(
        _placed(field, i, offset)
        for i, message in enumerate(messages[: num_root(messages)])
        for text, offset in _with_offsets(texts(message))
        for field in find_volatile(text)
    )


def compare_roots(
    previous: Sequence[Message], messages: Sequence[Message]
) -> tuple[VolatileField, ...]:
    """What differs between the roots of two conversations, message by message; a message that only
    one of them has is no field."""
    pairs = zip(previous[: num_root(previous)], messages[: num_root(messages)], strict=False)
    return tuple(
        _placed(field, i, 0)
        for i, (old, new) in enumerate(pairs)
        for field in compare(SEPARATOR.join(texts(old)), SEPARATOR.join(texts(new)))
    )


def move_fields(messages: list[Message]) -> Moved:
    """Every field that looks volatile replaced by a placeholder, numbered by kind through the root.

    A number whose placeholder stands in the root already is left out, so each means one value.
    """
    end = num_root(messages)
    written = SEPARATOR.join(text for message in messages[:end] for text in texts(message))
    shaped = list(messages)
    lines: list[str] = []
    fields: list[VolatileField] = []
    numbers: Counter[str] = Counter()
    for i, message in enumerate(messages[:end]):
        old = texts(message)
        found = [find_volatile(text) for text in old]
        if sum(map(len, found)) > MAX_MOVED:
            continue
        new = []
        for (text, offset), in_text in zip(_with_offsets(old), found, strict=True):
            pieces, done = [], 0
            for field in in_text:
                name = _next_name(field.kind, numbers, written)
                pieces += [text[done : field.start], _placeholder(name)]
                lines.append(f"{name}: {text[field.start : field.end]}")
                done = field.end
            new.append("".join([*pieces, text[done:]]))
            fields += [_placed(field, i, offset) for field in in_text]
        shaped[i] = with_texts(message, new)
    return Moved(shaped, tuple(lines), tuple(fields)) if fields else Moved(messages)


def _next_name(kind: str, numbers: Counter[str], written: str) -> str:
    while True:
        numbers[kind] += 1
        name = f"{kind} {numbers[kind]}"
        if _placeholder(name) not in written:
            return name


def _placeholder(name: str) -> str:
    return f"[{name}: see the end]"


def _with_offsets(parts: Sequence[str]) -> list[tuple[str, int]]:
    offset, placed = 0, []
    for text in parts:
        placed.append((text, offset))
        offset += len(text) + len(SEPARATOR)
    return placed


def _placed(field: VolatileField, message: int, offset: int) -> VolatileField:
    return replace(field, start=field.start + offset, end=field.end + offset, message=message)
