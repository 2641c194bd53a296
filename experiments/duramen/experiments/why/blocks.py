"""What became of the blocks of a session's calls, where their prompts went on with what was there.

Counts that a log reports are of the tokenizer that served it. Where the prompt's reported length is
not ours, what could be reused is taken from the reported sizes instead, and small gaps are ignored:
what a template writes to open a reply is counted, too, and need not come back.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from duramen.experiments.prices.book import Book
from duramen.experiments.trajectory import Sending, Usage
from duramen.experiments.why.explained import ExplainedBreak
from duramen.experiments.why.log import Heard, Log
from duramen.experiments.why.provider import Provider, provider_of, provider_reason
from duramen.experiments.why.walk import Judged
from duramen.layout.diagnose.causes import CAUSES, Cause
from duramen.layout.diagnose.requests import options_change
from duramen.layout.diagnose.sent import Finding
from duramen.serving.kv.block_causes import LEFT_OVER, BlockLoss, Evidence, Pair, block_loss

MIN_DROPS = 2  # calls that got one unit less than they could, before a draft model is named
MIN_MISSES = 3  # calls that got nothing, before it is doubted that anything is cached
MAX_SURE_OF_SIZE = 0.7  # confidence of a rule on sizes that are counted with another tokenizer
IGNORED_UNITS = 2  # of a gap between counts of another tokenizer
OWN_LOSSES: tuple[Cause, ...] = ("eviction", "draft-drop")  # of engines whose blocks we know


@dataclass(frozen=True)
class Blocks:
    """Of one session. `reports`: another call of the log says how many tokens were cached."""

    log: Log
    session_id: str
    judged: Sequence[Judged]
    book: Book
    reports: bool

    def broken(self, call: Judged) -> ExplainedBreak | None:
        """Why a call got less than it could, after what is known of its prompt: a break in that
        holds, unless it cost nothing while blocks were lost."""
        if call.broken is not None and (call.broken.lost_tokens or call.vs is None):
            return self._as_cached(call, call.broken)
        if call.vs is not None:
            vs, loss = (self.session_id, call.vs), self._loss(call, self.judged[call.vs])
            if call.broken is None and (changed := self._other_options(call, loss, vs)) is not None:
                return changed
        elif call.other is not None:
            vs, loss = (call.other.session, call.other.call), self._loss_of_first(call, call.other)
        else:
            return self._not_reported(call)
        if loss is None:
            return call.broken or self._not_reported(call)
        if call.broken is not None and (not loss.lost_tokens or loss.cause == "below-minimum"):
            return call.broken
        return self._as_break(call, loss, vs)

    def _as_cached(self, call: Judged, broken: ExplainedBreak) -> ExplainedBreak:
        """A break costs nothing where the earlier prompt was too short for the provider to cache
        and no usage says otherwise."""
        if call.vs is None or call.call.usage.cached_tokens is not None:
            return broken
        before = self.judged[call.vs]
        provider = provider_of(before.call.sending, self.book)
        if provider is None or (before.num_tokens or 0) >= provider.min_tokens:
            return broken
        why = f"nothing was lost: {before.num_tokens:,} tokens are too few for the provider's cache"
        return replace(
            broken,
            lost_tokens=0,
            evidence=f"{broken.evidence}; {why}",
            dollars=None if broken.dollars is None else 0.0,
        )

    def _other_options(
        self, call: Judged, loss: BlockLoss | None, vs: tuple[str, int]
    ) -> ExplainedBreak | None:
        """Options that move no token, and by which a cache of Anthropic's is left all the same
        ("What invalidates the cache" of its page on prompt caching)."""
        before, now = self.judged[vs[1]], call.call.sending
        change = options_change(before.call.sending.options, now.options)
        if change is None or now.provider != "anthropic" or provider_of(now, self.book) is None:
            return None
        if loss is None and call.call.usage.cached_tokens is not None:
            return None
        if loss is not None and loss.cause == "salt-or-model-changed":
            return None
        lost = 0
        if loss is None and now.marks:
            lost = self._evidence(call, before).attainable
        elif loss is not None and loss.cause != "below-minimum":
            lost = loss.lost_tokens
        mend = change.mend or CAUSES[change.cause].mend
        said = f"{change.where}: {change.evidence}"
        if loss is not None and loss.cause == "below-minimum":
            said += f"; nothing was lost, {loss.evidence}"
        finding = Finding("request", change.cause, change.confidence, said, mend)
        return self.log.broken(finding, vs, None, lost, call.num_tokens or 0)

    def _loss_of_first(self, call: Judged, other: Heard) -> BlockLoss | None:
        """Against a call of another session. Nothing is claimed without evidence: how much time
        has passed and who used the cache meanwhile is not known."""
        if call.num_tokens is None or call.lcp is None or not self._is_comparable(call):
            return None
        if _began_before(call, other):  # sessions are not always served in the order of time
            return None
        settings = self.log.settings
        known = min(call.lcp, other.num_tokens - 1)
        evidence = Evidence(
            call.num_tokens,
            known,
            known,
            settings.unit_tokens,
            settings.draft,
            predicted=call.predicted,
            delivered=call.call.usage.cached_tokens,
            num_removed=max(call.num_removed - other.num_removed, 0),
        )
        ended_s = None
        if other.time_s is not None and other.sending.duration_s is not None:
            ended_s = other.time_s + other.sending.duration_s
        loss = block_loss(_with_facts(evidence, other.sending, ended_s, call))
        return loss if loss is not None and loss.confidence > LEFT_OVER else None

    def _loss(self, call: Judged, before: Judged) -> BlockLoss | None:
        if call.num_tokens is None or call.lcp is None:
            return None
        provider = provider_of(call.call.sending, self.book)
        if provider is None and self._is_comparable(call):
            return block_loss(self._evidence(call, before))
        if provider is not None and call.call.usage.cached_tokens is None:
            return self._loss_by_rules(provider, call, before)
        reported = _as_reported(call, before, provider, self.log.settings.unit_tokens)
        loss = (
            None
            if reported is None
            else block_loss(_with_facts(reported, before.call.sending, _ended_s(before), call))
        )
        if loss is None or provider is None or loss.cause not in OWN_LOSSES:
            return loss
        reason = provider_reason(
            provider, before.call, call.call, reported.known if reported else 0
        )
        if reason is None:
            return replace(
                loss, cause="unknown", evidence=f"no rule of the provider's: {loss.evidence}"
            )
        return BlockLoss(
            reason.cause, reason.confidence, f"{reason.evidence}; {loss.evidence}", loss.lost_tokens
        )

    def _loss_by_rules(self, provider: Provider, call: Judged, before: Judged) -> BlockLoss | None:
        """Where nothing is reported: what both requests alone forbid. Sizes are in our tokens,
        which are not the provider's, so the minimum is less sure."""
        evidence = self._evidence(call, before)
        loss = block_loss(evidence)
        if loss is not None and loss.cause == "salt-or-model-changed":
            return loss
        marks = before.call.sending.marks, call.call.sending.marks
        if None in marks or not any(marks) or not evidence.attainable:
            return None
        reason = provider_reason(
            provider, before.call, call.call, min(evidence.known, call.computed)
        )
        if reason is None:
            return None
        is_size = reason.cause == "below-minimum"
        sure = min(reason.confidence, MAX_SURE_OF_SIZE) if is_size else reason.confidence
        said = f"{reason.evidence}; by the provider's rules, no usage is on record"
        return BlockLoss(reason.cause, sure, said, evidence.attainable)

    def _evidence(self, call: Judged, before: Judged) -> Evidence:
        """In our tokens. A break that cost nothing shortens what could be reused."""
        assert call.num_tokens is not None
        assert call.lcp is not None
        settings = self.log.settings
        evidence = Evidence(
            call.num_tokens,
            call.lcp,
            min(call.lcp, call.computed),
            settings.unit_tokens,
            settings.draft,
            predicted=call.predicted,
            delivered=call.call.usage.cached_tokens,
            num_removed=max(call.num_removed - before.num_removed, 0),
            drops_unit=self._drops_unit,
            never_hits=self._never_hits,
        )
        return _with_facts(evidence, before.call.sending, _ended_s(before), call)

    @cached_property
    def _gaps(self) -> list[tuple[int, int]]:
        """(could be reused, was delivered) of the calls that could reuse something."""
        return [
            (attainable, delivered)
            for call in self.judged
            if call.vs is not None and call.num_tokens is not None and call.lcp is not None
            if (delivered := call.call.usage.cached_tokens) is not None
            if (attainable := self._attainable(call.lcp, call.computed, call.num_tokens))
        ]

    def _attainable(self, lcp: int, computed: int, num_tokens: int) -> int:
        return self.log.reusable(min(lcp, computed), num_tokens)

    @cached_property
    def _drops_unit(self) -> bool:
        """Whether every call that could reuse something got exactly one unit less."""
        gaps = {attainable - delivered for attainable, delivered in self._gaps}
        return len(self._gaps) >= MIN_DROPS and gaps == {self.log.settings.unit_tokens}

    @cached_property
    def _never_hits(self) -> bool:
        return len(self._gaps) >= MIN_MISSES and not any(delivered for _, delivered in self._gaps)

    def _is_comparable(self, call: Judged) -> bool:
        return call.call.usage.prompt_tokens in (None, call.num_tokens)

    def _not_reported(self, call: Judged) -> ExplainedBreak | None:
        """Where others are reported, or, once a session, where none is."""
        if not _lacks_report(call):
            return None
        others = "others of the log have"
        if not self.reports:
            lacking = (c for c in self.judged if c.vs is not None and _lacks_report(c))
            first = next(lacking, None)
            if call is not first:
                return None
            others = "no answer of this log has"
        evidence = f"this answer reports its usage without cached tokens, {others} them"
        vs = None if call.vs is None else (self.session_id, call.vs)
        return self._as_break(call, BlockLoss("not-reported", 1.0, evidence, 0), vs)

    def _as_break(
        self, call: Judged, loss: BlockLoss, vs: tuple[str, int] | None
    ) -> ExplainedBreak:
        got = call.call.usage.cached_tokens
        got = call.predicted if got is None else got
        cause = loss.cause
        finding = Finding("block", cause, loss.confidence, loss.evidence, CAUSES[cause].mend)
        return self.log.broken(
            finding, vs or (None, None), got, loss.lost_tokens, call.num_tokens or 0
        )


