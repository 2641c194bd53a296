"""The calls of an open loop: all prompts are made before the first is sent.

With recorded replies a prompt depends on the recording alone, so nothing has to be made while calls
are due. What waits is packed, four bytes for a token.
"""

import asyncio
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from duramen.experiments.arrival import OpenLoop, Send, due_times_s
from duramen.experiments.history import History
from duramen.experiments.layout_run import LayoutRun, Place
from duramen.experiments.layouts.conversation import Conversation
from duramen.experiments.trajectory import Session
from duramen.layout.zones import Prompt


async def prepare(
    run: LayoutRun, sessions: Sequence[Session], time_scale: float, progress: Callable[[], None]
) -> list[tuple[float, Send]]:
    """When each call is due, see arrival.py, and what sends it; skipped ones are left out."""
    run.accounts.open_loop = OpenLoop()
    sends: list[tuple[float, Send]] = []
    for session, row in zip(sessions, due_times_s(sessions, time_scale), strict=True):
        departing = _Departing(run, session, run.begin(session), progress)
        sends += await departing.prepare(row)
    return sends


@dataclass
class _Departing:
    """The calls of one session."""

    run: LayoutRun
    session: Session
    conversation: Conversation
    progress: Callable[[], None]
    num_left: int = 0

    async def prepare(self, due_s: Sequence[float]) -> list[tuple[float, Send]]:
        sends: list[tuple[float, Send]] = []
        turns = History(self.session, live=False).turns()
        for index, (call, turn) in enumerate(zip(self.session.calls, turns, strict=True)):
            place = Place(self.session, index, call, turn)
            prompt = self.run.prompt(self.conversation, place)
            if prompt is not None:
                packed = replace(prompt, token_ids=array("i", prompt.token_ids))
                sends.append((due_s[index], partial(self._send, place, packed)))
            self.progress()
            await asyncio.sleep(0)  # Ctrl-C needs a place to come in
        self.num_left = len(sends)
        self._end_if_all_have()
        return sends

    async def _send(self, place: Place, packed: Prompt, due_s: float) -> None:
        assert self.run.accounts.open_loop is not None
        with self.run.accounts.open_loop.in_flight():
            prompt = replace(packed, token_ids=list(packed.token_ids))
            await self.run.send(place, prompt, due_s=due_s)
        self.num_left -= 1
        self._end_if_all_have()
        self.progress()

    def _end_if_all_have(self) -> None:
        if not self.num_left:
            self.run.end(self.session, self.conversation)
