"""What the calls of a whole log share: the model, the cache, and what sessions have begun with."""

from dataclasses import dataclass, field

from duramen.experiments.layouts.model import Model
from duramen.experiments.prices.book import Entry
from duramen.experiments.prices.call import Usage
from duramen.experiments.trajectory import Sending
from duramen.experiments.why.explained import ExplainedBreak
from duramen.experiments.why.past import Past
from duramen.experiments.why.pool import Pools
from duramen.experiments.why.rendering import Renderer
from duramen.experiments.why.roots import Roots
from duramen.layout.blocks import reusable_tokens
from duramen.layout.diagnose.causes import CAUSES, Cause
from duramen.layout.diagnose.sent import Finding
from duramen.layout.tokenizer import Tokenizer


@dataclass(frozen=True)
class Settings:
    """`unit_tokens`: the engine's match unit. `kv_tokens`: what its cache holds, None: everything.
    `draft`: it serves with a draft model. `prices`: what a lost token costs."""

    unit_tokens: int = 16
    kv_tokens: int | None = None
    draft: bool = False
    prices: Entry | None = None


@dataclass(frozen=True)
class Heard:
    """What is kept of every call. `num_tokens`: prompt and reply. `time_s`: Unix time, None where
    that is not recorded. `num_removed`: blocks that the pool had evicted before it."""

    session: str
    call: int
    num_tokens: int
    sending: Sending
    time_s: float | None
    num_removed: int


@dataclass
class Log:
    """`heard`: the calls in `past`, by their numbers in it."""

    model: Model
    settings: Settings
    roots: Roots = field(default_factory=Roots)
    past: Past = field(default_factory=Past)
    heard: list[Heard] = field(default_factory=list)

    def __post_init__(self) -> None:
        settings = self.settings
        self.renderer = Renderer(self.model)
        self.pools = Pools(settings.unit_tokens, settings.kv_tokens, settings.draft)

    @property
    def tokenizer(self) -> Tokenizer:
        return self.model.tokenizer

    def reusable(self, lcp: int, num_tokens: int) -> int:
        unit, draft = self.settings.unit_tokens, self.settings.draft
        return reusable_tokens(lcp, num_tokens, unit, draft=draft)

    def lost(self, computed: int, lcp: int, num_tokens: int) -> int:
        """Tokens that a call computes again because it parts at `lcp` from what had `computed`
        tokens: what the call that goes on with all of that could reuse, less what this one can."""
        return max(self.reusable(computed, computed + 1) - self.reusable(lcp, num_tokens), 0)

    def dollars(self, lost_tokens: int, num_tokens: int) -> float | None:
        """What the lost tokens cost more than read from the cache. Raises PriceError where the
        book has no price for that."""
        entry = self.settings.prices
        if entry is None:
            return None
        lost = min(lost_tokens, num_tokens)
        rest = num_tokens - lost
        whole = entry.cost(Usage(uncached=num_tokens))
        return float(whole - entry.cost(Usage(uncached=rest, cached_read=lost)))

    def broken(
        self,
        finding: Finding,
        vs: tuple[str | None, int | None],
        token: int | None,
        lost_tokens: int,
        num_tokens: int,
    ) -> ExplainedBreak:
        """`vs`: session and call that it is measured against. Zone and text are not told yet."""
        return ExplainedBreak(
            *vs,
            layer=finding.layer,
            token=token,
            block=None if token is None else token // self.settings.unit_tokens,
            zone=None,
            cause=finding.cause,
            confidence=finding.confidence,
            evidence=finding.evidence,
            lost_tokens=lost_tokens,
            mend=finding.mend,
            dollars=self.dollars(lost_tokens, num_tokens),
        )


def first_call(token: int | None) -> ExplainedBreak:
    return ExplainedBreak(
        None,
        None,
        "request",
        token,
        None,
        None,
        "first-call",
        1.0,
        CAUSES["first-call"].what,
        0,
        CAUSES["first-call"].mend,
    )


def unexplained(token: int) -> Finding:
    cause: Cause = "unknown"
    what = f"the ids part at token {token}, and no layer says why"
    return Finding("token", cause, 1.0, what, CAUSES[cause].mend, token)
