"""What a study finds, in the form in which it is kept, continued and drawn.

Everything is a number of tokens unless its name says otherwise; money is USD as decimal text.
"""

from decimal import Decimal
from typing import Any

import msgspec

from duramen.experiments.layouts.whole import UNCHANGED_NOTE


class CallRow(msgspec.Struct, array_like=True, frozen=True):
    """One call. `session`: index into the layout's sessions; `time_s`: Unix time; `cached`: by arm,
    None where the pool could not hold the call; `broke_at`: what stands where the prefix left the
    session's last prompt and reply, None where it did not."""

    session: int
    call: int
    time_s: float
    prompt_tokens: int
    output_tokens: int
    root_tokens: int
    trunk_tokens: int
    content: int
    token: int
    cached: list[int | None]
    broke_at: str | None


class ArmSums(msgspec.Struct, frozen=True):
    """`unit`: what could be reused if nothing were evicted. `gaps`: why content was not delivered,
    by cause, beside the layout's own."""

    num_calls: int
    num_skipped: int
    prompt_tokens: int
    cached_tokens: int
    unit: int
    gaps: dict[str, int]
    devices: dict[str, dict[str, Any]]  # modelled: ttft_s, makespan_s, prefill_s, usd of prefill

    @property
    def uncached_tokens(self) -> int:
        return self.prompt_tokens - self.cached_tokens

    @property
    def hit_rate(self) -> float | None:
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else None


class SessionSums(msgspec.Struct, frozen=True):
    """`cached`: by arm; calls that an arm's pool could not hold count as computed. `usd`: by
    provider/model. `num_trunk_changes`: calls whose root or trunk no longer begins as before."""

    session_id: str
    num_calls: int
    prompt_tokens: int
    output_tokens: int
    content: int
    token: int
    num_breaks: int
    num_trunk_changes: int
    kv_token_seconds: float
    cached: list[int]
    usd: dict[str, str]


class AlignmentSums(msgspec.Struct, frozen=True):
    """What aligning zone ends to the unit took, and what it was expected to save on balance."""

    num_moved: int  # messages
    padding_tokens: int
    expected_net_tokens: float


class LayoutResult(msgspec.Struct, frozen=True):
    """`gaps`: content that the layout did not keep in the prefix, by what stood where it broke.
    `alignment`: None where the layout does not align."""

    label: str
    is_assumed: bool
    num_refused: dict[str, int]
    num_deviating: int
    notes: dict[str, int]
    gaps: dict[str, int]
    alignment: AlignmentSums | None
    arms: dict[str, ArmSums]
    usage: dict[str, dict[str, int]]  # by provider/model: what it would bill, by kind
    sessions: list[SessionSums]
    calls: list[CallRow]

    @property
    def num_calls(self) -> int:
        return len(self.calls)

    @property
    def num_unchanged(self) -> int:
        """Calls in which there was nothing that the layout changes."""
        return self.notes.get(UNCHANGED_NOTE, 0)

    @property
    def has_effect(self) -> bool:
        return not self.num_calls or self.num_unchanged < self.num_calls

    @property
    def prompt_tokens(self) -> int:
        return sum(session.prompt_tokens for session in self.sessions)

    @property
    def output_tokens(self) -> int:
        return sum(session.output_tokens for session in self.sessions)

    @property
    def content(self) -> int:
        return sum(session.content for session in self.sessions)

    @property
    def token(self) -> int:
        return sum(session.token for session in self.sessions)

    @property
    def min_uncached_tokens(self) -> int:
        return self.prompt_tokens - self.content

    def usd(self, model: str) -> Decimal:
        """What provider/model bills for all calls."""
        return sum((Decimal(session.usd[model]) for session in self.sessions), Decimal(0))

    @property
    def kv_token_seconds(self) -> float:
        return sum(session.kv_token_seconds for session in self.sessions)
