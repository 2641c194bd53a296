"""One session under one layout: turns in, prompts out."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from duramen.experiments.history import Turn
from duramen.experiments.layouts.catalogue import Layout, LayoutName
from duramen.experiments.layouts.mistakes import rewrite_of
from duramen.experiments.layouts.model import Model
from duramen.experiments.layouts.stable import Stable
from duramen.experiments.layouts.whole import Whole
from duramen.experiments.layouts.zoned import Zoned
from duramen.experiments.trajectory import Call, Message, Session
from duramen.layout.transcript import Deviation
from duramen.layout.zones import Prompt


class Conversation(Protocol):
    def prompt(self, turn: Turn, call: Call, index: int) -> Prompt:
        """What is sent for call number `index`. Raises TemplateError if the template refuses."""

    def sampled(self, token_ids: Sequence[int], message: Message) -> None:
        """The engine's reply to the last prompt, which the next turn goes on from."""

    @property
    def deviations(self) -> Sequence[Deviation]: ...

    @property
    def num_deviating(self) -> int:
        """Ids that independent seams made other than canonical."""


def begin(layout: Layout, model: Model, session: Session) -> Conversation:
    match layout.name:
        case LayoutName.STABLE:
            return Stable(model, session)
        case LayoutName.INDEPENDENT:
            return Stable(replace(model, independent_seams=True), session)
        case LayoutName.RECORDED:
            return Whole(model, session)
        case LayoutName.THINKING_KEPT:
            return Whole(model.keeping_thinking(), session, rewrite_of(layout))
        case LayoutName.ZONED:
            return Zoned(model, session, layout)
        case _:
            return Whole(model, session, rewrite_of(layout))
