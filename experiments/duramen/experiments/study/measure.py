"""Adds up one layout's calls: bounds, what each arm delivers, seconds and dollars."""

import re
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

import numpy as np

from duramen.experiments.accounts import percentiles
from duramen.experiments.prices.own_gpu import TimeModel
from duramen.experiments.study.arms import Arm, ArmCache
from duramen.experiments.study.keys import Ids, common_ids
from duramen.experiments.study.prefixes import Prefixes
from duramen.experiments.study.pricing import Pricing, usage_json
from duramen.experiments.study.results import (
    AlignmentSums,
    ArmSums,
    CallRow,
    LayoutResult,
    SessionSums,
)
from duramen.experiments.study.walk import Step, Walk
from duramen.layout.bounds import ContentIndex
from duramen.layout.zones import Prompt, Span, Zone


@dataclass
class _Arm:
    cache: ArmCache
    num_skipped: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    unit: int = 0
    gaps: Counter[str] = field(default_factory=Counter)
    ttft_s: dict[str, list[float]] = field(default_factory=dict)
    busy_s: dict[str, float] = field(default_factory=dict)
    prefill_s: dict[str, float] = field(default_factory=dict)  # without the overhead of a call


@dataclass
class _Session:
    index: int
    num_calls: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    content: int = 0
    token: int = 0
    num_breaks: int = 0
    num_trunk_changes: int = 0
    kv_token_seconds: float = 0.0
    cached: list[int] = field(default_factory=list)
    usd: dict[str, Decimal] = field(default_factory=dict)
    last: Step | None = None
    last_ids: Ids = field(default_factory=lambda: np.empty(0, np.uint32))  # prompt and reply


class Measurement:
    """Takes steps in time order. `devices`: by name."""

    def __init__(
        self, arms: Sequence[Arm], devices: Mapping[str, TimeModel], pricing: Pricing
    ) -> None:
        self._arms = [_Arm(ArmCache(arm)) for arm in arms]
        self._devices = devices
        self._pricing = pricing
        self._prefixes = Prefixes()
        self._content = ContentIndex()
        self._sessions: dict[str, _Session] = {}
        self._gaps: Counter[str] = Counter()
        self._rows: list[CallRow] = []

    def take(self, step: Step) -> None:
        name = step.session.session_id
        session = self._sessions.setdefault(
            name, _Session(len(self._sessions), cached=[0] * len(self._arms))
        )
        prompt = ids_of(step.prompt.token_ids)
        reply = ids_of(step.reply_ids)
        lcp = self._prefixes.lcp(prompt)
        content = self._content.num_known(name, step.prompt, lcp.token)
        if content > lcp.token:
            self._gaps[kind_at(step.prompt, lcp.token)] += content - lcp.token
        computed = np.concatenate([prompt, reply[:-1]])
        cached = []
        for number, arm in enumerate(self._arms):
            hit = arm.cache.serve(name, prompt, computed, lcp)
            self._add_to_arm(arm, hit, lcp.token, len(prompt), len(reply))
            session.cached[number] += hit or 0
            cached.append(hit)
        broke_at = self._broke_at(session, step, prompt)
        self._add_to_session(session, step, prompt, reply, content, lcp.token)
        session.num_breaks += broke_at is not None
        self._rows.append(
            CallRow(
                session.index,
                step.call,
                step.time_s,
                len(prompt),
                len(reply),
                *zone_sizes(step.prompt),
                content,
                lcp.token,
                cached,
                broke_at,
            )
        )
        self._prefixes.add(computed, int(reply[-1]) if len(reply) else None)
        self._content.add(name, step.prompt, step.reply_digest)
        session.last, session.last_ids = step, np.concatenate([prompt, reply])
        if step.is_last:
            self._end(name, session)

    def result(self, walk: Walk) -> LayoutResult:
        """The sums of all that was taken; `walk`: where the steps came from."""
        for name, session in self._sessions.items():
            self._end(name, session)  # those whose last calls were refused
        return LayoutResult(
            label=walk.layout.label,
            is_assumed=walk.layout.is_assumed,
            num_refused=dict(walk.refused),
            num_deviating=walk.num_deviating,
            notes=dict(walk.notes),
            gaps=dict(self._gaps),
            alignment=_alignment_sums(walk),
            arms={arm.cache.arm.label: self._arm_sums(arm) for arm in self._arms},
            usage=usage_json(self._pricing.usage),
            sessions=[_session_sums(name, each) for name, each in self._sessions.items()],
            calls=self._rows,
        )

    def _add_to_arm(
        self, arm: _Arm, hit: int | None, lcp: int, num_tokens: int, num_output: int
    ) -> None:
        if hit is None:
            arm.num_skipped += 1
            return
        engine = arm.cache.arm
        unit = engine.reusable(lcp, num_tokens)
        plain = Arm(engine.unit).reusable(lcp, num_tokens) if engine.draft else unit
        arm.prompt_tokens += num_tokens
        arm.cached_tokens += hit
        arm.unit += unit
        arm.gaps["last token"] += lcp - min(lcp, num_tokens - 1)
        arm.gaps["granularity"] += min(lcp, num_tokens - 1) - plain
        arm.gaps["draft"] += plain - unit
        cause = "eviction" if engine.kv_tokens is not None else "last sampled token"
        arm.gaps[cause] += unit - hit
        for name, device in self._devices.items():
            ttft_s = device.prefill_s(num_tokens - hit, hit)
            arm.ttft_s.setdefault(name, []).append(ttft_s)
            spent_s = ttft_s + device.decode_s(max(num_output - 1, 0), num_tokens)
            arm.busy_s[name] = arm.busy_s.get(name, 0.0) + spent_s
            prefill_s = arm.prefill_s.get(name, 0.0) + ttft_s - device.overhead_s
            arm.prefill_s[name] = prefill_s

    def _add_to_session(
        self, session: _Session, step: Step, prompt: Ids, reply: Ids, content: int, token: int
    ) -> None:
        session.num_calls += 1
        session.prompt_tokens += len(prompt)
        session.output_tokens += len(reply)
        session.content += content
        session.token += token
        if session.last is not None:
            session.kv_token_seconds += len(session.last_ids) * (step.time_s - session.last.time_s)
            session.num_trunk_changes += not _still_begins(session.last.prompt, step.prompt)
        for model, usd in self._pricing.serve(step, prompt).items():
            session.usd[model] = session.usd.get(model, Decimal(0)) + usd

    def _broke_at(self, session: _Session, step: Step, prompt: Ids) -> str | None:
        """What stands where the prompt leaves what the session had sent and goes on from."""
        if session.last is None:
            return None
        before = session.last_ids
        if not step.has_reply:
            before = before[: len(session.last.prompt.token_ids)]
        kept = common_ids(before, prompt)
        return kind_at(step.prompt, kept) if kept < len(before) else None

    def _end(self, name: str, session: _Session) -> None:
        for arm in self._arms:
            arm.cache.forget(name)
        self._pricing.forget(name)
        session.last, session.last_ids = None, session.last_ids[:0]

    def _arm_sums(self, arm: _Arm) -> ArmSums:
        devices = {
            name: {
                "ttft_s": percentiles(arm.ttft_s.get(name, [])),
                "makespan_s": arm.busy_s.get(name, 0.0),
                "prefill_s": arm.prefill_s.get(name, 0.0),
                "usd": str(device.cost(arm.prefill_s.get(name, 0.0))),
            }
            for name, device in self._devices.items()
        }
        num_taken = len(self._rows) - arm.num_skipped
        gaps = {cause: tokens for cause, tokens in arm.gaps.items() if tokens}
        sums = (arm.prompt_tokens, arm.cached_tokens, arm.unit)
        return ArmSums(num_taken, arm.num_skipped, *sums, gaps, devices)


