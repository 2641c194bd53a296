"""One request on its way through the scheduler."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from duramen.layout.errors import LayoutError
from duramen.serving.kv.pool import Key


@dataclass(slots=True, eq=False)
class Request:
    """`keys`: of the full blocks of prompt and outputs, as far as they are computed in the end,
    which is all but the last output; further ones are ignored. It samples `num_outputs` tokens; the
    engine knows beforehand that it ends there if they are `max_outputs`, else a stop token ends it.

    The scheduler alone changes the other fields. `num_computed`: tokens, with those of steps that
    still run; `num_pending`: outputs that steps which still run will give. `quiet_end`: while it
    decodes and fewer are computed, one more token neither needs a block nor fills one.
    """

    request_id: int  # in the order of arrival
    keys: Sequence[Key]
    num_prompt: int
    num_outputs: int
    max_outputs: int
    arrival_s: float = 0.0
    priority: int = 0  # lower goes first
    num_left: int = 0  # outputs that have not arrived
    num_computed: int = 0
    num_pending: int = 0
    blocks: list[int] = field(default_factory=list)
    num_stored: int = 0  # of its blocks have their key in the cache
    quiet_end: int = 0
    is_running: bool = False
    num_preemptions: int = 0
    cached_tokens: int | None = None  # at its first admission
    first_step: int | None = None  # that computed some of it
    last_step: int = -2  # that gave it a token
    _run_start: int = 0  # of the steps up to it, one after another
    _earlier_runs: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.num_prompt < 1 or not 1 <= self.num_outputs <= self.max_outputs:
            raise LayoutError(
                f"request {self.request_id}: {self.num_prompt} prompt tokens and "
                f"{self.num_outputs} of at most {self.max_outputs} outputs make no request"
            )
        self.num_left = self.num_outputs

    def begin_run(self, step: int) -> None:
        """A token from this step, and none from the one before."""
        if self.last_step >= 0:
            self._earlier_runs.append((self._run_start, self.last_step))
        self._run_start = self.last_step = step

    @property
    def token_runs(self) -> list[tuple[int, int]]:
        """The numbers of the steps that gave it a token, as (first, last) of each unbroken run."""
        return [*self._earlier_runs, (self._run_start, self.last_step)]

    @property
    def num_tokens(self) -> int:
        """The prompt, and the outputs that have arrived."""
        return self.num_prompt + self.num_outputs - self.num_left

    @property
    def most_tokens(self) -> int:
        """Beyond which the engine knows that it does not go."""
        return self.num_prompt + self.max_outputs

    @property
    def urgency(self) -> tuple[int, float, int]:
        """The smallest goes first."""
        return self.priority, self.arrival_s, self.request_id
