"""Recorded sessions as traffic: tokens by a model's own tokenizer and template, as served."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import count

from duramen.experiments.arrival import due_times_s
from duramen.experiments.layout_run import Place
from duramen.experiments.layouts.catalogue import Layout
from duramen.experiments.layouts.model import Model
from duramen.experiments.plan.traffic import RecordedTraffic
from duramen.experiments.replay import Replay
from duramen.experiments.target import ModelTarget, Outcome
from duramen.experiments.timed.call import TimedCall
from duramen.experiments.timed.replay import timed_call
from duramen.experiments.trajectory import Session
from duramen.layout.errors import DuramenError
from duramen.layout.zones import Prompt

LAYOUT = Layout.parse("stable")


@dataclass(frozen=True)
class Recording:
    """Sessions without a call that can be sent are left out. `due_s`: None where the recording
    bears no times. `num_skipped`: calls, by reason."""

    sessions: list[list[TimedCall]]
    due_s: list[list[float]] | None
    num_skipped: Counter[str]

    @property
    def num_calls(self) -> int:
        return sum(map(len, self.sessions))

    @property
    def longest_tokens(self) -> int:
        return max(call.num_prompt + call.num_outputs for row in self.sessions for call in row)

    def at_recorded_times(self) -> RecordedTraffic | None:
        return None if self.due_s is None else RecordedTraffic(self.sessions, self.due_s)


def read_recording(
    sessions: Sequence[Session], model: Model, granule: int, max_model_len: int | None
) -> Recording:
    """`granule`: tokens of the smallest block, whose keys the calls get. `max_model_len`: longer
    calls are skipped. Raises DuramenError where nothing is left."""
    numbers = {id(session): number for number, session in enumerate(sessions)}
    key_numbers: dict[Hashable, int] = defaultdict(count().__next__)
    rows: list[list[TimedCall]] = [[] for _ in sessions]

    def sent(layout: Layout, place: Place, prompt: Prompt, outcome: Outcome) -> None:
        call = timed_call(place, prompt, outcome, granule, key_numbers)
        rows[numbers[id(place.session)]].append(call)

    replay = Replay(sessions, model, ModelTarget(None, granule, max_model_len), sent=sent)
    asyncio.run(replay.run([LAYOUT]))
    if not any(rows):
        raise DuramenError("no call of the trace can be sent: see duramen replay")
    kept = [row for row in rows if row]
    return Recording(kept, _due_s(sessions, rows), replay.accounts[LAYOUT].num_skipped)


def _due_s(
    sessions: Sequence[Session], rows: Sequence[Sequence[TimedCall]]
) -> list[list[float]] | None:
    if not _has_times(sessions):
        return None
    due_s = [
        [times_s[call.index] for call in row]
        for row, times_s in zip(rows, due_times_s(sessions, 1.0), strict=True)
        if row
    ]
    first_s, last_s = (each(s for row in due_s for s in row) for each in (min, max))
    if first_s == last_s:  # no gap that could be scaled
        return None
    return [[each_s - first_s for each_s in row] for row in due_s]


def _has_times(sessions: Sequence[Session]) -> bool:
    return all(
        session.start_time_s is not None and all(call.time_s is not None for call in session.calls)
        for session in sessions
    )
