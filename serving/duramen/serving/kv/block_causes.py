"""Why blocks that were there before were not there for a call: decided from evidence alone.

The prompt is not at fault here: it begins with what was sent or sampled before. What is asked is
which of the ways in which an engine loses or withholds blocks fits what is known of both calls.
"""

from dataclasses import dataclass

from duramen.layout.blocks import reusable_tokens
from duramen.layout.diagnose.causes import Cause

LEFT_OVER = 0.6  # confidence of an eviction that nothing shows: no other cause fits


@dataclass(frozen=True)
class Pair:
    """One fact of the earlier call and of this one; None is "not known"."""

    before: str | None = None
    after: str | None = None

    @property
    def differs(self) -> bool:
        return self.before is not None and self.after is not None and self.before != self.after

    def __str__(self) -> str:
        return f"{self.before} before, {self.after} now"


@dataclass(frozen=True)
class Evidence:
    """Tokens. `known`: of this prompt that the earlier call had sent or sampled; `computed`: of
    these what it computed (the last token that is sampled is not). `predicted`: what a cache model
    of the right size held; `num_removed`: blocks that it, or the engine, evicted since the earlier
    call (None: not known). `ahead_s`: seconds by which the earlier call had ended when this one
    began, below 0 where it had not; None where not known. `drops_unit`: every call of the session
    got just one unit less than it could. `never_hits`: none of several calls got anything."""

    num_tokens: int
    known: int
    computed: int
    unit_tokens: int
    draft: bool = False
    predicted: int | None = None
    delivered: int | None = None
    num_removed: int | None = None
    ahead_s: float | None = None
    drops_unit: bool = False
    never_hits: bool = False
    salt: Pair = Pair()
    model: Pair = Pair()
    replica: Pair = Pair()

    @property
    def whole_units(self) -> int:
        """Whole units of what was computed, the last token and draft models left aside."""
        known = min(self.known, self.computed)
        return known // self.unit_tokens * self.unit_tokens

    @property
    def attainable(self) -> int:
        """The most that this call could reuse."""
        known = min(self.known, self.computed)
        return reusable_tokens(known, self.num_tokens, self.unit_tokens, draft=self.draft)

    @property
    def got(self) -> int | None:
        return self.predicted if self.delivered is None else self.delivered


@dataclass(frozen=True)
class BlockLoss:
    cause: Cause
    confidence: float
    evidence: str
    lost_tokens: int


def block_loss(seen: Evidence) -> BlockLoss | None:
    """Why less was reused than had been computed before; None if nothing was lost, or nothing is
    known of what was reused."""
    if 0 < seen.known < seen.unit_tokens:
        shared = f"{seen.known} tokens in common, units of {seen.unit_tokens}"
        return BlockLoss("shorter-than-unit", 1.0, shared, 0)
    got = seen.got
    if got is not None and got < seen.attainable:
        cause, confidence, evidence = _withheld(seen, got)
        return BlockLoss(cause, confidence, evidence, seen.attainable - got)
    return _inherent(seen)


def _inherent(seen: Evidence) -> BlockLoss | None:
    """What every engine computes again, whatever it holds."""
    without_draft = reusable_tokens(
        min(seen.known, seen.computed), seen.num_tokens, seen.unit_tokens
    )
    if seen.attainable < without_draft:
        drop = f"{without_draft} tokens match, {seen.attainable} can be used behind a draft model"
        return BlockLoss("draft-drop", 1.0, drop, without_draft - seen.attainable)
    if seen.known == seen.num_tokens and without_draft < seen.whole_units:
        last = f"all {seen.num_tokens} tokens were known, a whole number of units"
        return BlockLoss("last-token", 1.0, last, seen.whole_units - without_draft)
    return None


def _withheld(seen: Evidence, got: int) -> tuple[Cause, float, str]:
    """The first that fits; eviction is what is left where nothing else can be."""
    missing = f"{got} of {seen.attainable} tokens that could be reused"
    for name, pair in (("salt", seen.salt), ("model", seen.model)):
        if pair.differs:
            return "salt-or-model-changed", 1.0, f"{name} {pair}: {missing}"
    if seen.replica.differs:
        return "other-replica", 1.0, f"replica {seen.replica}: {missing}"
    if seen.ahead_s is not None and seen.ahead_s < 0:
        still = f"the earlier call ran on for {-seen.ahead_s:.3f} s when this one began"
        return "in-flight", 0.9, f"{still}: {missing}"
    if seen.drops_unit and seen.attainable - got == seen.unit_tokens:
        return "draft-drop", 0.8, f"every call got one unit of {seen.unit_tokens} less: {missing}"
    if seen.num_removed:
        agrees = seen.predicted == got
        evidence = f"{seen.num_removed} blocks had been evicted since: {missing}"
        return "eviction", 1.0 if agrees else 0.9, evidence
    if seen.never_hits:
        return "unknown", 0.5, f"no call of the session ever hits, is caching on?: {missing}"
    return "eviction", LEFT_OVER, f"no other cause fits{_not_excluded(seen)}: {missing}"


def _not_excluded(seen: Evidence) -> str:
    """What an eviction is confused with where the log does not show it."""
    facts = {"times": seen.ahead_s, "replicas": seen.replica.after, "salts": seen.salt.after}
    absent = [name for name, fact in facts.items() if fact is None]
    return f" ({', '.join(absent)} are not on record)" if absent else ""
