"""What a replay adds up, per layout, and its form in JSON."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from duramen.experiments.target import Outcome
from duramen.experiments.trajectory import Session
from duramen.layout.blocks import common_prefix, reusable_tokens
from duramen.layout.bounds import Bounds, ContentIndex
from duramen.layout.zones import Prompt
from duramen.serving.kv.radix import RadixCache

Sent = tuple[Sequence[int], Sequence[int]]  # a prompt, and what was sampled behind it


@dataclass(frozen=True)
class PrefixBreak:
    """A call whose prompt leaves, at `token`, what the session had sent, or the sampled reply that
    the conversation goes on with. A reply that the client dropped or rewrote breaks nothing.

    `lost_tokens` had been computed and stand behind the break; `source` is where it happened.
    """

    session: str
    call: int
    token: int
    lost_tokens: int
    source: str


@dataclass
class Accounts:
    """One layout's sums. `predicted` and `delivered` are None once a call did not report them."""

    unit_tokens: int
    num_sessions: int = 0
    num_calls: int = 0
    num_skipped: Counter[str] = field(default_factory=Counter)
    prompt_tokens: int = 0
    content: int = 0
    token: int = 0
    unit: int = 0
    predicted: int | None = 0
    delivered: int | None = 0
    mismatches: Counter[str] = field(default_factory=Counter)
    breaks: list[PrefixBreak] = field(default_factory=list)
    deviations: list[dict[str, Any]] = field(default_factory=list)
    num_deviating: int = 0
    notes: Counter[str] = field(default_factory=Counter)
    ttft_s: list[float] = field(default_factory=list)
    itl_s: list[float] = field(default_factory=list)
    makespan_s: float | None = None
    _content: ContentIndex = field(default_factory=ContentIndex)
    _sent: RadixCache = field(default_factory=RadixCache)
    _last: dict[str, Sent] = field(default_factory=dict)  # by session

    def sending(self, session: Session, call: int, prompt: Prompt, *, has_reply: bool) -> Bounds:
        """Bounds of a prompt that is about to be sent; notes where it breaks the prefix.

        `has_reply`: the conversation goes on with the reply to the session's last call.
        """
        name = session.session_id
        lcp = self._sent.insert(prompt.token_ids)
        content = self._content.num_known(name, prompt, lcp)
        bounds = Bounds(
            num_tokens=len(prompt.token_ids),
            content=content,
            token=lcp,
            unit=reusable_tokens(lcp, len(prompt.token_ids), self.unit_tokens),
        )
        sent, sampled = self._last.get(name, ((), ()))
        before = [*sent, *sampled] if has_reply else sent
        kept = common_prefix(before, prompt.token_ids)
        if kept < len(before):
            source = next((s.source for s in prompt.spans if s.start <= kept < s.end), "end")
            self.breaks.append(PrefixBreak(name, call, kept, content - lcp, source))
        return bounds

    def finished(
        self,
        session: Session,
        prompt: Prompt,
        bounds: Bounds,
        outcome: Outcome,
        reply_digest: bytes | None,
    ) -> None:
        """`reply_digest` is None where the reply does not become part of the conversation."""
        self._sent.insert([*prompt.token_ids, *outcome.token_ids])
        self._content.add(session.session_id, prompt, reply_digest)
        sampled = outcome.token_ids if reply_digest is not None else ()
        self._last[session.session_id] = (prompt.token_ids, sampled)
        self.num_calls += 1
        self.prompt_tokens += bounds.num_tokens
        self.content += bounds.content
        self.token += bounds.token
        self.unit += bounds.unit
        self.predicted = _plus(self.predicted, outcome.predicted_tokens)
        self.delivered = _plus(self.delivered, outcome.cached_tokens)
        if outcome.mismatch is not None:
            self.mismatches[outcome.mismatch] += 1
        if outcome.ttft_s is not None:
            self.ttft_s.append(outcome.ttft_s)
        self.itl_s += outcome.itl_s

    @property
    def uncached_tokens(self) -> int | None:
        return None if self.delivered is None else self.prompt_tokens - self.delivered

    @property
    def min_uncached_tokens(self) -> int:
        """What has to be computed even by a layout that computes everything once."""
        return self.prompt_tokens - self.content

    @property
    def num_mispredicted(self) -> int | None:
        return None if self.predicted is None else self.mismatches.total()

    @property
    def hit_rate(self) -> float | None:
        if self.delivered is None or not self.prompt_tokens:
            return None
        return self.delivered / self.prompt_tokens

    def as_json(self) -> dict[str, Any]:
        return {
            "num_sessions": self.num_sessions,
            "num_calls": self.num_calls,
            "num_skipped": dict(self.num_skipped),
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.delivered,
            "uncached_tokens": self.uncached_tokens,
            "min_uncached_tokens": self.min_uncached_tokens,
            "hit_rate": self.hit_rate,
            "bounds": {
                "content": self.content,
                "token": self.token,
                "unit": self.unit,
                "predicted": self.predicted,
                "delivered": self.delivered,
            },
            "prediction_mismatches": None if self.predicted is None else dict(self.mismatches),
            "breaks": [vars(found) for found in self.breaks],
            "deviations": self.deviations,
            "num_deviating_tokens": self.num_deviating,
            "notes": dict(self.notes),
            "ttft_s": percentiles(self.ttft_s),
            "itl_s": percentiles(self.itl_s),
            "makespan_s": self.makespan_s,
        }


def _plus(total: int | None, value: int | None) -> int | None:
    """None means "not reported", which no sum can hide."""
    return None if total is None or value is None else total + value


def percentiles(values: Sequence[float]) -> dict[str, float | None]:
    """p50, p95 and p99 by the nearest rank; None where there is no value."""
    ordered = sorted(values)
    ranks = {"p50": 50, "p95": 95, "p99": 99}
    return {
        name: ordered[-(-len(ordered) * rank // 100) - 1] if ordered else None
        for name, rank in ranks.items()
    }
