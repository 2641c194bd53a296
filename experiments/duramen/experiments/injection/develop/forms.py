"""Forms in which the half to develop on says the same otherwise."""

import json
import re

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

SETTINGS = {
    "name": "checkout",
    "retries": 3,
    "owner": {"team": "payments", "mail": "pay@example.com"},
    "regions": [{"id": "eu", "on": True}, {"id": "us", "on": False}],
}
ROW = {
    "id": 77,
    "title": "Réservation",
    "total": 12.5,
    "tags": ["new"],
    "by": {"id": 4, "nick": "zoë"},
}
KEY_ORDER = [
    Variant("json-key-order", "schema, all levels, sorted", schema_keys("sorted", 0)),
    Variant("json-key-order", "schema, all levels, shuffled", schema_keys("shuffled", 0)),
    Variant("json-key-order", "schema, names of parameters", schema_keys("reversed", 1)),
    Variant("json-key-order", "schema, inside parameters", schema_keys("reversed", 2)),
    Variant("json-key-order", "arguments, first call, sorted", argument_keys("sorted")),
    Variant("json-key-order", "arguments, last call, reversed", argument_keys("reversed", -1)),
    Variant(
        "json-key-order",
        "config in system text",
        json_text(SETTINGS, "Configuration:\n{}", "system tail", "shuffled"),
    ),
    Variant(
        "json-key-order",
        "fenced and indented in system text",
        json_text(SETTINGS, "```json\n{}\n```", "system middle", "sorted", indent=2),
    ),
    Variant(
        "json-key-order",
        "tool result",
        json_text(ROW, "{}", "tool result", "reversed"),
    ),
    Variant(
        "json-key-order",
        "compact in user text, second level only",
        json_text(SETTINGS, "state={}", "user tail", "reversed", 1, separators=(",", ":")),
    ),
]


WHITESPACE = [
    white("CRLF in system text", "system tail", lambda t: t.replace("\n", "\r\n")),
    white("line end at the end of system text", "system tail", lambda t: t + "\n"),
    white("blanks at line ends", "user tail", lambda t: t.replace("\n", " \n")),
    white("stripped user text", "user tail", lambda t: t.strip()),
    white("leading blank in a reply", "reply", lambda t: " " + t),
    white("reply stripped", "reply", lambda t: t.strip()),
    white("tabs for four blanks", "tool result", lambda t: t.replace("    ", "\t")),
    white("blank lines squeezed", "user tail", lambda t: re.sub(r"\n{2,}", "\n", t)),
    white("blank lines doubled", "tool result", lambda t: t.replace("\n", "\n\n")),
    white("double blank in a sentence", "system tail", lambda t: t.replace(". ", ".  ")),
    white("dedented", "tool result", lambda t: re.sub(r"(?m)^ +", "", t)),
]

UNICODE = [
    Variant("unicode-normalisation", name, make)
    for name, make in {
        "French, system tail": normalised(
            "Répondez à la première requête.", "system tail", "NFC", "NFD"
        ),
        "German, user tail": normalised(
            "Prüfe die Größe der Übertragung.", "user tail", "NFC", "NFD"
        ),
        "Vietnamese, user head": normalised(
            "Xin chào, kiểm tra đặt chỗ giúp tôi", "user head", "NFC", "NFD"
        ),
        "Korean, tool result": normalised("보고서가 준비되었습니다", "tool result", "NFC", "NFD"),
        "Japanese, system head": normalised(
            "プログラムをガイドで確認", "system head", "NFD", "NFC"
        ),
        "ligatures, user tail": normalised("The ﬁrst ﬂow of the oﬃce", "user tail", "NFC", "NFKC"),
        "full width, system middle": normalised(
            "Ｏｒｄｅｒ　Ｎｏ．", "system middle", "NFC", "NFKC"
        ),
        "superscripts, reply": normalised("about 10⁶ m² each", "reply", "NFC", "NFKC"),
        "Ångström sign, tool result": normalised(
            "edge 1.54 Å at 20 Ω", "tool result", "NFD", "NFC"
        ),
        "tool description": normalised(
            "Übersetzt nach Français.", "tool description", "NFC", "NFD"
        ),
    }.items()
]


def _halves(text: str) -> list[str]:
    cut = text.find("\n", len(text) // 3)
    return [text[:cut], text[cut:].lstrip("\n")] if cut > 0 and text[cut:].strip() else [text]


def _thirds(text: str) -> list[str]:
    first, *rest = _halves(text)
    return [first, *_halves(rest[0])] if rest else [text]


def _paragraphs(text: str) -> list[str]:
    pieces = text.split("\n\n")
    return pieces if all(piece.strip() for piece in pieces) else [text]


PARTS = [
    Variant("content-parts-vs-string", name, as_parts(parts))
    for name, parts in (
        ("user, two parts", Parts("user", _halves)),
        ("user, paragraphs", Parts("user", _paragraphs)),
        ("system, two parts", Parts("system", _halves)),
        ("system, paragraphs", Parts("system", _paragraphs)),
        ("system, parts first", Parts("system", _halves, first=True)),
        ("user, parts first", Parts("user", _paragraphs, first=True)),
        ("user, three parts", Parts("user", _thirds)),
        ("reply, two parts", Parts("assistant", _halves)),
        ("last reply, paragraphs", Parts("assistant", _paragraphs, -1)),
        ("tool result, paragraphs", Parts("tool", _paragraphs)),
        ("newest user, two parts", Parts("user", _halves, -1)),
    )
]


MERGED = [
    Variant("role-merge", name, make)
    for name, make in (
        ("user, blank line", merged(said("user", "Wait.", "Use the blue one."), "\n\n", at=2)),
        ("user, line end", merged(said("user", "Hello?", "Are you there?"), "\n", at=1)),
        ("user, rule", merged(said("user", "Left one.", "Right one."), "\n***\n", at=2)),
        ("user, numbered", merged(said("user", "1) fix it", "2) test it"), "; ", at=3)),
        ("three user messages", merged(said("user", "One.", "Two.", "Three."), "\n\n", at=2)),
        ("assistant", merged(said("assistant", "Let me see.", "Here it is."), "\n\n", at=3)),
        ("system", merged(said("system", "Be brief.", "Answer in English."), "\n\n", at=1)),
        ("developer", merged(said("developer", "No network.", "No sudo."), "\n", at=1)),
        ("user, blank", merged(said("user", "Please", "stop and summarise."), " ", at=4)),
        ("user, undone", merged(said("user", "Nice.", "Next?"), "\n\n", at=2, undone=True)),
        (
            "assistant, undone",
            merged(said("assistant", "Thinking aloud.", "Done."), "\n", at=3, undone=True),
        ),
        (
            "text and tool call",
            merged(
                [
                    {"role": "assistant", "content": "I look at the file."},
                    {
                        "role": "assistant",
                        "content": "",
                        "tool_calls": [
                            {
                                "id": "call_m1",
                                "type": "function",
                                "function": {"name": "ping", "arguments": json.dumps({})},
                            }
                        ],
                    },
                ],
                "",
                at=2,
            ),
        ),
    )
]

VARIANTS = [*KEY_ORDER, *WHITESPACE, *UNICODE, *PARTS, *MERGED]
