"""How much of a prompt could have been reused, from the most generous bound to the real one.

content >= token >= unit >= delivered. Each gap has a cause: between content and token the layout or
its serialisation, between token and unit the granularity, between unit and delivered eviction.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from duramen.layout.zones import Prompt, Span


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
        num_known = 0
        for span, beginning in zip(prompt.spans, _chain(prompt.spans), strict=True):
            if beginning in self._beginnings or span.digest in seen:
                num_known += span.num_tokens
            else:
                num_known += min(max(lcp - span.start, 0), span.num_tokens)
        return num_known

    def add(self, session_id: str, prompt: Prompt, reply_digest: bytes | None = None) -> None:
        """`reply_digest`: of the text that was sampled behind the prompt."""
        seen = self._in_session.setdefault(session_id, set())
        seen.update(span.digest for span in prompt.spans)
        if reply_digest is not None:
            seen.add(reply_digest)
        self._beginnings.update(_chain(prompt.spans))


def _chain(spans: Sequence[Span]) -> list[bytes]:
    """For each span a digest of all spans up to and with it."""
    chained = []
    last = b""
    for span in spans:
        last = blake2b(last + span.digest, digest_size=16).digest()
        chained.append(last)
    return chained
