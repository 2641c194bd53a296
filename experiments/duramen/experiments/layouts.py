"""Prompt layouts: how the messages of a call become token ids.

recorded  each call is rendered and encoded whole, as a client that keeps no ids does
clock     the same, with the time of the call as the first line of the system prompt
stable    append-only: what was sent or sampled keeps its ids, a call adds only its new messages
"""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from duramen.experiments.history import Turn
from duramen.experiments.trajectory import Call, Message, Session, Tool
from duramen.layout.chat_messages import template_tools
from duramen.layout.delta import DeltaRenderer
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

    def transcript(self, session: Session, tools: Sequence[Tool]) -> Transcript:
        start = datetime.datetime.fromtimestamp(start_time_s(session), datetime.UTC)
        return Transcript(
            self.tokenizer,
            self.template,
            tools=template_tools(tools),
            now=start,
            turn_end_ids=self.turn_end_ids,
        )

    def recorded_reply(self, session: Session, turn: Turn, reply: Message) -> list[int]:
        """The ids that a model would have sampled to say `reply`, up to the token that ends it."""
        start = datetime.datetime.fromtimestamp(start_time_s(session), datetime.UTC)
        renderer = DeltaRenderer(self.template, template_tools(turn.tools), start)
        history, said = self.template.prepared(turn.messages), self.template.prepared([reply])
        sections = self.tokenizer.encode(renderer.reply_text(history, said[0])).sections
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

    def prompt(self, turn: Turn, call: Call, index: int) -> Prompt:
        messages = turn.messages
        if self.with_clock:
            offset_s = call.time_s if call.time_s is not None else float(index)
            messages = with_clock(messages, start_time_s(self.session) + offset_s)
        transcript = self.model.transcript(self.session, turn.tools)
        return transcript.start(self.model.template.prepared(messages))

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

    @property
    def deviations(self) -> Sequence[Deviation]:
        current = self._transcript.deviations if self._transcript else []
        return [*self._past_deviations, *current]

    def prompt(self, turn: Turn, call: Call, index: int) -> Prompt:
        reply, self._reply = self._reply, None
        transcript = self._transcript
        if transcript is None or not transcript.num_calls or not turn.continues:
            self._past_deviations = list(self.deviations)
            self._transcript = self.model.transcript(self.session, turn.tools)
            return self._transcript.start(self.model.template.prepared(turn.messages))
        if reply is not None and turn.has_reply:
            transcript.sampled(*reply)
        new = turn.messages[len(transcript.messages) :]
        return transcript.extend(self.model.template.prepared(new))

    def sampled(self, token_ids: Sequence[int], message: Message) -> None:
        [prepared] = self.model.template.prepared([message])
        self._reply = (token_ids, prepared)


def start_time_s(session: Session) -> float:
    return ASSUMED_START_S if session.start_time_s is None else session.start_time_s


def with_clock(messages: Sequence[Message], time_s: float) -> list[Message]:
    """The messages with the time as first line of the system prompt, which is added if need be."""
    line = datetime.datetime.fromtimestamp(time_s, datetime.UTC).strftime(
        "Current time: %Y-%m-%d %H:%M:%S UTC\n"
    )
    if not messages or messages[0].get("role") != "system":
        return [{"role": "system", "content": line}, *messages]
    first = dict(messages[0])
    content = first.get("content")
    if isinstance(content, list):
        first["content"] = [{"type": "text", "text": line}, *content]
    else:
        first["content"] = line + (content or "")
    return [first, *messages[1:]]
