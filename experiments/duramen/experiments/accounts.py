"""What a replay adds up, per layout, and its form in JSON."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from duramen.experiments.arrival import LATE_S, OpenLoop
from duramen.experiments.target import Outcome
from duramen.experiments.trajectory import Session
from duramen.layout.blocks import common_prefix, reusable_tokens
from duramen.layout.bounds import Bounds, ContentIndex
from duramen.layout.zones import Prompt
from duramen.serving.kv.radix import RadixCache
from duramen.serving.vllm.timings import EngineTimes, Summed

REPLY_ALONE = Prompt((), ())
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
    """One layout's sums over one run. `predicted` and `delivered` are None once a call did not
    report them. `engine_times` is what the engine measured, if it did and the run was complete;
    `open_loop` is None where calls waited for answers."""

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
    engine_times: EngineTimes | None = None
    open_loop: OpenLoop | None = None
    is_complete: bool = False
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
        self._content.add(name, prompt)
        self._last[name] = (prompt.token_ids, ())
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
        name = session.session_id
        self._sent.insert([*prompt.token_ids, *outcome.token_ids])
        if reply_digest is not None:
            self._content.add(name, REPLY_ALONE, reply_digest)
            self._last[name] = (prompt.token_ids, outcome.token_ids)
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
        if self.open_loop is not None and outcome.late_s is not None:
            self.open_loop.finished(outcome.late_s, outcome.ttft_s)

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
        times = self.engine_times or EngineTimes(None)
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
            "engine_ttft_s": _mean(times.ttft),
            "engine_queue_s": _mean(times.queue),
            "engine_prefill_s": _mean(times.prefill),
            "open_loop": None if self.open_loop is None else _lateness(self.open_loop),
        }


def _plus(total: int | None, value: int | None) -> int | None:
    """None means "not reported", which no sum can hide."""
    return None if total is None or value is None else total + value


def _mean(summed: Summed | None) -> dict[str, float | int | None] | None:
    return None if summed is None else {"mean": summed.mean_s, "num": summed.num}


def _lateness(open_loop: OpenLoop) -> dict[str, Any]:
    ranks = percentiles(open_loop.late_s)
    return {
        "num_late": open_loop.num_late,
        "late_after_s": LATE_S,
        "lateness_s": {
            "p50": ranks["p50"],
            "p95": ranks["p95"],
            "max": max(open_loop.late_s, default=None),
        },
        "ttft_from_due_s": percentiles(open_loop.ttft_from_due_s),
        "max_in_flight": open_loop.max_in_flight,
    }


def percentiles(values: Sequence[float]) -> dict[str, float | None]:
    """p50, p95 and p99 by the nearest rank; None where there is no value."""
    ordered = sorted(values)
    ranks = {"p50": 50, "p95": 95, "p99": 99}
    return {
        name: ordered[-(-len(ordered) * rank // 100) - 1] if ordered else None
        for name, rank in ranks.items()
    }
