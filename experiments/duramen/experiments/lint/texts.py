"""Rules on one text that stands at the head of every prompt: a prompt file, a system message."""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from duramen.experiments.lint.placeholders import code_spans, find_placeholders
from duramen.layout.volatile_patterns import RULES as PATTERNS
from duramen.layout.volatility import WINDOW_CHARS, VolatileField, find_volatile

RULE_OF_KIND = {
    "clock": "clock-in-root",
    "uuid": "id-in-root",
    "id": "id-in-root",
    "counter": "counter-in-root",
}
MAX_SHOWN_CHARS = 60
BEGINNING_CHARS = 200
MIN_LISTED = 4  # different values in one text: a prompt gives one time, a changelog many
_BOS = (
    re.compile(  # as the vocabularies of Llama 3, Gemma, DeepSeek, GPT-2, Cohere and BERT spell it
        r"\A\s{0,20}(<s>|\[CLS\])"
        r"|(<\|begin_of_text\|>|<bos>|<\|startoftext\|>|<BOS_TOKEN>"
        r"|<｜begin▁of▁sentence｜>|<\|begin▁of▁sentence\|>)"
    )
)
_TRAILING = re.compile(r"(?<=[^\s])[ \t]+(?=\r?\n)|(?<=[^\s])[ \t]+\Z")
_MARKDOWN_BREAK = "  "


@dataclass(frozen=True)
class Seen:
    """Characters [start, end) of the text break a rule; `message`: what is there."""

    rule: str
    start: int
    end: int
    message: str


def shown(text: str) -> str:
    """In quotes, on one line, cut to a readable length."""
    cut = text if len(text) <= MAX_SHOWN_CHARS else text[:MAX_SHOWN_CHARS] + "…"
    return repr(cut.encode("utf-8", "backslashreplace").decode())


def seen_in_text(text: str) -> Iterator[Seen]:
    """A text at the head of a prompt as it was sent."""
    yield from _volatile(text, volatile_in(text))
    yield from _spelling(text)


def seen_in_file(text: str, *, is_markdown: bool, is_template: bool) -> Iterator[Seen]:
    """A prompt file, which may be a template of a prompt. `is_template`: by its name.

    People write files, and a date that they wrote stays. So in them a time or an id needs a word
    before it that says it is of now, or a place at the very beginning.
    """
    code = code_spans(text) if is_template else []
    fields = [
        field
        for field in volatile_in(text)
        if field.kind == "counter" or field.start < BEGINNING_CHARS or _is_of_now(text, field)
        if not _is_inside(code, field.start)
    ]
    yield from _volatile(text, fields)
    yield from _spelling(text)
    yield from _trailing(text, is_markdown=is_markdown)
    for each in find_placeholders(text, is_template=is_template):
        what = f"{shown(each.shown)} is filled with {each.kind}"
        yield Seen("volatile-placeholder", each.start, each.end, what)


def seen_in_tool(text: str) -> Iterator[Seen]:
    """A description of a tool or of one of its parameters."""
    for field in volatile_in(text):
        what = f"{_named(field, text)} in a tool's description"
        yield Seen("volatile-in-tools", field.start, field.end, what)


def seen_in_system(text: str) -> Iterator[Seen]:
    """A system message of a request body."""
    yield from seen_in_text(text)
    yield from _trailing(text, is_markdown=False)


def _is_inside(spans: Sequence[tuple[int, int]], at: int) -> bool:
    """Of spans in order, without overlap."""
    nearest = bisect_right(spans, at, key=lambda span: span[0]) - 1
    return nearest >= 0 and at < spans[nearest][1]


def volatile_in(text: str) -> list[VolatileField]:
    """As find_volatile guesses; but a text with many different values of a kind is a list of them,
    and only those stay that a word before them says are of now."""
    fields = find_volatile(text)
    values: dict[str, set[str]] = {}
    for field in fields:
        values.setdefault(RULE_OF_KIND[field.kind], set()).add(text[field.start : field.end])
    return [
        field
        for field in fields
        if len(values[RULE_OF_KIND[field.kind]]) < MIN_LISTED or _is_of_now(text, field)
    ]


def _is_of_now(text: str, field: VolatileField) -> bool:
    start = text.rfind("\n", 0, field.start) + 1
    window = text[max(start, field.start - WINDOW_CHARS) : field.start]
    return any(rule.now.search(window) for rule in PATTERNS if rule.kind == field.kind)


def _volatile(text: str, fields: Iterable[VolatileField]) -> Iterator[Seen]:
    for field in fields:
        rule = RULE_OF_KIND[field.kind]
        yield Seen(rule, field.start, field.end, f"{_named(field, text)} at the head of the prompt")


def _named(field: VolatileField, text: str) -> str:
    what = {"clock": "a date or time", "counter": "a counter"}.get(field.kind, "an id")
    return f"{what}, {shown(text[field.start : field.end])},"


def _spelling(text: str) -> Iterator[Seen]:
    at = text.find("\r\n")
    if at >= 0:
        num = text.count("\r\n")
        yield Seen("crlf", at, at + 2, f"{num} lines end in CR LF")
    if not unicodedata.is_normalized("NFC", text):
        start, end = _first_not_nfc(text)
        what = f"{shown(text[start:end])} is not in Unicode's composed form (NFC)"
        yield Seen("not-nfc", start, end, what)
    for found in _BOS.finditer(text):
        group = 1 if found[1] else 2
        yield Seen("bos-in-text", *found.span(group), f"{shown(found[group])} is spelled as text")


def _first_not_nfc(text: str) -> tuple[int, int]:
    """The first word that is not composed; composition can reach over no blank."""
    for found in re.finditer(r"\S+", text):
        if not unicodedata.is_normalized("NFC", found[0]):
            return found.span()
    return 0, len(text)


def _trailing(text: str, *, is_markdown: bool) -> Iterator[Seen]:
    """The first line that ends in blanks. In Markdown two of them are a line break."""
    places = [
        found.span()
        for found in _TRAILING.finditer(text)
        if not (is_markdown and found[0] == _MARKDOWN_BREAK)
    ]
    if places:
        yield Seen("trailing-blanks", *places[0], f"{len(places)} lines end in blanks")
