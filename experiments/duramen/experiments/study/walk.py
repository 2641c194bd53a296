"""Runs a recorded session through a layout: one step per call, with the reply that was recorded."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from duramen.experiments.history import History, Turn, is_same
from duramen.experiments.layouts.catalogue import Layout
from duramen.experiments.layouts.conversation import begin
from duramen.experiments.layouts.model import Model, call_time_s
from duramen.experiments.layouts.zoned import Zoned
from duramen.experiments.trajectory import Call, Session
from duramen.layout.align import Alignment
from duramen.layout.errors import TemplateError
from duramen.layout.segment_cache import text_digest
from duramen.layout.zones import Prompt


@dataclass(frozen=True)
class Step:
    """One call as it is sent at Unix time `time_s`.

    `reply_ids`: what the model is taken to have sampled: the recorded reply in this model's own
    tokens; `reply_digest`: of its text. `has_reply`: the prompt goes on with the reply before.
    `is_last`: no call of the session comes after it.
    """

    session: Session
    call: int
    time_s: float
    prompt: Prompt
    reply_ids: Sequence[int]
    reply_digest: bytes | None
    has_reply: bool
    is_last: bool


@dataclass
class Walk:
    """All sessions of a study under one layout. `refused`: calls that the template refused, by its
    reason; `notes`: what layouts had to do that a reader would not expect; `alignments`: of zone
    ends to match units."""

    model: Model
    layout: Layout
    refused: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    num_deviating: int = 0
    alignments: list[Alignment] = field(default_factory=list)

    def __call__(self, session: Session) -> Iterator[Step]:
        conversation = begin(self.layout, self.model, session)
        last: tuple[Turn, Call] | None = None
        for index, (call, turn) in enumerate(
            zip(session.calls, History(session, live=False).turns(), strict=True)
        ):
            try:
                prompt = conversation.prompt(turn, call, index)
            except TemplateError as error:
                self.refused[str(error)] += 1
                last = None
                continue
            self.notes.update(prompt.notes)
            time_s = call_time_s(session, call, index)
            reply_ids = self._reply(turn, call, time_s)
            yield Step(
                session,
                index,
                time_s,
                prompt,
                reply_ids,
                self._spoken(reply_ids),
                has_reply=last is not None and _goes_on(turn, *last),
                is_last=index == len(session.calls) - 1,
            )
            last = (turn, call) if reply_ids else None
            if reply_ids and call.reply is not None:
                conversation.sampled(reply_ids, call.reply)
        self.num_deviating += conversation.num_deviating
        if isinstance(conversation, Zoned):
            self.alignments += [placed.alignment for placed in conversation.alignments]

    def _reply(self, turn: Turn, call: Call, time_s: float) -> list[int]:
        if call.reply is None:
            return []
        try:
            return self.model.recorded_reply(turn, time_s, call.reply)
        except TemplateError as error:  # no model with this template said that
            self.notes[str(error)] += 1
            return []

    def _spoken(self, token_ids: Sequence[int]) -> bytes | None:
        if not token_ids:
            return None
        body, _ = self.model.tokenizer.split_closer(token_ids, self.model.turn_end_ids)
        return text_digest(self.model.tokenizer.decode(body))


def _goes_on(turn: Turn, last: Turn, answered: Call) -> bool:
    """Whether the conversation goes on with the reply to `last`, where it was said."""
    num_old = len(last.messages)
    return any(is_same(message, answered.reply) for message in turn.messages[num_old : num_old + 1])
