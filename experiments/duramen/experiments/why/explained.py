"""What `duramen why` says of each call of a log."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from duramen.layout.diagnose.causes import Cause, Layer
from duramen.layout.zones import Zone

# Nothing broke there: they are told, and not counted as breaks.
NOTED: tuple[Cause, ...] = ("not-reported", "shorter-than-unit", "last-token")


@dataclass(frozen=True)
class ExplainedBreak:
    """`vs_call`: the call of `vs_session` that this one is measured against; None for a first call.

    `token`: the first that differs; `block`: the match unit that holds it. `around`: decoded text,
    12 tokens before and behind `token`, as it was and as it is. `ids`: those at `token`, as it was
    and as it is, None behind the end of a prompt. `lost_tokens`: computed again, in
    whole units: what could have been reused had nothing parted, less what still can. `seconds`,
    `dollars`: of the lost tokens; None where nothing is known of them.
    """

    vs_session: str | None
    vs_call: int | None
    layer: Layer
    token: int | None
    block: int | None
    zone: Zone | None
    cause: Cause
    confidence: float
    evidence: str
    lost_tokens: int
    mend: str
    around: tuple[str, str] | None = None
    ids: tuple[int | None, int | None] | None = None
    seconds: float | None = None
    dollars: float | None = None

    @property
    def is_break(self) -> bool:
        return self.cause != "first-call" and self.cause not in NOTED

    def as_json(self) -> dict[str, Any]:
        zone = None if self.zone is None else self.zone.name.lower()
        return {**vars(self), "zone": zone}


@dataclass(frozen=True)
class ExplainedCall:
    """Tokens. `lcp`: longest prefix in common with what its session sent or sampled before (for a
    first call: with any earlier call of the log). `reusable`: whole units of that. `predicted`:
    what a cache of the given size would hold. `delivered`: as reported, None if it was not.
    `refused`: why the template renders no prompt of the call; then tokens are not known.
    `zones`: the tokens at which its trunk and its leaf begin, None where that is not known.
    `reported_tokens`: length of the prompt, by whoever served it. `model`, `provider`: as the log
    names them; a provider only where the price book has its rules.
    `notes`: what else there is to say, a line each."""

    session: str
    call: int
    num_tokens: int | None
    lcp: int | None
    reusable: int | None
    predicted: int | None
    delivered: int | None
    broken: ExplainedBreak | None
    refused: str | None = None
    zones: tuple[int, int] | None = None
    notes: tuple[str, ...] = ()
    reported_tokens: int | None = None
    model: str | None = None
    provider: str | None = None

    def as_json(self) -> dict[str, Any]:
        fields = {key: value for key, value in vars(self).items() if key != "broken"}
        return {
            **fields,
            "zones": self.zone_tokens,
            "break": self.broken and self.broken.as_json(),
        }

    @property
    def zone_tokens(self) -> dict[str, int] | None:
        """Prompt tokens of each zone."""
        if self.zones is None or self.num_tokens is None:
            return None
        trunk, leaf = self.zones
        return {"root": trunk, "trunk": leaf - trunk, "leaf": self.num_tokens - leaf}


def totals(calls: Iterable[ExplainedCall]) -> dict[Cause, int]:
    """Lost tokens by cause, the largest first."""
    lost: Counter[Cause] = Counter()
    for call in calls:
        if call.broken is not None:
            lost[call.broken.cause] += call.broken.lost_tokens
    return dict(lost.most_common())
