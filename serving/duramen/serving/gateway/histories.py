"""What was sent and sampled before, and so what a call could reuse at most."""

from collections import OrderedDict
from dataclasses import dataclass, field

from duramen.layout.blocks import reusable_tokens
from duramen.layout.bounds import Bounds, beginnings, known_tokens, segment_keys
from duramen.serving.gateway.sessions.conversation import Opened
from duramen.serving.gateway.sessions.tree import Session
from duramen.serving.kv.seen import SeenBlocks

HISTORY_BYTES = 256 * 2**20


@dataclass
class History:
    """What was sent and sampled before, under one cache salt."""

    seen: SeenBlocks = field(default_factory=SeenBlocks)
    begun: set[bytes] = field(default_factory=set)

    @property
    def num_bytes(self) -> int:
        """About; an empty one takes some, too."""
        return 1024 + self.seen.num_bytes + 100 * len(self.begun)


class Histories:
    """One History for each salt. Beyond `limit_bytes` the least recently used are forgotten; what
    is sent under such a salt again counts as never seen."""

    def __init__(self, unit_tokens: int, block_size: int, limit_bytes: int = HISTORY_BYTES) -> None:
        self._unit_tokens = unit_tokens
        self._block_size = block_size
        self._by_salt: OrderedDict[str, History] = OrderedDict()
        self._limit_bytes = limit_bytes
        self.num_bytes = 0

    def bounds(self, opened: Opened, session: Session, salt: str) -> Bounds:
        """Of the call before it counts as sent."""
        history = self._of(salt)
        num_tokens = len(opened.prompt.token_ids)
        blocks = history.seen.match(opened.hashes) * self._block_size
        token = min(max(opened.num_recorded, blocks), num_tokens)
        content = known_tokens(opened.prompt.spans, session.digests, history.begun, token)
        unit = reusable_tokens(token, num_tokens, self._unit_tokens)
        return Bounds(num_tokens, content, token, unit)

    def sent(self, opened: Opened, session: Session, salt: str) -> None:
        history = self._of(salt)
        before = history.num_bytes
        history.seen.add(opened.hashes)
        if opened.turn.parent is None:
            history.begun.update(beginnings(opened.prompt.spans))
        session.digests.update(segment_keys(opened.prompt.spans))
        self._grow(history.num_bytes - before)

    def sampled(self, hashes: bytes, salt: str) -> None:
        history = self._of(salt)
        before = history.num_bytes
        history.seen.add(hashes)
        self._grow(history.num_bytes - before)

    def _of(self, salt: str) -> History:
        history = self._by_salt.get(salt)
        if history is None:
            history = self._by_salt[salt] = History()
            self.num_bytes += history.num_bytes
        self._by_salt.move_to_end(salt)
        return history

    def _grow(self, num_bytes: int) -> None:
        self.num_bytes += num_bytes
        while self.num_bytes > self._limit_bytes:
            _, oldest = self._by_salt.popitem(last=False)
            self.num_bytes -= oldest.num_bytes
