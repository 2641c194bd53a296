"""Append-only: what was sent or sampled keeps its ids, a call adds only its new messages."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from duramen.experiments.history import Turn
from duramen.experiments.layouts.model import Model, call_time_s
from duramen.experiments.trajectory import Call, Message, Session
from duramen.layout.transcript import Deviation, Transcript
from duramen.layout.zones import Prompt


@dataclass
class Stable:
    model: Model
    session: Session

    def __post_init__(self) -> None:
        self._transcript: Transcript | None = None
        self._reply: tuple[Sequence[int], Message] | None = None
        self._past_deviations: list[Deviation] = []
        self._past_deviating = 0

    @property
    def deviations(self) -> Sequence[Deviation]:
        current = self._transcript.deviations if self._transcript else []
        return [*self._past_deviations, *current]

    @property
    def num_deviating(self) -> int:
        return self._past_deviating + (self._transcript.num_deviating if self._transcript else 0)

    def prompt(self, turn: Turn, call: Call, index: int) -> Prompt:
        reply, self._reply = self._reply, None
        transcript = self._transcript
        if transcript is None or not transcript.num_calls or not turn.continues:
            self._past_deviations = list(self.deviations)
            self._past_deviating = self.num_deviating
            time_s = call_time_s(self.session, call, index)
            self._transcript = self.model.transcript(turn.tools, time_s)
            return self._transcript.start(self.model.template.prepared(turn.messages))
        if reply is not None and turn.has_reply:
            transcript.sampled(*reply)
        new = turn.messages[len(transcript.messages) :]
        prompt = transcript.extend(self.model.template.prepared(new))
        if turn.reserialised:
            note = "the client wrote old messages or tools anew: their frozen ids were kept"
            prompt = replace(prompt, notes=(*prompt.notes, note))
        return prompt

    def sampled(self, token_ids: Sequence[int], message: Message) -> None:
        [prepared] = self.model.template.prepared([message])
        self._reply = (token_ids, prepared)
