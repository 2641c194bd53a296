"""Thinking as the published templates and models write it into a prompt's text.

Tags were read in the chat templates of Qwen3, DeepSeek R1 and V3.1, gpt-oss, Mistral Small, Command
R7B, Seed-OSS, Kimi K2 and Gemma 4.
"""

import re
from dataclasses import dataclass

_NAMES = (
    "think(?:ing)?|thoughts?|reason(?:ing)?|reflect(?:ion)?|scratchpad|analysis|cot"
    "|chain[_-]of[_-]thought|inner_prefix|inner_monologue|rationale|deliberation|reasoning_content"
    "|antthinking|thinking_process|thought_process|internal_monologue|internal_thoughts"
)
_TAG = rf"(?:[a-z]{{1,12}}:)?(?:{_NAMES})(?::[a-z]{{1,20}})?"
_OPEN = re.compile(
    rf"<\|channel\|>analysis<\|message\|>|<\|channel>thought"
    rf"|<\|(?:START_|begin_of_)?(?:{_NAMES})(?:_start)?\|>"
    rf"|<{_TAG}>|\[(?:{_NAMES})\]|◁(?:{_NAMES})▷",
    re.I,
)
_CLOSE = re.compile(
    rf"<\|(?:END_|end_of_|/)(?:{_NAMES})\|>|<\|(?:{_NAMES})_end\|>|<\|inner_suffix\|>"
    rf"|</{_TAG}>|\[/(?:{_NAMES})\]|◁/(?:{_NAMES})▷",
    re.I,
)
_OTHER_CLOSES = {"<|channel|>analysis<|message|>": "<|end|>", "<|channel>thought": "<channel|>"}
_LONGEST = 40


@dataclass(frozen=True)
class Block:
    """Characters [start, end) of a text, tags included; `inner` is what was thought. A block that
    is not closed goes up to the end."""

    start: int
    end: int
    inner: str
    closed: bool

    @property
    def is_empty(self) -> bool:
        return not self.inner.strip()


def block_at(text: str, position: int) -> Block | None:
    """The thinking that begins at `position`, in a tag that reaches over it or behind blanks."""
    low = max(position - _LONGEST, 0)
    for found in _OPEN.finditer(text, low, min(len(text), position + 2 * _LONGEST)):
        if found.end() > position and not text[position : found.start()].strip():
            return _closed(text, found)
    return None


def block_around(text: str, position: int) -> Block | None:
    """The thinking whose inside holds `position`."""
    last = None
    for found in _OPEN.finditer(text, max(position - 2**16, 0), position):
        last = found
    if last is None:
        return None
    block = _closed(text, last)
    return block if position < block.end else None


def lone_close_at(text: str, position: int) -> str | None:
    """A closing tag that begins at `position` (as `block_at`): thinking that was never opened."""
    low = max(position - _LONGEST, 0)
    for found in _CLOSE.finditer(text, low, min(len(text), position + 2 * _LONGEST)):
        if found.end() > position and not text[position : found.start()].strip():
            return str(found[0])
    return None


def unopened(text: str, start: int) -> Block | None:
    """Thinking from `start` on whose opening tag is not in the text: it was closed only."""
    closed, opened = _CLOSE.search(text, start), _OPEN.search(text, start)
    if closed is None or (opened is not None and opened.start() < closed.start()):
        return None
    return Block(start, closed.end(), text[start : closed.start()], closed=True)


def _closed(text: str, opened: re.Match[str]) -> Block:
    if closing := _OTHER_CLOSES.get(str(opened[0])):
        start = text.find(closing, opened.end())
        end = start + len(closing)
    else:
        found = _CLOSE.search(text, opened.end())
        start, end = found.span() if found else (-1, -1)
    if start < 0:
        return Block(opened.start(), len(text), text[opened.end() :], closed=False)
    return Block(opened.start(), end, text[opened.end() : start], closed=True)


def split_thinking(text: str) -> tuple[str, str]:
    """What is thought and what is said, both without outer blanks. Thinking whose opening tag stood
    in the prompt is closed only."""
    thought, said = [], []
    position = 0
    while opened := _OPEN.search(text, position):
        block = _closed(text, opened)
        said.append(text[position : block.start])
        thought.append(block.inner.strip())
        position = block.end
    rest = text[position:]
    if not thought and (closed := _CLOSE.search(rest)):
        thought.append(rest[: closed.start()].strip())
        rest = rest[closed.end() :]
    said.append(rest)
    return "\n".join(filter(None, thought)), "".join(said).strip()


def has_thinking(text: str) -> bool:
    return _OPEN.search(text) is not None or _CLOSE.search(text) is not None