def _lacks_report(call: Judged) -> bool:
    usage = call.call.usage
    return usage.prompt_tokens is not None and usage.cached_tokens is None


def _began_before(call: Judged, other: Heard) -> bool:
    is_timed = call.call.time_s is not None and other.time_s is not None
    return is_timed and call.time_s < (other.time_s or 0.0)


def _ended_s(before: Judged) -> float | None:
    duration_s = before.call.sending.duration_s
    is_known = duration_s is not None and before.call.time_s is not None
    return before.time_s + (duration_s or 0.0) if is_known else None


def _with_facts(evidence: Evidence, was: Sending, ended_s: float | None, call: Judged) -> Evidence:
    """`was`, `ended_s`: how the earlier call was sent, and the Unix time at which it had ended."""
    now = call.call.sending
    is_timed = ended_s is not None and call.call.time_s is not None
    return replace(
        evidence,
        ahead_s=call.time_s - (ended_s or 0.0) if is_timed else None,
        salt=Pair(was.salt or "", now.salt or "") if was.salt or now.salt else Pair(),
        model=Pair(was.model, now.model),
        replica=Pair(was.replica, now.replica),
    )


def _as_reported(
    call: Judged, before: Judged, provider: Provider | None, unit_tokens: int
) -> Evidence | None:
    """In the tokens of whoever served the log; None where the gap is too small to be told."""
    usage, was = call.call.usage, before.call.usage
    if usage.prompt_tokens is None or usage.cached_tokens is None or was.prompt_tokens is None:
        return None
    if call.lcp is not None and call.lcp < min(before.num_tokens or 0, call.num_tokens or 0):
        return None
    known = min(_cached_by(was, provider), usage.prompt_tokens)
    granule = unit_tokens if provider is None else provider.granule
    evidence = Evidence(usage.prompt_tokens, known, known, granule, delivered=usage.cached_tokens)
    ignored = granule * (IGNORED_UNITS if provider is None else 1)
    return evidence if evidence.attainable - usage.cached_tokens >= ignored else None


def _cached_by(usage: Usage, provider: Provider | None) -> int:
    """Leading tokens of an earlier prompt that were in the cache behind it."""
    assert usage.prompt_tokens is not None
    if provider is not None and usage.written_tokens:
        return (usage.cached_tokens or 0) + usage.written_tokens
    return usage.prompt_tokens
