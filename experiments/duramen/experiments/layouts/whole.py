"""Each call rendered and encoded whole, after a client has done to its messages what it does."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from duramen.experiments.history import Turn
from duramen.experiments.layouts.model import Model, call_time_s
from duramen.experiments.trajectory import Call, Message, Session
from duramen.layout.transcript import Deviation
from duramen.layout.zones import Prompt


class Moment(NamedTuple):
    """When a call is sent: the session, the call's index in it, and Unix time."""

    session_id: str
    call: int
    time_s: float


UNCHANGED_NOTE = "nothing in this call that the layout changes: sent as recorded"

Rewrite = Callable[[Turn, Moment], Turn]  # changes nothing in place; the same turn: nothing to do


def as_it_is(turn: Turn, moment: Moment) -> Turn:
    return turn


@dataclass
class Whole:
    model: Model
    session: Session
    rewrite: Rewrite = as_it_is
    deviations: Sequence[Deviation] = ()
    num_deviating: int = 0

    def prompt(self, turn: Turn, call: Call, index: int) -> Prompt:
        time_s = call_time_s(self.session, call, index)
        sent = self.rewrite(turn, Moment(self.session.session_id, index, time_s))
        transcript = self.model.transcript(sent.tools, time_s)
        prompt = transcript.start(self.model.template.prepared(sent.messages))
        self.num_deviating += transcript.num_deviating
        if sent is turn and self.rewrite is not as_it_is:
            return replace(prompt, notes=(*prompt.notes, UNCHANGED_NOTE))
        return prompt

    def sampled(self, token_ids: Sequence[int], message: Message) -> None:
        pass  # the next prompt is encoded from text
