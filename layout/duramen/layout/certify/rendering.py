"""A transition's two prompts as one template writes them."""

import datetime
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from jinja2 import nodes

from duramen.layout.certify.transitions import ASK, SYSTEM, Tool, Transition
from duramen.layout.delta import common_text
from duramen.layout.errors import TemplateError
from duramen.layout.jinja import TrackedEnvironment
from duramen.layout.spans import data_extents
from duramen.layout.template import ChatTemplate, Message
from duramen.layout.tracked import Tracked

OPENER = re.compile(  # of a thinking block: <think>, <|START_THINKING|>, [THINK], ...
    r"[<\[(◁](?!\|?end)\|?[\w:|]*(?:think|thought|reason)[\w:|]*[>\])▷]", re.IGNORECASE
)
_CUT_MARKER = re.compile(r"[<\[][^\s<>\[\]]*$")
NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)  # where a template shows a clock


@dataclass(frozen=True)
class Step:
    """`transition` as the template can take it; `before` is the prompt that was sent and `after`
    the next one. `bare` is `before` without its generation prompt, None where that is refused."""

    transition: Transition
    before: Tracked
    after: Tracked
    bare: Tracked | None

    @property
    def is_kept(self) -> bool:
        return self.after.startswith(self.before)

    @property
    def shows_tools(self) -> bool:
        shown = self.transition.shown
        return not shown or any(word in self.after for word in shown)

    @property
    def at(self) -> int:
        """The first character that differs; the length of `before` where it is kept."""
        return common_text(self.before, self.after)

    @property
    def prompt_start(self) -> int:
        """Where the generation prompt begins in `before`: behind the last data, where it cannot be
        told from a text without it."""
        if self.bare is None or self.bare == self.before:
            return data_end(self.before)
        return common_text(self.bare, self.before)


@dataclass(frozen=True)
class Rendering:
    """`arguments` go to the template in every call, over those of the transition."""

    template: ChatTemplate
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def prompt(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool] = (),
        arguments: Mapping[str, Any] | None = None,
        *,
        opened: bool = True,
        now: datetime.datetime = NOW,
    ) -> Tracked:
        """`opened`: with the generation prompt. Raises TemplateError where that is refused."""
        return self.template.render(
            messages,
            tools=tools,
            add_generation_prompt=opened,
            now=now,
            arguments={**(arguments or {}), **self.arguments},
        )

    def step(self, transition: Transition) -> Step:
        """Raises TemplateError if the template refuses one of the two calls."""
        t = self.fitted(transition)
        before = self.prompt(t.sent, t.tools, t.arguments)
        after = self.prompt(t.next, t.next_tools, t.arguments)
        return Step(t, before, after, self.closed(t.sent, t))

    def closed(self, messages: Sequence[Message], like: Transition) -> Tracked | None:
        """Without a generation prompt; None where that is refused."""
        try:
            return self.prompt(messages, like.tools, like.arguments, opened=False)
        except TemplateError:
            return None

    def fitted(self, transition: Transition) -> Transition:
        """With the template's own name for thinking, and without the first message if it refuses
        system messages there."""
        calls = [transition.sent, transition.next]
        if not self.takes_system:
            calls = [messages[1:] for messages in calls]
        if self.thinking_name == "thinking":
            calls = [[_renamed(message) for message in messages] for messages in calls]
        return replace(transition, sent=calls[0], next=calls[1])

    @cached_property
    def takes_system(self) -> bool:
        """False if a system message is all that the template refuses of a first turn."""
        return self._accepts([SYSTEM, ASK]) or not self._accepts([ASK])

    def _accepts(self, messages: Sequence[Message]) -> bool:
        try:
            self.prompt(messages)
        except TemplateError:
            return False
        return True

    @cached_property
    def thinking_name(self) -> str:
        """Under which the template reads a message's thinking: that of vLLM 0.32, unless it reads
        only `thinking`."""
        tree = TrackedEnvironment().parse(self.template.source)
        read = {node.attr for node in tree.find_all(nodes.Getattr)}
        read |= {node.value for node in tree.find_all(nodes.Const) if isinstance(node.value, str)}
        is_thinking = "thinking" in read and read.isdisjoint(["reasoning", "reasoning_content"])
        return "thinking" if is_thinking else "reasoning_content"


def keeps(rendering: Rendering, fitted: Transition) -> bool:
    """As Step.is_kept and Step.shows_tools, for a transition that is fitted to the template."""
    t = fitted
    try:
        before = rendering.prompt(t.sent, t.tools, t.arguments)
        after = rendering.prompt(t.next, t.next_tools, t.arguments)
    except TemplateError:
        return False
    return after.startswith(before) and (not t.shown or any(word in after for word in t.shown))


def keeps_reply(rendering: Rendering, fitted: Transition) -> bool | None:
    """Whether the next prompt begins with the reply, too, as the template writes it while nothing
    follows; None where that is refused. What closes it does not count: some templates write another
    end before a turn."""
    t, own = fitted, len(fitted.sent)  # the reply's place
    try:
        before = rendering.prompt(t.sent, t.tools, t.arguments)
        answered = rendering.prompt(t.next[: own + 1], t.tools, t.arguments, opened=False)
        after = rendering.prompt(t.next, t.next_tools, t.arguments)
    except TemplateError:
        return None
    _, end = data_extents(answered).get(own + 1, (0, 0))
    return after.startswith(before) and after.startswith(answered[:end])


def marker_start(text: str, place: int) -> int:
    """`place`, or where the marker begins that it stands in."""
    opened = _CUT_MARKER.search(text, max(0, place - 40), place)
    return opened.start() if opened else place


def data_end(text: Tracked) -> int:
    """Where the last data of a message ends."""
    return max((end for origin, (_, end) in data_extents(text).items() if origin > 0), default=0)


def _renamed(message: Message) -> Message:
    if "reasoning_content" not in message:
        return message
    rest = {k: v for k, v in message.items() if k not in ("reasoning", "reasoning_content")}
    return {**rest, "thinking": message["reasoning_content"]}
