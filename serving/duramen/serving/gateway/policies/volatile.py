"""Volatile fields of the root moved to the call's end."""

from collections import Counter
from dataclasses import dataclass

from duramen.layout.volatility import find_volatile
from duramen.serving.gateway.message_text import (
    SEPARATOR,
    Message,
    num_system,
    texts,
    with_texts,
)

MAX_MOVED = 32  # a text with more fields holds a log or a table, which stays as it is


@dataclass(frozen=True)
class Moved:
    """`lines`: what stands for each placeholder. `kinds`: how many of each kind, in words."""

    messages: list[Message]
    lines: tuple[str, ...] = ()
    kinds: str = ""


def move_fields(messages: list[Message]) -> Moved:
    """Every field that looks volatile replaced by a placeholder, numbered by kind through the root.

    A number whose placeholder stands in the root already is left out, so each means one value.
    """
    end = num_system(messages)
    written = SEPARATOR.join(text for message in messages[:end] for text in texts(message))
    shaped = list(messages)
    lines: list[str] = []
    kinds: Counter[str] = Counter()
    numbers: Counter[str] = Counter()
    for i, message in enumerate(messages[:end]):
        old = texts(message)
        found = [find_volatile(text) for text in old]
        if sum(map(len, found)) > MAX_MOVED:
            continue
        new = []
        for text, in_text in zip(old, found, strict=True):
            pieces, done = [], 0
            for field in in_text:
                name = _next_name(field.kind, numbers, written)
                pieces += [text[done : field.start], _placeholder(name)]
                lines.append(f"{name}: {text[field.start : field.end]}")
                done = field.end
            new.append("".join([*pieces, text[done:]]))
            kinds.update(field.kind for field in in_text)
        shaped[i] = with_texts(message, new)
    counted = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))
    return Moved(shaped, tuple(lines), counted) if lines else Moved(messages)


def _next_name(kind: str, numbers: Counter[str], written: str) -> str:
    while True:
        numbers[kind] += 1
        name = f"{kind} {numbers[kind]}"
        if _placeholder(name) not in written:
            return name


def _placeholder(name: str) -> str:
    return f"[{name}: see the end]"
