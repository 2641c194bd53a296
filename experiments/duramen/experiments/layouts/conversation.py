"""Prompt layouts: how the messages of a call become token ids.

recorded  each call is rendered and encoded whole, as a client that keeps no ids does
clock     the same, with the time of the call as the first line of the system prompt
stable    append-only: what was sent or sampled keeps its ids, a call adds only its new messages
"""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol

from duramen.experiments.history import Turn
from duramen.experiments.trajectory import Call, Message, Session, Tool
from duramen.layout.chat_messages import template_tools
from duramen.layout.delta import DeltaRenderer
from duramen.layout.errors import TrajectoryError
from duramen.layout.template import ChatTemplate
from duramen.layout.tokenizer import Tokenizer
from duramen.layout.transcript import Deviation, Transcript
from duramen.layout.zones import Prompt

ASSUMED_START_S = 1_767_225_600.0  # 2026-01-01 00:00 UTC, for recordings without a time


class LayoutName(Enum):
    RECORDED = "recorded"
    CLOCK = "clock"
    STABLE = "stable"


@dataclass(frozen=True)
class Model:
    """What turns messages into ids: one tokenizer and template for all sessions."""

    tokenizer: Tokenizer
    template: ChatTemplate
    turn_end_ids: frozenset[int] = frozenset()
    independent_seams: bool = False

    def transcript(self, tools: Sequence[Tool], time_s: float) -> Transcript:
        """A new conversation that starts at Unix time `time_s`."""
        return Transcript(
            self.tokenizer,
            self.template,
            tools=template_tools(tools),
            now=utc(time_s),
            independent_seams=self.independent_seams,
            turn_end_ids=self.turn_end_ids,
        )

    def recorded_reply(self, turn: Turn, time_s: float, reply: Message) -> list[int]:
        """The ids that a model would have sampled to say `reply`, up to the token that ends it."""
        now = utc(time_s)
        renderer = DeltaRenderer(
            self.template, template_tools(turn.tools), now, controls=self.tokenizer.controls
        )
        history, said = self.template.prepared(turn.messages), self.template.prepared([reply])
        text = renderer.reply_text(history, said[0])
        sections = self.tokenizer.encode(text, at_start=False).sections
        last = max((i for i, section in enumerate(sections) if section.control), default=None)
        ended = sections if last is None else sections[: last + 1]
        return [token_id for section in ended for token_id in section.token_ids]


class Conversation(Protocol):
    """One session under one layout."""

    def prompt(self, turn: Turn, call: Call, index: int) -> Prompt: ...

    def sampled(self, token_ids: Sequence[int], message: Message) -> None:
        """The engine's reply to the last prompt, which the next turn goes on from."""

    @property
    def deviations(self) -> Sequence[Deviation]: ...

    @property
    def num_deviating(self) -> int:
        """Ids that independent seams made other than canonical."""


def begin(name: LayoutName, model: Model, session: Session) -> Conversation:
    if name is LayoutName.STABLE:
        return _Stable(model, session)
    return _Whole(model, session, with_clock=name is LayoutName.CLOCK)


@dataclass
class _Whole:
    model: Model
    session: Session
    with_clock: bool
    deviations: Sequence[Deviation] = ()
    num_deviating: int = 0

    def prompt(self, turn: Turn, call: Call, index: int) -> Prompt:
        time_s = call_time_s(self.session, call, index)
        messages = with_clock(turn.messages, time_s) if self.with_clock else turn.messages
        transcript = self.model.transcript(turn.tools, time_s)
        prompt = transcript.start(self.model.template.prepared(messages))
        self.num_deviating += transcript.num_deviating
        return prompt

    def sampled(self, token_ids: Sequence[int], message: Message) -> None:
        pass  # the next prompt is encoded from text


@dataclass
class _Stable:
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


def with_clock(messages: Sequence[Message], time_s: float) -> list[Message]:
    """The messages with the time as first line of the system prompt, which is added if need be."""
    line = utc(time_s).strftime("Current time: %Y-%m-%d %H:%M:%S UTC\n")
    if not messages or messages[0].get("role") not in ("system", "developer"):
        return [{"role": "system", "content": line}, *messages]
    first = dict(messages[0])
    content = first.get("content")
    if isinstance(content, list):
        first["content"] = [{"type": "text", "text": line}, *content]
    else:
        first["content"] = line + (content or "")
    return [first, *messages[1:]]
