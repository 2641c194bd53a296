"""When an edit of a chat template counts as proven.

The edited template
* keeps strictly more transitions, and every one that was kept before;
* writes the first turn as before, character for character: with and without a system message, with
  and without tools, whatever the options;
* writes every conversation with at least the text that it had: no character is lost (it may stand
  elsewhere), nothing of a message is left out or stands there more often than before, and no reply
  has two thinking blocks;
* keeps what it keeps in a longer conversation and without a system message, too.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from duramen.layout.certify.history import PROBES
from duramen.layout.certify.options import candidates
from duramen.layout.certify.rendering import OPENER, Rendering, keeps
from duramen.layout.certify.transitions import (
    ASK,
    FIRST,
    READ,
    TRANSITIONS,
    WRITE,
    Tool,
    Transition,
)
from duramen.layout.errors import TemplateError
from duramen.layout.template import Message


class _Call(NamedTuple):
    messages: Sequence[Message]
    tools: Sequence[Tool]
    arguments: Mapping[str, Any]
    opened: bool = True

    @property
    def num_replies(self) -> int:
        """The one that the generation prompt opens among them."""
        return [message["role"] for message in self.messages].count("assistant") + self.opened

    @property
    def has_parts(self) -> bool:
        """Then a template that writes it as it stands in Python has no text to lose."""
        return any(isinstance(message["content"], list) for message in self.messages)

    def text(self, rendering: Rendering) -> str | None:
        """None where the template refuses it."""
        try:
            text = rendering.prompt(self.messages, self.tools, self.arguments, opened=self.opened)
        except TemplateError:
            return None
        return str.__getitem__(text, slice(None))  # without origins: faster to read


@dataclass(frozen=True)
class Proof:
    """What an edit of `original` is measured against."""

    original: Rendering

    @cached_property
    def kept(self) -> frozenset[str]:
        return frozenset(t.name for t in TRANSITIONS if keeps(self.original, self.fitted[t.name]))

    @cached_property
    def fitted(self) -> dict[str, Transition]:
        return {t.name: self.original.fitted(t) for t in TRANSITIONS}

    def holds(self, edited: Rendering, names: frozenset[str]) -> bool:
        """Whether the edit is proven to keep the transitions of these names."""
        return (
            all(keeps(edited, self.fitted[name]) for name in names)
            and all(before == call.text(edited) for call, before in self._first_turns)
            and all(self._is_kept_elsewhere(edited, self.fitted[name]) for name in names)
            and self._loses_nothing(edited)
        )

    def _is_kept_elsewhere(self, edited: Rendering, transition: Transition) -> bool:
        """A transition that the original breaks is also kept in a longer conversation, and without
        a system message; one that it keeps there stays kept."""
        broken = transition.name not in self.kept
        for other in _elsewhere(transition):
            asked = broken and _is_taken(self.original, other)
            if (asked or keeps(self.original, other)) and not keeps(edited, other):
                return False
        return True

    @cached_property
    def _first_turns(self) -> list[tuple[_Call, str]]:
        options: list[dict[str, Any]] = [{}, {"enable_thinking": True}, {"enable_thinking": False}]
        options += [{name: value} for name, value in candidates(self.original.template.source)]
        return self._written(
            _Call(messages, tools, arguments)
            for messages in (FIRST, [ASK])
            for tools in ([], [READ], [READ, WRITE])
            for arguments in options
        )

    @cached_property
    def _conversations(self) -> list[tuple[_Call, str]]:
        fitted = [self.original.fitted(t) for t in TRANSITIONS]
        calls = [_Call(t.sent, t.tools, t.arguments) for t in fitted]
        calls += [_Call(t.next, t.next_tools, t.arguments) for t in fitted]
        calls += [_Call(probe.messages, probe.tools, {}) for probe in PROBES]
        calls += [call._replace(opened=False) for call in calls]
        return self._written(calls)

    def _written(self, calls: Any) -> list[tuple[_Call, str]]:
        """Those that the original takes, with its text."""
        texts = ((call, call.text(self.original)) for call in calls)
        return [(call, text) for call, text in texts if text is not None]

    def _loses_nothing(self, edited: Rendering) -> bool:
        return all(
            (after := call.text(edited)) is not None
            and (call.has_parts or not Counter(before) - Counter(after))
            and _num_openers(after, call) <= max(_num_openers(before, call), call.num_replies)
            and _shows(after, before, call.messages)
            for call, before in self._conversations
        )


_EARLIER: Sequence[Message] = [
    {"role": "user", "content": "Are you there, by the way?"},
    {"role": "assistant", "content": "Yes, go ahead."},
]


def _elsewhere(transition: Transition) -> Iterator[Transition]:
    """The transition in other surroundings."""
    sent, following = list(transition.sent), list(transition.next)
    head = int(sent[0]["role"] == "system")
    if head:
        yield replace(transition, sent=sent[1:], next=following[1:])
    longer = ([*m[:head], *_EARLIER, *m[head:]] for m in (sent, following))
    yield replace(transition, sent=next(longer), next=next(longer))


def _is_taken(rendering: Rendering, transition: Transition) -> bool:
    t = transition
    calls = _Call(t.sent, t.tools, t.arguments), _Call(t.next, t.next_tools, t.arguments)
    return all(call.text(rendering) is not None for call in calls)


def _num_openers(text: str, call: _Call) -> int:
    """Thinking blocks behind the first user message."""
    first = next((m["content"] for m in call.messages if m["role"] == "user"), "")
    start = text.find(first) if isinstance(first, str) else 0
    return len(OPENER.findall(text, max(start, 0)))


def _shows(after: str, before: str, messages: Sequence[Message]) -> bool:
    """Every text of a message that `before` shows is shown, and none more often than it was or than
    there are messages with it."""
    said = Counter(text for message in messages for text in set(_texts(message)))
    for text, num_messages in said.items():
        shown, now = before.count(text), after.count(text)
        if now > max(shown, num_messages) or (shown and not now):
            return False
    return True


def _texts(value: Any) -> Iterator[str]:
    """What a message says, roles and types aside."""
    if isinstance(value, str):
        yield from [value] if value else []
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts(inner) if key not in ("role", "type") else ()
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
