"""Forms in which the half that was scored on, and then opened says the same otherwise."""

import re
from textwrap import indent
from typing import Any

from duramen.experiments.injection.cases import Variant
from duramen.experiments.injection.forms import (
    Parts,
    argument_keys,
    as_parts,
    json_text,
    merged,
    normalised,
    said,
    schema_keys,
    white,
)

PROFILE = {
    "user": {"name": "Ødegaard", "plan": "pro", "limits": {"cpu": 4, "disk_gb": 80}},
    "flags": {"beta": False, "dark_mode": True, "quota": None},
    "history": [{"at": 1, "op": "open"}, {"at": 2, "op": "close"}],
}
HIT = {"score": 0.91, "path": "lib/core.rs", "line": 310, "match": "fn main() {", "lang": "rust"}


def _key_order(name: str, make: Any) -> Variant:
    return Variant("json-key-order", name, make)


KEY_ORDER = [
    _key_order("schema, reversed", schema_keys("reversed", 0)),
    _key_order("schema, parameters shuffled", schema_keys("shuffled", 1)),
    _key_order("schema, parameters sorted", schema_keys("sorted", 1)),
    _key_order("schema, deepest level", schema_keys("shuffled", 2)),
    _key_order("arguments, shuffled", argument_keys("shuffled")),
    _key_order("arguments, second call", argument_keys("reversed", 1)),
    _key_order("profile in the first message", json_text(PROFILE, "{}", "user head", "sorted")),
    _key_order(
        "profile between tags",
        json_text(PROFILE, "<profile>{}</profile>", "system head", "shuffled", 2),
    ),
    _key_order(
        "search hit, indented by a tab",
        json_text(HIT, "1 hit\n{}\n(end)", "tool result", "shuffled", indent="\t"),
    ),
    _key_order(
        "example in a tool's description",
        json_text(HIT, "Answers e.g. {}", "tool description", "sorted"),
    ),
    _key_order("in a reply", json_text(PROFILE, "I would store {}.", "reply", "reversed")),
]


def _squeezed(text: str) -> str:
    return "\n".join(" ".join(line.split()) for line in text.split("\n"))


WHITESPACE = [
    white("line ends of an old Mac", "user tail", lambda t: t.replace("\n", "\r")),
    white("two line ends behind a reply", "reply", lambda t: t + "\n\n"),
    white("indented by two", "tool result", lambda t: indent(t, "  ")),
    white("runs of blanks made one", "tool result", _squeezed),
    white("four blanks for tabs", "tool result", lambda t: t.replace("\t", "    ")),
    white("blank line in front", "user head", lambda t: "\n" + t),
    white("line ends joined", "system tail", lambda t: t.replace("\n\n", "\n")),
    white("blank behind system text", "system tail", lambda t: t.rstrip() + " "),
    white("CRLF in a tool result", "tool result", lambda t: t.replace("\n", "\r\n")),
    white("CRLF in the first message", "user tail", lambda t: t.replace("\n", "\r\n")),
    white("blank lines between bullets", "system tail", lambda t: t.replace("\n- ", "\n\n- ")),
]

UNICODE = [
    Variant("unicode-normalisation", name, make)
    for name, make in {
        "Spanish, user tail": normalised(
            "¿Cuántas páginas añadió ayer el señor Núñez?", "user tail", "NFC", "NFD"
        ),
        "Polish, system head": normalised("Zażółć gęślą jaźń", "system head", "NFC", "NFD"),
        "Arabic, system tail": normalised("اقرأ آخر سطر أولاً", "system tail", "NFD", "NFC"),
        "Czech, tool result": normalised("příliš žluťoučký kůň", "tool result", "NFD", "NFC"),
        "half-width kana, user tail": normalised("ﾃｽﾄｶﾞ失敗しました", "user tail", "NFC", "NFKC"),
        "fractions, tool result": normalised("½ cup, ¾ done, №5", "tool result", "NFC", "NFKD"),
        "trade mark, system tail": normalised(
            "Use Acme™ branding ①②③", "system tail", "NFKC", "NFC"
        ),
        "Korean name, user head": normalised("김하늘 님의 예약", "user head", "NFD", "NFC"),
        "Greek, reply": normalised("Ωμέγα είναι το τέλος", "reply", "NFC", "NFD"),
        "parameter description": normalised("Größe in Zoll", "parameter description", "NFC", "NFD"),
    }.items()
]


def _at_blank(text: str) -> list[str]:
    """Cut at a blank, which a client joins with."""
    cut = text.find(" ", len(text) // 2)
    return [text[:cut], text[cut + 1 :]] if 0 < cut < len(text) - 1 else [text]


def _lines(text: str) -> list[str]:
    """The first line, the second, the rest; blank lines stay where they are."""
    pieces = re.split(r"(?<!\n)\n(?!\n)", text, maxsplit=2)
    return pieces if all(piece.strip() for piece in pieces) else [text]


def _sections(text: str) -> list[str]:
    pieces = text.split("\n\n", 1)
    return pieces if all(piece.strip() for piece in pieces) else [text]


def _with_break(text: str) -> list[str]:
    """Cut behind a line end, which the first part keeps."""
    cut = text.find("\n") + 1
    return [text[:cut], text[cut:]] if cut and text[cut:].strip() else [text]


PARTS = [
    Variant("content-parts-vs-string", name, as_parts(parts))
    for name, parts in (
        ("user, lines", Parts("user", _lines)),
        ("user, lines, parts first", Parts("user", _lines, first=True)),
        ("system, cut at a blank", Parts("system", _at_blank)),
        ("system, lines", Parts("system", _lines)),
        ("reply, lines", Parts("assistant", _lines)),
        ("reply, cut at a blank, parts first", Parts("assistant", _at_blank, first=True)),
        ("second reply, lines", Parts("assistant", _lines, 1)),
        ("system, cut at a blank, parts first", Parts("system", _at_blank, first=True)),
        ("user, sections", Parts("user", _sections)),
        ("tool result, line end kept", Parts("tool", _with_break)),
        ("newest user, cut at a blank", Parts("user", _at_blank, -1)),
    )
]


CALL: Any = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {
            "id": "t-1",
            "type": "function",
            "function": {"name": "finish", "arguments": '{"success": true}'},
        }
    ],
}
MERGED = [
    Variant("role-merge", name, make)
    for name, make in (
        ("two hints", merged(said("user", "(hint) look at line 40", "(hint) and 41"), "\n", at=2)),
        ("labelled", merged(said("user", "First point.", "Second point."), "\n[next] ", at=2)),
        ("four messages", merged(said("user", "a", "b", "c", "d"), "\n\n", at=1)),
        ("replies, nothing between", merged(said("assistant", "Hm. ", "Right."), "", at=3)),
        ("replies, blank line", merged(said("assistant", "Part one.", "Part two."), "\n\n", at=5)),
        ("rules", merged(said("system", "Rule 1: no secrets.", "Rule 2: be kind."), "\n", at=1)),
        ("developer notes", merged(said("developer", "Tests first.", "Then code."), "\n\n", at=1)),
        (
            "rules, undone",
            merged(said("system", "Stay calm.", "Cite."), "\n\n", at=1, undone=True),
        ),
        ("two hints, undone", merged(said("user", "Psst.", "Over here."), " ", at=4, undone=True)),
        (
            "remark and call",
            merged([{"role": "assistant", "content": "That was it."}, CALL], "", at=2),
        ),
    )
]

VARIANTS = [*KEY_ORDER, *WHITESPACE, *UNICODE, *PARTS, *MERGED]