def _alignment_sums(walk: Walk) -> AlignmentSums | None:
    if walk.layout.align is None:
        return None
    return AlignmentSums(
        sum(made.num_moved for made in walk.alignments),
        sum(made.num_padding for made in walk.alignments),
        sum(made.net_tokens for made in walk.alignments),
    )


def _session_sums(name: str, session: _Session) -> SessionSums:
    return SessionSums(
        name,
        session.num_calls,
        session.prompt_tokens,
        session.output_tokens,
        session.content,
        session.token,
        session.num_breaks,
        session.num_trunk_changes,
        session.kv_token_seconds,
        session.cached,
        {model: str(usd) for model, usd in session.usd.items()},
    )


def ids_of(token_ids: Sequence[int]) -> Ids:
    return np.asarray(array("I", token_ids), dtype=np.uint32)


def kind_at(prompt: Prompt, token: int) -> str:
    """Zone and kind of the segment that `token` belongs to, without the message's number."""
    span = next((s for s in prompt.spans if s.start <= token < s.end), prompt.spans[-1])
    kind = re.sub(r"message \d+ \((\w+)\).*", r"\1 message", span.source)
    kind = re.sub(r"message \d+ end", "end of a message", kind)
    return f"{span.zone.name.lower()}: {kind}"


def zone_sizes(prompt: Prompt) -> tuple[int, int]:
    """Tokens of root and of trunk."""
    sizes = Counter[Zone]()
    for span in prompt.spans:
        sizes[span.zone] += span.num_tokens
    return sizes[Zone.ROOT], sizes[Zone.TRUNK]


def _still_begins(last: Prompt, now: Prompt) -> bool:
    """Whether root and trunk of the last prompt stand unchanged at the beginning of this one."""
    kept = [span for span in last.spans if span.zone is not Zone.LEAF]
    return all(_is_same(a, b) for a, b in zip(kept, now.spans, strict=False))


def _is_same(a: Span, b: Span) -> bool:
    return a.digest == b.digest and a.start == b.start
