"""Which replies a later call goes on with, and whether it sends them back as they were."""

from collections.abc import Sequence
from typing import NamedTuple

from duramen.experiments.history import is_same
from duramen.experiments.trajectory import Call, Message
from duramen.experiments.why.roots import SYSTEM

NUM_LOOKED_AT = 64  # later calls in which a reply is looked for


class Quoted(NamedTuple):
    """`changed`: what the client sends back says something else, or says it in other words."""

    changed: bool


def quoted(calls: Sequence[Call], index: int) -> Quoted | None:
    """How the reply to call `index` comes back in a later one; None if none goes on with it."""
    call = calls[index]
    if call.reply is None:
        return None
    num_sent = len(call.messages)
    for later in calls[index + 1 : index + 1 + NUM_LOOKED_AT]:
        if len(later.messages) <= num_sent or not num_sent:
            continue
        quote = later.messages[num_sent]
        goes_on = later.messages[num_sent - 1] is call.messages[-1]
        if goes_on and quote.get("role") == "assistant":
            return Quoted(not is_same(quote, call.reply))
    return _elsewhere(calls[index + 1 : index + 2], call.reply, num_sent)


def _elsewhere(later: Sequence[Call], reply: Message, place: int) -> Quoted | None:
    """In the next call, whose messages before the reply are others."""
    for call in later:
        if any(is_same(message, reply) for message in reversed(call.messages)):
            return Quoted(False)
        if place < len(call.messages) and call.messages[place].get("role") == "assistant":
            return Quoted(True)
    return None


def num_continued(before: Call, after: Call) -> int:
    """Messages of `before`, system texts left out, if `after` begins with all of them; else 0."""
    old, new = (
        [message for message in call.messages if message.get("role") not in SYSTEM]
        for call in (before, after)
    )
    return len(old) if old == new[: len(old)] else 0
