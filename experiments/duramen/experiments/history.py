"""What each call of a recorded session adds to the one before, with recorded or live replies."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from duramen.experiments.trajectory import Call, Message, Session, Tool


@dataclass(frozen=True)
class Turn:
    """One call as it is sent, with all its messages.

    `continues`: the messages of the call before are its beginning, and `has_reply`: that call's
    reply follows them. Otherwise the client edited the past, or sent other tools.
    """

    messages: Sequence[Message]
    tools: Sequence[Tool]
    continues: bool = False
    has_reply: bool = False


@dataclass
class History:
    """Walks a session. With live replies, each reply that was recorded is replaced, wherever it
    stands later on, by the one that `replied` was given for its call."""

    session: Session
    live: bool
    _replies: list[tuple[bytes, Message]] = field(
        default_factory=list
    )  # (recorded, sent), in order
    _reply: Message | None = None  # the model's own to the call of the last turn

    def turns(self) -> Iterator[Turn]:
        """One turn per call. Before the next is asked for, `replied` may be called for this one; a
        call without goes on with its recorded reply."""
        turn: Turn | None = None
        previous: Call | None = None
        for call in self.session.calls:
            tools = self.session.tools_of(call)
            continued = None
            if turn is not None and previous is not None and tools == turn.tools:
                continued = self._continue(turn, previous, call)
            turn = continued or Turn(self._replaced(call.messages), tools)
            yield turn
            if self.live and call.reply is not None:
                self._replies.append((_key(call.reply), self._reply or call.reply))
            previous, self._reply = call, None

    def replied(self, reply: Message) -> None:
        """The model's own reply to the call of the last turn."""
        self._reply = reply

    def _continue(self, turn: Turn, previous: Call, call: Call) -> Turn | None:
        """`call` after `turn`, which sent `previous`; None if it does not begin with that one."""
        num_old = len(previous.messages)
        if call.messages[:num_old] != previous.messages:
            return None
        new = call.messages[num_old:]
        if not new or previous.reply is None or _key(new[0]) != _key(previous.reply):
            return Turn([*turn.messages, *new], turn.tools, continues=True)
        reply = self._replies[-1][1] if self.live else new[0]
        messages = [*turn.messages, reply, *new[1:]]
        return Turn(messages, turn.tools, continues=True, has_reply=True)

    def _replaced(self, messages: Sequence[Message]) -> list[Message]:
        """The recorded replies, each by the live one of the same place in order."""
        replaced = []
        pending = list(self._replies)
        for message in messages:
            key = _key(message) if pending and message.get("role") == "assistant" else None
            if key in [recorded for recorded, _ in pending]:
                while pending[0][0] != key:
                    pending.pop(0)
                message = pending.pop(0)[1]
            replaced.append(message)
        return replaced


def _key(message: Mapping[str, object]) -> bytes:
    """What a message says, whatever the order of its keys and of absent fields."""
    said = {key: value for key, value in message.items() if value is not None}
    return msgspec.json.encode(said, order="deterministic")
