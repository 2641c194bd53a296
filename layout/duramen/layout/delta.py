"""What new messages add to a conversation's text, without rendering the conversation again.

For a local template (see locality.py) the head and the last few messages stand for the whole
history; any other template is rendered whole, where only the text is made again, not its ids.
"""

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from duramen.layout.errors import TemplateError
from duramen.layout.spans import Control
from duramen.layout.template import (
    ChatTemplate,
    Marked,
    Message,
    marked_messages,
    marked_tools,
)
from duramen.layout.tracked import Tracked

HEAD, TAIL = 3, 2  # messages that stand for the history of a local template


@dataclass(frozen=True)
class Break:
    """The template does not keep what it had rendered: the text changes at `character`."""

    character: int  # in the rendered text before
    before: str  # a few characters from there on
    after: str


@dataclass(frozen=True)
class Delta:
    """`text` follows what is frozen. Its first `num_closing` characters close the reply's turn;
    its origins count from `shift` messages on: origin o > HEAD is message o - 1 + shift.
    `rendered` is what the template itself writes for the sampled reply, its turn's end left out."""

    text: Tracked
    num_closing: int
    shift: int
    broken: Break | None
    rendered: str | None = None


@dataclass(frozen=True)
class Reply:
    """How sampled ids ended: `closer` is the control token's text they end with, if any."""

    message: Message
    closer: str | None
    turn_ends: frozenset[str] = frozenset()


@dataclass(frozen=True)
class DeltaRenderer:
    template: ChatTemplate
    tools: Sequence[Mapping[str, Any]] = ()
    now: datetime.datetime | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    controls: Callable[[Tracked], Sequence[Control]] = lambda text: ()  # Tokenizer.controls

    @cached_property
    def _marked_tools(self) -> Marked | None:
        return marked_tools(self.tools)

    def full(self, messages: Sequence[Message], *, prompt: bool) -> Tracked:
        """The whole conversation; `prompt` adds the generation prompt."""
        return self.template.render(
            messages,
            tools=self._marked_tools,
            add_generation_prompt=prompt,
            now=self.now,
            arguments=self.arguments,
        )

    def after_reply(
        self, history: Sequence[Message], reply: Reply, new: Sequence[Message]
    ) -> Delta:
        """Text behind a sampled reply: what closes its turn, then the `new` messages."""

        def render(window: Sequence[Message], shift: int) -> Delta:
            messages = marked_messages([*window, reply.message, *new])
            opened = self.full(Marked(messages[: len(window)]), prompt=True)
            closed = self.full(Marked(messages[: len(window) + 1]), prompt=False)
            after = self.full(messages, prompt=True)
            start = self._boundary(after, closed, len(window) + 1)
            broken = self.broken(opened, after)
            floor = 0 if broken else len(opened)
            data_end = max(floor, _data_end(after[:start], len(window) + 1))
            tail = _rest_of_turn(after[data_end:start], reply)
            rendered = None if broken else str(after[len(opened) : start - len(tail)])
            return Delta(tail + after[start:], len(tail), shift, broken, rendered)

        return self._windowed(render, history)

    def after_history(self, history: Sequence[Message], new: Sequence[Message]) -> Delta:
        """Text behind a prompt that ended in a generation prompt and got no sampled reply."""

        def render(window: Sequence[Message], shift: int) -> Delta:
            messages = marked_messages([*window, *new])
            closed = self.full(Marked(messages[: len(window)]), prompt=False)
            opened = self.full(Marked(messages[: len(window)]), prompt=True)
            after = self.full(messages, prompt=True)
            broken = self.broken(opened, after)
            start = len(opened) if broken is None else self._boundary(after, closed, len(window))
            if broken is not None and new and new[0].get("role") == "assistant":
                # It continues in the turn that the generation prompt opened.
                start += self.common(opened[len(closed) :], after[start:])
            return Delta(after[start:], 0, shift, broken)

        return self._windowed(render, history)

    def reply_text(self, history: Sequence[Message], reply: Message) -> tuple[Tracked, int]:
        """What a model says that replies as recorded: the template's text to its turn's end, and
        where in it the reply begins. Of a long history only the ends may stand before it."""

        def render(window: Sequence[Message]) -> tuple[Tracked, int]:
            messages = marked_messages([*window, reply])
            opened = self.full(Marked(messages[:-1]), prompt=True)
            closed = self.full(messages, prompt=False)
            return closed, self.common(opened, closed)

        if self.template.is_local and len(history) > HEAD + TAIL:
            try:
                return render([*history[:HEAD], *history[-TAIL:]])
            except TemplateError:
                pass  # the shortened history may be one that it refuses
        return render(history)

    def _boundary(self, after: Tracked, closed: Tracked, origin: int) -> int:
        """Where, in `after`, the message of `origin` is over as it is at the end of `closed`."""
        if _begins(after, closed) or self.common(closed, after) == len(closed):
            return len(closed)
        end_in_after, end_in_closed = (_data_end(text, origin) for text in (after, closed))
        return end_in_after + self.common(closed[end_in_closed:], after[end_in_after:])

    def common(self, a: Tracked, b: Tracked) -> int:
        """Length of the common beginning of both: the same text with the same control tokens, and
        none of `b` cut in two."""
        length = common_text(a, b)
        in_a, in_b = (
            {
                start: text.index(token.content, start, end) + len(token.content)
                for start, end, token in self.controls(text)
                if start < length
            }
            for text in (a, b)
        )
        cut = [start for start, end in in_b.items() if end > length]
        differing = in_a.keys() ^ in_b.keys()  # here one of them has data that spells it
        return min([length, *cut, *differing])

    def broken(self, before: Tracked, after: Tracked) -> Break | None:
        """Where `after` does not begin with `before`, None if it does."""
        if _begins(after, before):
            return None
        at = common_text(before, after)
        if at == len(before):
            at = self.common(before, after)  # the same text may still hold other control tokens
        if at == len(before):
            return None
        return Break(at, str(before[at : at + 40]), str(after[at : at + 40]))

    def _windowed(self, render: Any, history: Sequence[Message]) -> Delta:
        if self.template.is_local and len(history) > HEAD + TAIL:
            window = [*history[:HEAD], *history[-TAIL:]]
            try:
                delta: Delta = render(window, len(history) - len(window))
            except TemplateError:
                delta = render(history, 0)  # the shortened history may be one that it refuses
            if delta.broken is None:
                return delta
        whole: Delta = render(history, 0)
        return whole


