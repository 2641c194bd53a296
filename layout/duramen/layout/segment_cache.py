"""Ids of text that was encoded before, by a hash of its content."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import blake2b


def text_digest(text: str) -> bytes:
    """16 bytes that identify `text` (lone surrogates included)."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


class SegmentCache:
    """Least recently used entries leave when more than `max_tokens` ids are held.

    What was encoded for one `owner` is not found for another: the time it takes would tell each of
    them which texts the others have sent. Whoever encodes for several sets it before.
    """

    def __init__(self, max_tokens: int = 4_000_000) -> None:
        self.owner = b""
        self.max_tokens = max_tokens
        self.num_tokens = 0
        self._entries: OrderedDict[tuple[bytes, bytes, bool], Sequence[int]] = OrderedDict()

    def get(
        self, text: str, at_start: bool, encode: Callable[[str, bool], Sequence[int]]
    ) -> Sequence[int]:
        """The ids of `text`, from the cache or from `encode(text, at_start)`."""
        key = (self.owner, text_digest(text), at_start)
        if (known := self._entries.get(key)) is not None:
            self._entries.move_to_end(key)
            return known
        token_ids = encode(text, at_start)
        self._entries[key] = token_ids
        self.num_tokens += len(token_ids)
        while self.num_tokens > self.max_tokens:
            _, dropped = self._entries.popitem(last=False)
            self.num_tokens -= len(dropped)
        return token_ids
