"""Where two calls part: the first token and the first character that differ."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from duramen.layout.blocks import common_prefix
from duramen.layout.delta import common_text
from duramen.layout.diagnose.sent import Sent
from duramen.layout.tokenizer import Tokenizer
from duramen.layout.tracked import OTHER, TEMPLATE, Tracked, concat

_CHECKED_TOKENS = 8


@dataclass(frozen=True)
class Parting:
    """`old_ids` and `old` are what the later call should begin with: prompt and reply of the
    earlier one; `prompt_chars` of `old` are its prompt. `character` is len(old) where the texts
    agree. What is not known of both calls is None."""

    token: int | None = None
    old_ids: Sequence[int] | None = None
    new_ids: Sequence[int] | None = None
    old: str | None = None
    new: str | None = None
    character: int | None = None
    prompt_chars: int = 0

    @property
    def texts_agree(self) -> bool:
        return self.old is not None and self.character == len(self.old)

    @property
    def is_nowhere(self) -> bool:
        """One of the calls begins with the other, as far as ids tell, or else texts."""
        if self.token is not None:
            assert self.old_ids is not None
            assert self.new_ids is not None
            return self.token in (len(self.old_ids), len(self.new_ids))
        if self.character is not None:
            assert self.old is not None
            assert self.new is not None
            return self.character in (len(self.old), len(self.new))
        return False


def parting(before: Sent, after: Sent, tokenizer: Tokenizer | None) -> Parting:
    """Costs a comparison where one call begins with the other."""
    token, old_ids, new_ids = None, None, None
    if before.token_ids is not None and after.token_ids is not None:
        old_ids = [*before.token_ids, *(before.reply_ids or ())]
        new_ids = list(after.token_ids)
        token = common_prefix(old_ids, new_ids)
        if token in (len(old_ids), len(new_ids)):
            return Parting(token, old_ids, new_ids)
    old, new = _text(before, tokenizer), _text(after, tokenizer)
    if old is None or new is None:
        return Parting(token, old_ids, new_ids)
    if token is not None and not _fits(new, new_ids or (), token, tokenizer):
        assert tokenizer is not None
        old, new = tokenizer.decode(old_ids or ()), tokenizer.decode(new_ids or ())
    prompt = len(old) - len(tokenizer.decode(before.reply_ids or ()) if tokenizer else "")
    return Parting(token, old_ids, new_ids, old, new, common_text(old, new), prompt)


def _text(sent: Sent, tokenizer: Tokenizer | None) -> str | None:
    """With the reply behind it, whose characters count as those of the message it becomes."""
    if sent.text is not None and (tokenizer is None or not sent.reply_ids):
        return sent.text
    if tokenizer is None or (sent.text is None and sent.token_ids is None):
        return None
    reply = tokenizer.decode(sent.reply_ids or ())
    prompt = sent.text if sent.text is not None else tokenizer.decode(sent.token_ids or ())
    origin = OTHER if sent.request is None else len(sent.request.messages) + 1
    return concat((prompt, Tracked.data(reply, origin)))


def _fits(text: str, token_ids: Sequence[int], token: int, tokenizer: Tokenizer | None) -> bool:
    """Whether the ids around `token` spell what `text` says somewhere."""
    if tokenizer is None:
        return True
    low = max(token - _CHECKED_TOKENS, 0)
    spelled = tokenizer.decode(list(token_ids[low : token + _CHECKED_TOKENS])).strip("\ufffd")
    return spelled in text


@dataclass(frozen=True)
class Near:
    """Origins of data around a character of a rendered text (see tracked.py): the one it has,
    TEMPLATE for the template's own, and the nearest others on both sides, None for none. The last
    ends at `last_end`, the next begins at `next_start`."""

    last: int | None = None
    at: int | None = None
    next: int | None = None
    last_end: int = 0
    next_start: int = 0

    @property
    def origins(self) -> tuple[int | None, int | None, int | None]:
        """The nearest first."""
        return self.at, self.next, self.last

    @property
    def due(self) -> int | None:
        """Of the data that is here, or comes next."""
        return self.at if self.at is not None and self.at != TEMPLATE else self.next


def near(text: str | None, character: int) -> Near:
    """`character` may be the text's length. Without runs nothing is near."""
    if not isinstance(text, Tracked):
        return Near()
    last = at = following = None
    last_end = next_start = 0
    starts = accumulate((length for length, _ in text.runs), initial=0)
    for start, (length, origin) in zip(starts, text.runs, strict=False):
        if start + length <= character:
            if origin != TEMPLATE:
                last, last_end = origin, start + length
        elif start <= character:
            at = origin
        elif origin != TEMPLATE:
            following, next_start = origin, start
            break
    return Near(last, at, following, last_end, next_start)
