"""How much of a prompt could have been reused, from the most generous bound to the real one.

content >= token >= unit >= delivered. Each gap has a cause: between content and token the layout or
its serialisation, between token and unit the granularity, between unit and delivered eviction.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from duramen.layout.zones import Prompt, Span

KEY_BYTES = 8  # of a digest, which are kept


@dataclass(frozen=True)
class Bounds:
    """Tokens of one prompt. `content`: of segments whose text was there before; `token`: the
    longest prefix that was sent or sampled before; `unit`: what of that is whole match units."""

    num_tokens: int
    content: int
    token: int
    unit: int


@dataclass
class ContentIndex:
    """The segments that were sent or sampled under one salt."""

    _in_session: dict[str, set[bytes]] = field(default_factory=dict)
    _beginnings: set[bytes] = field(default_factory=set)

    def num_known(self, session_id: str, prompt: Prompt, lcp: int) -> int:
        """Tokens of segments whose exact text stood in an earlier call of the session, wherever it
        stood, or that belong to a leading run that any session began with; and the first `lcp`
        tokens, which may end inside a segment."""
        seen = self._in_session.get(session_id, set())
        return known_tokens(prompt.spans, seen, self._beginnings, lcp)

    def add(self, session_id: str, prompt: Prompt, reply_digest: bytes | None = None) -> None:
        """`reply_digest`: of the text that was sampled behind the prompt."""
        seen = self._in_session.setdefault(session_id, set())
        seen.update(segment_keys(prompt.spans))
        if reply_digest is not None:
            seen.add(reply_digest[:KEY_BYTES])
        self._beginnings.update(beginnings(prompt.spans))


def known_tokens(
    spans: Sequence[Span], in_session: Container[bytes], begun: Container[bytes], lcp: int
) -> int:
    """Tokens of spans whose `segment_keys` are in `in_session` or whose `beginnings` are in
    `begun`; of the others those among the first `lcp` tokens of the prompt."""
    num_known = 0
    for span, key, beginning in zip(spans, segment_keys(spans), beginnings(spans), strict=True):
        if key in in_session or beginning in begun:
            num_known += span.num_tokens
        else:
            num_known += min(max(lcp - span.start, 0), span.num_tokens)
    return num_known


def segment_keys(spans: Sequence[Span]) -> list[bytes]:
    """For each span the KEY_BYTES bytes that say what text it has."""
    return [span.digest[:KEY_BYTES] for span in spans]


def beginnings(spans: Sequence[Span]) -> list[bytes]:
    """For each span KEY_BYTES bytes that say what all spans up to and with it are."""
    chained = []
    last = b""
    for span in spans:
        last = blake2b(last + span.digest, digest_size=KEY_BYTES).digest()
        chained.append(last)
    return chained
