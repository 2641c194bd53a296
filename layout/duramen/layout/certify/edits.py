"""Small edits of a chat template that may keep a prefix, found by general rules.

None of them knows a template. Each is a guess from the source, which mend.py tries and offers only
where it is proven. The rules:

* option: an option of the template that changes only how the past is written gets another default.
* position: a condition on where a message stands ("behind the last user message", "the last of the
  loop") is always true, always false, or is asked of the first message instead of the last.
* state: a condition on something that a loop over the messages has noted is always true or false.
* generation prompt: what the generation prompt writes behind the header, and the past does not, is
  written into the past as well: blanks, an empty thinking block, or one that holds the thinking.
* parts: content that is a list of text parts becomes a text before anything reads it.
"""

import re
from collections.abc import Iterator
from typing import Any

from duramen.layout.certify.source import Edit, Tag, masked, tags

_NAME = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
_OPERAND = rf"{_NAME}(?:\[-?\d+\])?(?:\s*\|\s*length)?(?:\s*-\s*\d+)?"
_COMPARISON = re.compile(
    rf"(?<![\w.])(?P<what>{_OPERAND}\s*(?:[=!<>]=|[<>])\s*{_OPERAND})(?![\w.(\[])"
)
_LAST = re.compile(r"(?<![\w.])(?P<what>loop\.last)(?!\w)")
_LAST_ITEM = re.compile(rf"(?<![\w.])(?P<what>(?P<name>{_NAME})\[-1\])(?![\w.(\[])")
_STATE = re.compile(
    rf"(?:\b(?:el)?if\b|\band\b|\bor\b|\bnot\b|\()\s*(?P<what>{_NAME}\.[A-Za-z_]\w*)"
    r"(?=\s*(?:$|\band\b|\bor\b|\)))"
)
_WORDS = {"true", "false", "none", "not", "and", "or", "in", "is", "if", "else"}


def conditions(source: str) -> Iterator[Edit]:
    """The rules "position" and "state"."""
    found = list(tags(source))
    for tag in found:
        yield from _position(source, tag)
    for tag in found:
        yield from _state(source, tag)


def default(name: str, value: Any) -> Edit:
    """The rule "option"."""
    text = f"{{% if {name} is not defined %}}{{% set {name} = {literal(value)} %}}{{% endif %}}"
    rule = f"the option {name} is {literal(value)} by default"
    return Edit(rule, 0, 0, text)


def _position(source: str, tag: Tag) -> Iterator[Edit]:
    inside = masked(source, tag)
    for found in _COMPARISON.finditer(inside):
        if not _WORDS.intersection(name.lower() for name in re.findall(r"\w+", found[0])):
            yield from _replaced(source, tag, found, ["true", "false"], "always")
    for found in _LAST.finditer(inside):
        yield from _replaced(source, tag, found, ["true", "false"], "always")
        yield from _replaced(source, tag, found, ["loop.first"], "now")
    for found in _LAST_ITEM.finditer(inside):
        yield from _replaced(source, tag, found, [f"{found['name']}[0]"], "now")


def _state(source: str, tag: Tag) -> Iterator[Edit]:
    for found in _STATE.finditer(masked(source, tag)):
        if re.search(rf"set\s+{re.escape(found['what'])}\s*=", source):
            yield from _replaced(source, tag, found, ["true", "false"], "always")


def _replaced(
    source: str, tag: Tag, found: re.Match[str], texts: list[str], how: str
) -> Iterator[Edit]:
    start, end = (tag.inner + place for place in found.span("what"))
    for text in texts:
        yield Edit(f"`{source[start:end]}` is {how} `{text}`", start, end, text)


def parts_as_text(source: str) -> Edit:
    """The parts are joined by line ends, as vLLM 0.32 joins them."""
    name = "flat"
    while name in source:
        name += "_"
    text = (
        f"{{% set {name} = namespace(messages=[]) %}}"
        "{% for message in messages %}"
        "{% if message.content is undefined or message.content is string"
        " or message.content is mapping or message.content is not iterable"
        " or message.content | rejectattr('type', 'equalto', 'text') | list %}"
        f"{{% set {name}.messages = {name}.messages + [message] %}}"
        "{% else %}"
        f"{{% set {name}.messages = {name}.messages + [dict(message, content="
        "message.content | map(attribute='text') | join('\\n'))] %}"
        "{% endif %}{% endfor %}"
        f"{{% set messages = {name}.messages %}}"
    )
    rule = "content that is a list of text parts becomes one text"
    return Edit(rule, 0, 0, text)


def literal(value: Any) -> str:
    """As Jinja writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value).replace("\\", "\\\\").replace("'", "\\'")
    text = text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return f"'{text}'"
