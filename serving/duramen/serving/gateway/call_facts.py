"""What is known of a call when it has ended: numbers and names, never what was said in it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from duramen.layout.bounds import Bounds
from duramen.layout.zones import Zone
from duramen.serving.kv.attribute import Mismatch

Status = Literal["ok", "client_gone", "refused", "engine_error", "deadline"]
BreakCause = Literal[
    "edit",
    "tools",
    "arguments",
    "clock",
    "uuid",
    "hash",
    "counter",
    "root text",
    "template",
    "session lost",
]


@dataclass(frozen=True)
class ZoneShare:
    """Prompt tokens of one zone: taken from the cache, and computed."""

    cached_tokens: int
    computed_tokens: int


@dataclass(frozen=True, kw_only=True)
class CallFacts:
    """One call. None is "not known" or "did not come to that", never 0.

    `model`: the served name, not what the client wrote. `zone_tokens`: of the prompt that was sent
    to the engine; empty if none was. `predicted_low` and `predicted_high` (tokens): the interval
    that the KV mirror promised. `delivered` (tokens): cached tokens that the engine reported; the
    caller says None where that number is not this prompt's. `queue_s`: None if the call never
    queued. `ttft_s`: from the call's arrival to the first piece of its reply; None for an answer
    that came whole. `volatile_kinds`: of fields in the root that look as if they change.
    `itl_s`: time between two pieces of a reply, one for each piece but the first. `store_s`: what
    the call waited for group commits in all. `policies`: names of those that acted.
    """

    tenant: str
    model: str
    status: Status
    is_exact: bool
    zone_tokens: Mapping[Zone, int] = field(default_factory=dict)
    bounds: Bounds | None = None
    predicted_low: int | None = None
    predicted_high: int | None = None
    delivered: int | None = None
    mismatch: Mismatch | None = None
    break_cause: BreakCause | None = None
    volatile_kinds: Collection[str] = ()
    queue_s: float | None = None
    ttft_s: float | None = None
    itl_s: Sequence[float] = ()
    sampled_tokens: int = 0
    store_s: float | None = None
    policies: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assert self.status in get_args(Status), self.status
        assert self.mismatch is None or self.mismatch in get_args(Mismatch), self.mismatch
        assert self.break_cause is None or self.break_cause in get_args(BreakCause)

    @property
    def prompt_tokens(self) -> int:
        return sum(self.zone_tokens.values())

    @property
    def shares(self) -> dict[Zone, ZoneShare] | None:
        """Cached and computed tokens by zone; None if delivered tokens are not known.

        A cache holds prefixes, so delivered tokens are the front of the prompt: root, then trunk,
        then leaf.
        """
        if self.delivered is None:
            return None
        left = self.delivered
        shares = {}
        for zone in Zone:
            num_tokens = self.zone_tokens.get(zone, 0)
            cached = min(left, num_tokens)
            left -= cached
            shares[zone] = ZoneShare(cached, num_tokens - cached)
        return shares
