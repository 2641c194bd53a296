"""Causes that only token ids show: another spelling of the same text, and BOS twice."""

import re
from collections.abc import Sequence

from duramen.layout.blocks import common_prefix
from duramen.layout.diagnose.change import Change, quoted
from duramen.layout.tokenizer import Tokenizer

_LOOKED_AT = 64  # tokens, behind the first that differs
_SHIFTED_TOKENS = 16
_SHIFTED_CHARS = 80
_MARKER = re.compile(r"<[^<>\s]{1,40}>|\[[^\[\]\s]{1,40}\]|<｜[^｜]{1,40}｜>")


def bos_twice(old_ids: Sequence[int], new_ids: Sequence[int], token: int) -> Change | None:
    """One of the two begins with one id twice, and is the other from its second id on."""
    if token > 1:
        return None
    for twice, once, which in ((old_ids, new_ids, "earlier"), (new_ids, old_ids, "later")):
        if len(twice) < 2 or not once or twice[0] != twice[1] or once[0] != twice[0]:
            continue
        head = min(len(once), len(twice) - 1, _SHIFTED_TOKENS)
        if len(once) > 1 and once[1] == twice[1]:
            continue
        if common_prefix(list(twice[1 : head + 1]), list(once[:head])) == head:
            shown = f"the {which} prompt begins with id {twice[0]} twice, the other once"
            return Change("bos-twice", 1.0, shown, "the start of the prompt")
    return None


def bos_text_twice(old: str, new: str, bos: str | None) -> Change | None:
    """The same in text."""
    for twice, once, which in ((old, new, "earlier"), (new, old, "later")):
        marker = bos if bos and once.startswith(bos) else None
        if marker is None and (found := _MARKER.match(once)):
            marker = found[0]
        if not marker or once.startswith(marker * 2) or not twice.startswith(marker * 2):
            continue
        size = min(len(twice) - len(marker), len(once), _SHIFTED_CHARS)
        if twice[len(marker) : len(marker) + size] == once[:size]:
            shown = f"the {which} prompt begins with {marker!r} twice, the other once"
            return Change("bos-twice", 1.0, shown, "the start of the prompt")
    return None


def respelled(
    old_ids: Sequence[int], new_ids: Sequence[int], token: int, tokenizer: Tokenizer
) -> Change | None:
    """From `token` on, both spell the same text by other ids, and then go on alike."""
    old, new = old_ids[token : token + _LOOKED_AT], new_ids[token : token + _LOOKED_AT]
    ends = {text: i for i, text in enumerate(_spelled(new, tokenizer), 1) if text}
    for i, text in enumerate(_spelled(old, tokenizer), 1):
        j = ends.get(text)
        if j is None:
            continue
        if token + i == len(old_ids) or old[i : i + 1] == new[j : j + 1]:
            was, now = ([tokenizer.token_text(t) for t in ids] for ids in (old[:i], new[:j]))
            shown = f"{quoted(text)} was {_listed(was)} and is {_listed(now)}"
            return Change("retokenisation", 1.0, shown)
    return None


def _spelled(token_ids: Sequence[int], tokenizer: Tokenizer) -> list[str]:
    """The text of each head of the ids; "" stands for one that ends within a character."""
    heads = (tokenizer.decode(list(token_ids[:end])) for end in range(1, len(token_ids) + 1))
    return ["" if head.endswith("\ufffd") else head for head in heads]


def _listed(tokens: list[str]) -> str:
    return " ".join(map(quoted, tokens[:4])) + (" …" if len(tokens) > 4 else "")
