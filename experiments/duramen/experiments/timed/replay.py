"""A replay on a clock: the calls that went through the cache model, as an engine would batch them.

The prompts and the recorded replies come from the replay, which knows no times. Here they are sent
again, several at once, to an engine whose step times are known.
"""

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count
from typing import Any

from duramen.experiments.arrival import due_times_s
from duramen.experiments.layout_run import Place
from duramen.experiments.layouts.catalogue import Layout
from duramen.experiments.target import Outcome, num_pool_blocks
from duramen.experiments.timed.arrivals import Arrivals, ClosedLoop, OpenLoop
from duramen.experiments.timed.call import TimedCall
from duramen.experiments.timed.engine import TimedEngine
from duramen.experiments.timed.figures import TimedFigures, figures
from duramen.experiments.timed.rules import rules_of
from duramen.experiments.timed.slo import Slo
from duramen.experiments.trajectory import Session
from duramen.layout.blocks import block_hashes
from duramen.layout.zones import Prompt
from duramen.serving.timing_profile import TimingProfile


@dataclass(frozen=True)
class Timing:
    """How the calls are sent, and to what. `time_scale` None: closed loop, `concurrency` sessions
    at once and `think_s` between an answer and the session's next call; else at recorded times,
    in seconds per recorded second."""

    profile: TimingProfile
    slo: Slo | None = None
    concurrency: int = 1
    think_s: float = 0.0
    time_scale: float | None = None

    def as_json(self) -> dict[str, Any]:
        is_closed = self.time_scale is None
        return {
            "profile": self.profile.as_fields(),
            "arrival": "closed" if is_closed else "recorded",
            "time_scale": self.time_scale,
            "concurrency": self.concurrency if is_closed else None,
            "think_s": self.think_s if is_closed else None,
            "slo": self.slo and asdict(self.slo),
        }


@dataclass
class TimedReplay:
    """Collects the calls of a replay by layout, and simulates them.

    `unit`: tokens of a block. `kv_tokens`: what the cache holds, None is infinite. Raises
    DuramenError where the profile's flags make no rules.
    """

    timing: Timing
    sessions: Sequence[Session]
    unit: int
    kv_tokens: int | None
    _calls: dict[Layout, list[list[TimedCall]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        num_blocks = None
        if self.kv_tokens is not None:
            num_blocks = num_pool_blocks(self.kv_tokens, self.unit) + 1  # one is never used
        self._rules = rules_of(self.timing.profile, self.unit, num_blocks)
        self._numbers = {id(session): number for number, session in enumerate(self.sessions)}
        self._key_numbers: dict[Hashable, int] = defaultdict(count().__next__)

    def sent(self, layout: Layout, place: Place, prompt: Prompt, outcome: Outcome) -> None:
        """One call of the replay."""
        sessions = self._calls.setdefault(layout, [[] for _ in self.sessions])
        call = timed_call(place, prompt, outcome, self.unit, self._key_numbers)
        sessions[self._numbers[id(place.session)]].append(call)

    def figures(self) -> dict[Layout, TimedFigures]:
        """Of each layout that had a call."""
        return {layout: self._simulate(calls) for layout, calls in self._calls.items()}

    def as_json(self, figures: Mapping[Layout, TimedFigures]) -> dict[str, Any]:
        layouts = {layout.label: each.as_json() for layout, each in figures.items()}
        return self.timing.as_json() | {"layouts": layouts}

    def _simulate(self, calls: Sequence[Sequence[TimedCall]]) -> TimedFigures:
        profile = self.timing.profile
        engine = TimedEngine(self._rules, profile.step, call_fixed_s=profile.call_fixed_s)
        return figures(engine.run(self._arrivals(calls)), self.timing.slo)

    def _arrivals(self, calls: Sequence[Sequence[TimedCall]]) -> Arrivals:
        timing = self.timing
        if timing.time_scale is None:
            return ClosedLoop(calls, timing.concurrency, timing.think_s)
        due_s = due_times_s(self.sessions, timing.time_scale)
        return OpenLoop(
            [
                (row[call.index], call)
                for row, session in zip(due_s, calls, strict=True)
                for call in session
            ]
        )


def timed_call(
    place: Place, prompt: Prompt, outcome: Outcome, unit: int, key_numbers: Mapping[Hashable, int]
) -> TimedCall:
    """A call of a replay, keyed in blocks of `unit` tokens; `key_numbers` counts keys as they come.
    Without a reply on the record it samples one token."""
    computed = [*prompt.token_ids, *outcome.token_ids[:-1]]
    num_outputs = max(len(outcome.token_ids), 1)
    return TimedCall(
        place.session.session_id,
        place.index,
        [key_numbers[key] for key in block_hashes(computed, unit)],
        len(prompt.token_ids),
        num_outputs,
        max_outputs=num_outputs + 1,  # a reply ends by itself, which nobody foresees
    )
