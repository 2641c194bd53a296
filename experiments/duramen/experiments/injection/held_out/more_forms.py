"""Blanks, Unicode forms and parts of the half that is only scored on."""

import json
import re
from random import Random
from textwrap import fill

from duramen.experiments.injection.cases import Case, Scene, Variant
from duramen.experiments.injection.edits import Place
from duramen.experiments.injection.forms import Edit, Parts, as_parts, lines, normalised, rewritten
from duramen.experiments.injection.held_out.tools import given_tools
from duramen.experiments.injection.lab import Lab
from duramen.layout.diagnose.causes import Cause


def _white(name: str, place: Place, edit: Edit) -> Variant:
    return Variant("whitespace", name, rewritten("whitespace", place, edit))


def _laid_out(
    name: str, place: Place, before: str, after: str, also: tuple[Cause, ...] = ()
) -> Variant:
    """One text in both calls, laid out in two ways."""

    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        return lines(scene, place, before, after, frozenset(["whitespace", *also]))

    return Variant("whitespace", name, given_tools(make))


def _wrapped(text: str) -> str:
    """Lines of at most 64 characters, broken at blanks."""
    return "\n".join(
        fill(line, 64, break_long_words=False, break_on_hyphens=False) if line.strip() else line
        for line in text.split("\n")
    )


ROWS = {"region": "Nord", "net": 1204.5, "orders": 88, "returns": {"count": 3, "share": 0.034}}
FRAME = "region   net  orders\nNord  1204.5      88\nSüd    980.0      61"
WIDE_FRAME = (
    "region         net     orders\nNord        1204.5         88\nSüd          980.0         61"
)
TABLE = "| status | count |\n| --- | --- |\n| open | 12 |\n| closed | 7 |"
PADDED_TABLE = "| status | count |\n| ---    | ---   |\n| open   | 12    |\n| closed | 7     |"
DOCSTRING = "Looks up a booking.\n\nArgs:\n    code: the six letters on the ticket."
RAW_DOCSTRING = (
    "Looks up a booking.\n\n        Args:\n            code: the six letters on the ticket."
)

WHITESPACE = [
    _white(
        "template literal not dedented", "system tail", lambda t: re.sub(r"(?m)^(?=.)", "    ", t)
    ),
    _white("line end in front of the system text", "system head", lambda t: f"\n{t}"),
    _white("wrapped at 64 columns", "system middle", _wrapped),
    _white("wrapped lines joined", "user tail", lambda t: re.sub(r"(?<=[^\s])\n(?=[^\s])", " ", t)),
    _white("blanks at line ends cut off", "tool result", lambda t: re.sub(r"(?m)[ \t]+$", "", t)),
    _white("tool output without its last line end", "tool result", lambda t: t.rstrip("\r\n")),
    _white("line end behind a tool output", "tool result", lambda t: f"{t}\n"),
    _white("tabs expanded", "user tail", lambda t: t.expandtabs(8)),
    _white("wide bullets", "user tail", lambda t: re.sub(r"(?m)^- ", "-   ", t)),
    _white("CRLF in a reply", "reply", lambda t: t.replace("\n", "\r\n")),
    _white("two blanks in front of a reply", "reply", lambda t: f"  {t}"),
    _white("three blank lines made one", "user head", lambda t: re.sub(r"\n{3,}", "\n\n", t)),
    _white(
        "blank line behind a heading", "system middle", lambda t: re.sub(r":\n(?=\S)", ":\n\n", t)
    ),
    _laid_out(
        "JSON pretty, then on one line",
        "tool result",
        json.dumps(ROWS, indent=2),
        json.dumps(ROWS),
    ),
    _laid_out(
        "JSON with blanks, then tight",
        "system middle",
        f"Last result: {json.dumps(ROWS)}",
        f"Last result: {json.dumps(ROWS, separators=(',', ':'))}",
    ),
    _laid_out("data frame printed wider", "tool result", FRAME, WIDE_FRAME),
    _laid_out("table padded by a formatter", "user tail", TABLE, PADDED_TABLE),
    _laid_out(
        "docstring as it stands in the code",
        "tool description",
        DOCSTRING,
        RAW_DOCSTRING,
        ("tool-set-changed",),
    ),
]


