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
    """Both begin with the same id, one of them more often, and go on alike behind it."""
    if not old_ids or not new_ids or old_ids[0] != new_ids[0]:
        return None
    was, now = (_num_leading(ids) for ids in (old_ids, new_ids))
    if was == now or token != min(was, now):
        return None
    old, new = (list(ids[n : n + _SHIFTED_TOKENS]) for ids, n in ((old_ids, was), (new_ids, now)))
    head = min(len(old), len(new))
    if common_prefix(old[:head], new[:head]) < head:
        return None
    shown = f"the earlier prompt begins with id {old_ids[0]} {_times(was)}, the later {_times(now)}"
    return Change("bos-twice", 1.0, shown, "the start of the prompt")


def _num_leading(token_ids: Sequence[int]) -> int:
    """How often the first id stands at the start."""
    return next((i for i, t in enumerate(token_ids) if t != token_ids[0]), len(token_ids))


def bos_text_twice(old: str, new: str, bos: str | None) -> Change | None:
    """The same in text."""
    marker = bos if bos and old.startswith(bos) and new.startswith(bos) else None
    if marker is None and (found := _MARKER.match(old)):
        marker = found[0]
    if not marker or not new.startswith(marker):
        return None
    was, now = (_num_leading_texts(text, marker) for text in (old, new))
    behind_old, behind_new = old[was * len(marker) :], new[now * len(marker) :]
    size = min(len(behind_old), len(behind_new), _SHIFTED_CHARS)
    if was == now or behind_old[:size] != behind_new[:size]:
        return None
    shown = f"the earlier prompt begins with {marker!r} {_times(was)}, the later {_times(now)}"
    return Change("bos-twice", 1.0, shown, "the start of the prompt")


def _num_leading_texts(text: str, marker: str) -> int:
    num = 0
    while text.startswith(marker, num * len(marker)):
        num += 1
    return num


def _times(num: int) -> str:
    return {1: "once", 2: "twice"}.get(num, f"{num} times")


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
    """The text of each head of the ids; "" where one begins or ends within a character."""
    heads = (tokenizer.decode(list(token_ids[:end])) for end in range(1, len(token_ids) + 1))
    return ["" if "\ufffd" in head else head for head in heads]


def _listed(tokens: list[str]) -> str:
    return " ".join(map(quoted, tokens[:4])) + (" …" if len(tokens) > 4 else "")
