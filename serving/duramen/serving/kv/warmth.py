"""Whether keeping an idle session's blocks costs more than computing them again."""

from dataclasses import dataclass

from duramen.serving.kv.step_time import Step, StepTime


@dataclass(frozen=True)
class Warmth:
    """What an idle session costs and saves: only blocks that nobody else holds count, since the
    others would stay without it.

    `own_bytes`: now; `idle_byte_seconds`: of such blocks since the session's newest call ended,
    `idle_s` ago. `own_tokens` would have to be computed again, behind `shared_tokens`.
    """

    idle_s: float
    own_bytes: float
    idle_byte_seconds: float
    own_tokens: int
    shared_tokens: int

    def prefill_s(self, step_time: StepTime) -> float:
        """That keeping the session saves its next call, in one step."""
        if not self.own_tokens:
            return 0.0
        return step_time.seconds(Step((self.own_tokens,), (self.shared_tokens,)))

    def idle_cost_s(self, pool_bytes: int) -> float:
        """Seconds of the whole device that the bytes have taken, where the pool is full: a byte of
        `pool_bytes` costs as much as that share of the time. Above `prefill_s`, keeping the session
        has cost more than computing it again."""
        return self.idle_byte_seconds / pool_bytes

    def break_even_s(self, step_time: StepTime, pool_bytes: int) -> float | None:
        """Idle time after which that is so with the bytes of now; None if it holds none."""
        if not self.own_bytes:
            return None
        return self.prefill_s(step_time) * pool_bytes / self.own_bytes
