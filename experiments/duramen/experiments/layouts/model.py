"""What turns messages into ids, and when: tokenizer, template, and the time of each call."""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from duramen.experiments.history import Turn
from duramen.experiments.trajectory import Call, Message, Session, Tool
from duramen.layout.chat_messages import template_tools
from duramen.layout.delta import DeltaRenderer
from duramen.layout.errors import TrajectoryError
from duramen.layout.template import ChatTemplate
from duramen.layout.tokenizer import Tokenizer
from duramen.layout.transcript import Transcript

ASSUMED_START_S = 1_767_225_600.0  # 2026-01-01 00:00 UTC, for recordings without a time
KEEP_THINKING = {  # options of published templates; one that a template does not know does nothing
    "preserve_thinking": True,
    "clear_thinking": False,
    "drop_thinking": False,
}


@dataclass(frozen=True)
class Model:
    """One tokenizer and template for all sessions; `arguments` are options of the template."""

    tokenizer: Tokenizer
    template: ChatTemplate
    turn_end_ids: frozenset[int] = frozenset()
    independent_seams: bool = False
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def transcript(self, tools: Sequence[Tool], time_s: float) -> Transcript:
        """A new conversation that starts at Unix time `time_s`."""
        return Transcript(
            self.tokenizer,
            self.template,
            tools=template_tools(tools),
            now=utc(time_s),
            arguments=self.arguments,
            independent_seams=self.independent_seams,
            turn_end_ids=self.turn_end_ids,
        )

    def keeping_thinking(self) -> "Model":
        """The same with every option set by which published templates keep old thinking."""
        return replace(self, arguments={**self.arguments, **KEEP_THINKING})

    def recorded_reply(self, turn: Turn, time_s: float, reply: Message) -> list[int]:
        """The ids that a model would have sampled to say `reply`, up to the token that ends it."""
        now = utc(time_s)
        renderer = DeltaRenderer(
            self.template,
            template_tools(turn.tools),
            now,
            self.arguments,
            controls=self.tokenizer.controls,
        )
        history, said = self.template.prepared(turn.messages), self.template.prepared([reply])
        return self.tokenizer.reply_ids(*renderer.reply_text(history, said[0]))


def utc(time_s: float) -> datetime.datetime:
    """Raises TrajectoryError for a time that no calendar has."""
    try:
        return datetime.datetime.fromtimestamp(time_s, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        raise TrajectoryError(f"the recorded time {time_s:.0f} s is beyond any calendar") from None


def call_time_s(session: Session, call: Call, index: int) -> float:
    """Unix time of a call: as recorded, else one second after the call before."""
    start_s = ASSUMED_START_S if session.start_time_s is None else session.start_time_s
    return start_s + (float(index) if call.time_s is None else call.time_s)
