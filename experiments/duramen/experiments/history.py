"""What each call of a recorded session adds to the one before, with recorded or live replies."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from duramen.experiments.trajectory import Call, Message, Session, Tool


@dataclass(frozen=True)
class Turn:
    """One call as it is sent, with all its messages.

    `continues`: the messages of the call before are its beginning, and `has_reply`: that call's
    reply follows them. Otherwise the client edited the past, or sent other tools. `reserialised`:
    it continues, but the client wrote old messages or tools with their keys in another order.
    """

    messages: Sequence[Message]
    tools: Sequence[Tool]
    continues: bool = False
    has_reply: bool = False
    reserialised: bool = False


@dataclass
class History:
    """Walks a session. With live replies, each reply that was recorded is replaced, wherever it
    stands later on, by the one that `replied` was given for its call."""

    session: Session
    live: bool
    _replies: list[tuple[bytes, Message]] = field(default_factory=list)  # (recorded, sent)
    _places: dict[int, Message] = field(default_factory=dict)  # live replies by their index
    _reply: Message | None = None  # the model's own to the call of the last turn

    def turns(self) -> Iterator[Turn]:
        """One turn per call. Before the next is asked for, `replied` may be called for this one; a
        call without goes on with its recorded reply."""
        previous: Call | None = None
        for call in self.session.calls:
            turn = self._continued(previous, call) if previous is not None else None
            if turn is None:
                self._places = self._find_places(call.messages, self._replies)
                turn = Turn(self._current(call), self.session.tools_of(call))
            yield turn
            if self.live and call.reply is not None:
                self._replies.append((_key(call.reply), self._reply or call.reply))
            previous, self._reply = call, None

    def replied(self, reply: Message) -> None:
        """The model's own reply to the call of the last turn."""
        self._reply = reply

    def _continued(self, previous: Call, call: Call) -> Turn | None:
        """`call` after `previous`; None if it does not begin with that one's messages."""
        num_old = len(previous.messages)
        tools, old_tools = self.session.tools_of(call), self.session.tools_of(previous)
        pairs = list(zip(call.messages, previous.messages, strict=False))
        if len(pairs) < num_old or not all(is_same(new, old) for new, old in pairs):
            return None
        if not is_same(tools, old_tools):
            return None
        reply = call.messages[num_old] if num_old < len(call.messages) else None
        has_reply = reply is not None and is_same(reply, previous.reply)
        placed = list(self._places.values())
        missing = [pair for pair in self._replies if not any(pair[1] is p for p in placed)]
        for index, message in self._find_places(call.messages[num_old:], missing).items():
            self._places[num_old + index] = message
        rewritten = any(_is_rewritten(a, b) for a, b in [*pairs, (tools, old_tools)])
        return Turn(self._current(call), tools, True, has_reply, rewritten)

    def _current(self, call: Call) -> list[Message]:
        """The messages of `call` with the live replies at their places."""
        return [self._places.get(i, message) for i, message in enumerate(call.messages)]

    def _find_places(
        self, messages: Sequence[Message], replies: Sequence[tuple[bytes, Message]]
    ) -> dict[int, Message]:
        """Where recorded replies stand in `messages`, each with the live one, newest first."""
        places = {}
        pending = list(replies)
        for index, message in reversed(list(enumerate(messages))):
            if not pending or message.get("role") != "assistant":
                continue
            key = _key(message)
            if key in [recorded for recorded, _ in pending]:
                while pending[-1][0] != key:
                    pending.pop()
                places[index] = pending.pop()[1]
        return places


def is_same(a: object, b: object) -> bool:
    """Whether both say the same, whatever the order of their keys; true is not 1."""
    return a is b or (a is not None and b is not None and _key(a) == _key(b))


def _is_rewritten(new: object, old: object) -> bool:
    """Whether two things that say the same are spelled differently."""
    return new is not old and msgspec.json.encode(new) != msgspec.json.encode(old)


def _key(value: object) -> bytes:
    """What a message or tool says, whatever the order of its keys and of absent fields."""
    if isinstance(value, Mapping):
        value = {key: item for key, item in value.items() if item is not None}
    return msgspec.json.encode(value, order="deterministic")