def _begins(text: Tracked, start: Tracked) -> bool:
    """Whether `text` begins with `start`, every character with the same origin."""
    if not text.startswith(start):
        return False
    last = len(start.runs) - 1
    if last < 0:
        return True
    length, origin = start.runs[last]
    known_length, known_origin = text.runs[last]
    same_end = known_origin == origin and known_length >= length
    return same_end and text.runs[:last] == start.runs[:last]


def common_text(a: str, b: str) -> int:
    """Length of the longest common beginning."""
    a, b = (str.__getitem__(text, slice(None)) for text in (a, b))
    same, differing = 0, min(len(a), len(b)) + 1  # [:same] is equal, [:differing] is not
    while differing - same > 1:
        middle = (same + differing) // 2
        if a[same:middle] == b[same:middle]:
            same = middle
        else:
            differing = middle
    return same


def _data_end(text: Tracked, last_origin: int) -> int:
    """Where the data of messages up to `last_origin` ends, before that of any later one begins."""
    end = position = 0
    for length, origin in text.runs:
        if origin > last_origin:
            break
        position += length
        if origin > 0:
            end = position
    return end


def _rest_of_turn(tail: Tracked, reply: Reply) -> Tracked:
    """The part of `tail`, which follows a reply's data, that the model has not sampled."""
    if reply.closer is not None and reply.closer in tail:
        return tail[tail.index(reply.closer) + len(reply.closer) :]
    found = [(tail.rindex(end), end) for end in reply.turn_ends if end in tail]
    if not found:
        return tail
    start, end = max(found)
    return tail[start + len(end) if reply.closer in reply.turn_ends else start :]
