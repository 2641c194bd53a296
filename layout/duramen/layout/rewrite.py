"""How much of a conversation's ids can stay where the template writes its past anew.

The ids are followed along the text that the template had written for them, from control token to
control token. Sampled replies are jumped over: the template may write them otherwise than the model
did, and what it writes ends where its message does.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from duramen.layout.spans import Control, data_extents
from duramen.layout.stream import Sampled
from duramen.layout.tokenizer import Tokenizer
from duramen.layout.tracked import Tracked


@dataclass(frozen=True)
class Head:
    """The first `num_tokens` ids stand for the first `num_characters` of the text."""

    num_tokens: int = 0
    num_characters: int = 0


def kept_head(
    tokenizer: Tokenizer,
    token_ids: Sequence[int],
    replies: Sequence[Sampled],
    past: Tracked,
    limit: int,
) -> Head:
    """The longest head of `token_ids` that ends with a control token of the template and stands for
    at most `limit` characters of `past`. `replies`: the sampled ones, ascending."""
    walk = _Walk(tokenizer, token_ids, replies, past)
    head = place = Head()
    for anchor in _anchors(tokenizer, token_ids, replies):
        found = walk.control(place, anchor)
        if found is None:
            break
        _, end, token = found
        place = Head(anchor + 1, end)
        if end + (token.rstrip or token.single_word) > limit:
            break
        head = place
    return head


def _anchors(
    tokenizer: Tokenizer, token_ids: Sequence[int], replies: Sequence[Sampled]
) -> list[int]:
    """Places of the control tokens that the template writes: of a reply only its last one."""
    inside = {i for reply in replies for i in range(reply.start, reply.end - 1)}
    return [
        i
        for i, token_id in enumerate(token_ids)
        if token_id in tokenizer.control_ids and i not in inside
    ]


@dataclass
class _Walk:
    tokenizer: Tokenizer
    token_ids: Sequence[int]
    replies: Sequence[Sampled]
    past: Tracked

    def __post_init__(self) -> None:
        self._controls = self.tokenizer.controls(self.past)
        self._starts = [start for start, _, _ in self._controls]
        self._extents = data_extents(self.past)

    def control(self, place: Head, anchor: int) -> Control | None:
        """The control token of the text that the id at `anchor` stands for; None where the ids
        behind `place` do not fit the text."""
        between = [r for r in self.replies if place.num_tokens <= r.start <= anchor < r.end]
        between += [r for r in self.replies if place.num_tokens <= r.start < r.end <= anchor]
        if len(between) > 1:
            return None
        if between:
            return self._behind_reply(place, between[0], anchor)
        return self._next(place, anchor)

    def _next(self, place: Head, anchor: int) -> Control | None:
        index = bisect_left(self._starts, place.num_characters)
        if index == len(self._controls) or self._controls[index][2].id != self.token_ids[anchor]:
            return None
        text = self._text(place.num_characters, self._controls[index][0])
        ids = list(self.token_ids[place.num_tokens : anchor])
        encoded = self.tokenizer.encode_text(text, at_start=not place.num_tokens)
        same = list(encoded) == ids or self.tokenizer.decode(ids) == text
        return self._controls[index] if same else None

    def _behind_reply(self, place: Head, reply: Sampled, anchor: int) -> Control | None:
        """The first one that fits behind what the text has of the reply's message."""
        head = self.tokenizer.decode(self.token_ids[place.num_tokens : reply.start])
        tail = self.tokenizer.decode(self.token_ids[reply.end : anchor])
        start = place.num_characters + len(head)
        if self._text(place.num_characters, start) != head:
            return None
        own = reply.message + 1
        _, said = self._extents.get(own, (start, start))
        later = [
            first for origin, (first, _) in self._extents.items() if origin > reply.message + 1
        ]
        for control in self._controls[bisect_left(self._starts, max(start, said)) :]:
            begin = control[0] - len(tail)
            if control[0] > min(later, default=len(self.past)):
                break
            fits = begin >= max(start, said) and self._text(begin, control[0]) == tail
            if fits and control[2].id == self.token_ids[anchor]:
                return control
        return None

    def _text(self, start: int, end: int) -> str:
        return str.__getitem__(self.past, slice(start, end))
