"""Placeholders of prompt templates that are filled with something new in each call.

The forms: `{{ x }}`, `{% x %}`, `{x}` of f-strings and str.format, `${x}`, `$(x)`, `%(x)s` and
`<%= x %>`. What one is filled with is told from its name, or from the function that it calls.
Fields of an object (`{{ event.date }}`) are its data and no clock, and so are the names that a loop
or an assignment binds.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Kind = Literal["a clock", "an id", "a counter", "chance"]
_FORMS = re.compile(
    r"\{\{-?(?P<mustache>[^{}]{1,400}?)-?\}\}"
    r"|\{%-?(?P<tag>[^{}]{1,400}?)-?%\}"
    r"|<%[=-]?(?P<erb>[^<>]{1,400}?)%>"
    r"|(?<!\\)\$\{(?P<shell>[^{}\n]{1,200})\}"
    r"|(?<![\\$])\$\((?P<command>[^()\n]{1,200})\)"
    r"|%\((?P<percent>[A-Za-z_][\w.]{0,80})\)[sdrf]"
    r"|(?<![\\\w{}$%/])\{(?P<brace>[A-Za-z_][^{}\n]{0,200})\}(?![}/])"
)
_CALLS: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    (
        "a clock",
        re.compile(
            r"\b(?:now|utcnow|today|strftime_now|localtime|gmtime|getdate|time_ns|currentdate)\s?\("
            r"|\b(?:datetime|date|Date|time|dayjs|moment)(?:[.]\w+)?[.](?:now|utcnow|today|time)\b"
            r"|\btime[.]time\(|\bnew Date\b|\b(?:dayjs|moment)\(\s?\)"
            r"|\|\s?(?:strftime|date)\b|\bnow\s?\|"
        ),
    ),
    (
        "an id",
        re.compile(
            r"\b(?:uuid[1-8]?|guid|ulid|nanoid|randomUUID|getrandbits|token_hex|token_urlsafe"
            r"|urandom)\s?\(|\buuidgen\b"
        ),
    ),
    ("chance", re.compile(r"\b(?:rand(?:om|int|range)?|choice|shuffle)\s?\(|\|\s?random\b")),
)
_SHELL_CLOCK = re.compile(r"\s*date\b")
_NAME = re.compile(r"\s*([A-Za-z_][\w.]{0,80})\s*(?:[!:][^|]*|\|.*)?\s*\Z", re.S)
_LOOP = re.compile(r"\{%-?\s*(?:for|set)\s+([\w\s,]{1,80}?)\s*(?:\bin\b|=)")
_CLOSERS = {"{{": "}}", "{%": "%}", "{#": "#}"}
_OPENER = re.compile(r"\{[{%#]")
_FENCE = re.compile(r"^[ ]{0,3}(```|~~~).*?(?:^[ ]{0,3}\1|\Z)|`[^`\n]{1,200}`", re.M | re.S)
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")

_CLOCK = {"now", "today", "date", "datetime", "time", "timestamp", "clock", "weekday", "todays"}
_CLOCK_FITS = {"the", "current", "iso", "utc", "local", "string", "str", "unix", "epoch", "system",
               "formatted", "server", "user", "human", "readable", "full", "short", "ms", "s", "of",
               "day", "a", "and", "here", "is", "get"}  # fmt: skip
_SENT = {"request", "req", "session", "trace", "run", "conversation", "correlation", "invocation",
         "span", "thread"}  # fmt: skip
_ID = {"id", "hash", "uid", "uuid", "guid", "key"}
_COUNTED = {"step", "steps", "turn", "turns", "iteration", "iterations", "attempt", "attempts",
            "round", "rounds", "tokens", "token", "calls", "budget"}  # fmt: skip
_COUNTS = {"number", "num", "no", "index", "idx", "count", "counter", "left", "remaining",
           "current", "used", "so", "far", "i", "n"}  # fmt: skip
_ALONE = {"step", "turn", "iteration", "attempt", "counter", "stepnumber", "turnnumber"}


@dataclass(frozen=True)
class Placeholder:
    """Characters [start, end) of the template, `shown` in full; `kind`: what fills it."""

    start: int
    end: int
    shown: str
    kind: Kind


def find_placeholders(text: str, *, is_template: bool) -> Iterator[Placeholder]:
    """Those that change from call to call, in order. In plain text and Markdown (not `is_template`)
    code in fences and backticks is an example and not filled."""
    if is_template:
        skipped = [span for span in code_spans(text) if text.startswith("{#", span[0])]
    else:
        skipped = [found.span() for found in _FENCE.finditer(text)]
    bound = {name for found in _LOOP.finditer(text) for name in re.split(r"\W+", found[1])}
    for found in _FORMS.finditer(text):
        nearest = bisect_right(skipped, (found.start(), len(text))) - 1
        if nearest >= 0 and found.start() < skipped[nearest][1]:
            continue
        form = str(found.lastgroup)
        if form == "command" and _SHELL_CLOCK.match(found[form]):
            kind: Kind | None = "a clock"
        else:
            kind = _kind(found[form], is_name=form not in ("tag", "command"), bound=bound)
        if kind is not None:
            yield Placeholder(found.start(), found.end(), found[0], kind)


def _kind(expression: str, *, is_name: bool, bound: set[str]) -> Kind | None:
    for kind, pattern in _CALLS:
        if pattern.search(expression):
            return kind
    name = _NAME.match(expression) if is_name else None
    return None if name is None or name[1].split(".")[0] in bound else _kind_of_name(name[1])


def code_spans(text: str) -> list[tuple[int, int]]:
    """Where a Jinja template has code or comments: a value that is written there is a constant. In
    order, no overlap; linear in the text."""
    spans: list[tuple[int, int]] = []
    unclosed: set[str] = set()
    found = _OPENER.search(text)
    while found is not None:
        opener, end = found[0], found.end()
        close = -1 if opener in unclosed else text.find(_CLOSERS[opener], end)
        if close < 0:
            unclosed.add(opener)
        else:
            end = close + 2
            spans.append((found.start(), end))
        found = _OPENER.search(text, end)
    return spans


def _kind_of_name(name: str) -> Kind | None:
    words = [word.lower() for word in _WORD.findall(name.rpartition(".")[2])]
    joined, have = "".join(words), set(words)
    if "." in name and not have & {"now", "today", "current"}:
        return None
    if joined in ("nonce", "uuid", "guid", "ulid") or (have & _SENT and words[-1] in _ID):
        return "an id"
    if have & _CLOCK and have <= _CLOCK | _CLOCK_FITS:
        return "a clock"
    if joined in _ALONE or (have & _COUNTED and have & _COUNTS and have <= _COUNTED | _COUNTS):
        return "a counter"
    return None
