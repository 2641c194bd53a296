"""The end of the root at a boundary of a large match unit, where that pays.

A new session finds whole units of the root only: the tokens behind the last boundary are computed
again by each. Padding up to the next boundary is computed once while the root stays resident, and
makes them reusable. It also takes KV space and context, so it must be shorter than what it saves.
"""

from collections.abc import Callable, Sequence

from duramen.layout.align import align
from duramen.serving.gateway.message_text import Message, num_system, texts, with_texts

MIN_UNIT_TOKENS = 64  # below, what a boundary costs is not worth a changed prompt
MAX_TRIES = 8  # to hit a boundary exactly


def root_padding(root_tokens: int, unit: int, *, min_padding: int = 1) -> int:
    """Tokens to pad a root of `root_tokens` with, 0 where it does not pay: one later session must
    save more tokens, those behind the last boundary, than the padding has.

    `unit`: match unit, in tokens. `min_padding`: the shortest padding there is. Raises LayoutError
    for sizes that cannot be.
    """
    made = align(root_tokens, unit, (), (1.0,), min_padding)
    return made.num_padding if unit >= MIN_UNIT_TOKENS else 0


def pad_root(
    messages: Sequence[Message],
    root_tokens: int,
    unit: int,
    count: Callable[[str], int],
) -> list[Message] | None:
    """`messages` with a filler behind the last text of the root, so that the root grows exactly to
    a boundary; None where that does not pay, no number of words does it, or there is no such text.

    `root_tokens`: of all that is before the first turn, tools and template included, as rendered
    without the filler. `count`: tokens of a text. Equal arguments give equal messages.
    """
    last = num_system(messages) - 1
    written = texts(messages[last]) if last >= 0 else []
    if not written:
        return None
    before = count(written[-1])

    def added(num_words: int) -> int:
        return count(written[-1] + filler(num_words)) - before

    shortest = max(added(0), 1)
    padding = root_padding(root_tokens, unit, min_padding=shortest)
    num_words = _words(padding, shortest, added) if padding else None
    if num_words is None:
        return None
    padded = with_texts(messages[last], [*written[:-1], written[-1] + filler(num_words)])
    return [*messages[:last], padded, *messages[last + 1 :]]


def filler(num_words: int) -> str:
    return f"\n\n<padding>{' a' * num_words} </padding>"


def _words(padding: int, shortest: int, added: Callable[[int], int]) -> int | None:
    """How many words make a filler of exactly `padding` tokens."""
    num_words = padding - shortest
    for _ in range(MAX_TRIES):
        missing = padding - added(num_words)
        if not missing:
            return num_words
        num_words += missing
        if num_words < 0:
            return None
    return None