UNICODE = [
    Variant("unicode-normalisation", name, make)
    for name, make in {
        "Portuguese, system head": normalised(
            "Você é atendente de uma operadora; não dê descontos.", "system head", "NFC", "NFD"
        ),
        "Turkish, user tail": normalised(
            "Siparişim hâlâ gelmedi, çağrı merkezi dönüş yapmadı.", "user tail", "NFC", "NFD"
        ),
        "Swedish, system tail": normalised(
            "Svara på frågor från Åsa i köp- och återköpsärenden.", "system tail", "NFD", "NFC"
        ),
        "Hungarian, tool result": normalised(
            "árvíztűrő tükörfúrógép: raktáron", "tool result", "NFC", "NFD"
        ),
        "Romanian, user head": normalised(
            "Bună ziua, vreau să știu unde este coletul.", "user head", "NFC", "NFD"
        ),
        "file name listed by a Mac, tool result": normalised(
            "Kündigungsbestätigung_Köln.pdf", "tool result", "NFC", "NFD"
        ),
        "Japanese file name, user tail": normalised(
            "売上データ_ダッシュボード.xlsx を開いてください", "user tail", "NFC", "NFD"
        ),
        "full-width digits of an order, user head": normalised(
            "订单号１２３４５６７", "user head", "NFC", "NFKC"
        ),
        "abbreviated company, system tail": normalised(
            "㈱山田商事のサポート窓口です", "system tail", "NFC", "NFKC"
        ),
        "area and volume, tool result": normalised(
            "30 ㎡, 12 €/m³, 21 ℃", "tool result", "NFC", "NFKC"
        ),
        "Slovak, reply": normalised("Vašu objednávku som našiel.", "reply", "NFD", "NFC"),
        "parameter description, French": given_tools(
            normalised("numéro de réservation à vérifier", "parameter description", "NFC", "NFD")
        ),
    }.items()
]


def _sentences(text: str) -> list[str]:
    """The first sentence, the rest, and no blank between."""
    first, mark, rest = text.partition(". ")
    return [f"{first}.", rest] if mark and rest.strip() else [text]


def _words(text: str) -> list[str]:
    """Thirds, cut at blanks, which a client joins with."""
    words = text.split(" ")
    third = len(words) // 3
    pieces = [words[:third], words[third : 2 * third], words[2 * third :]]
    return [" ".join(piece) for piece in pieces] if third else [text]


def _last_paragraph(text: str) -> list[str]:
    pieces = text.rsplit("\n\n", 1)
    return pieces if all(piece.strip() for piece in pieces) else [text]


def _last_line(text: str) -> list[str]:
    pieces = text.rstrip("\n").rsplit("\n", 1)
    return pieces if all(piece.strip() for piece in pieces) else [text]


def _each_line(text: str) -> list[str]:
    """A part for each line that says something."""
    return [line for line in text.split("\n") if line.strip()]


PARTS = [
    Variant("content-parts-vs-string", name, as_parts(parts))
    for name, parts in (
        ("user, first sentence apart", Parts("user", _sentences)),
        ("user, last paragraph apart", Parts("user", _last_paragraph)),
        ("user, a part a line", Parts("user", _each_line)),
        ("user, thirds, parts first", Parts("user", _words, first=True)),
        ("system, last paragraph apart", Parts("system", _last_paragraph)),
        ("system, a part a line, parts first", Parts("system", _each_line, first=True)),
        ("system, thirds", Parts("system", _words)),
        ("reply, first sentence apart", Parts("assistant", _sentences)),
        ("reply, last line apart, parts first", Parts("assistant", _last_line, first=True)),
        ("last reply, thirds", Parts("assistant", _words, -1)),
        ("tool result, last paragraph apart", Parts("tool", _last_paragraph)),
        ("newest user, last line apart", Parts("user", _last_line, -1)),
    )
]

VARIANTS: list[Variant] = [*WHITESPACE, *UNICODE, *PARTS]
