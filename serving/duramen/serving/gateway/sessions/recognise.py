"""Which recorded conversation a request goes on with, told from its content alone.

A request is compared by the chained digests of its messages (layout.fingerprint), so what a
client's round trip does to them does not matter. What was sampled stands in front of some assistant
message: the last one whose chain is recorded decides.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from duramen.layout.fingerprint import MessagePrint, chain, message_prints
from duramen.serving.gateway.sessions.records import Reply, Scope, Turn
from duramen.serving.gateway.sessions.tree import SessionTree

Message = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """What a request says, and where it may be looked for. `root`: digest of what it is rendered
    with, the cache salt included (None: whatever it is); `session`: the one that the client names,
    if it does."""

    scope: Scope
    root: bytes | None
    messages: Sequence[Message]
    prints: Sequence[MessagePrint]
    keys: Sequence[bytes]
    session: str | None


def asked(
    scope: Scope, root: bytes | None, messages: Sequence[Message], session: str | None = None
) -> Asked:
    prints = message_prints(messages)
    return Asked(scope, root, messages, prints, chain(prints), session)


@dataclass(frozen=True)
class Match:
    """`reply`: what the request goes on behind, None if nothing was found; the first `num_messages`
    messages are its past. `seen`: of a reply that broke off, the content that the client has.

    `other_root`: a reply that would have matched, had tools and arguments been the same.
    """

    reply: Reply | None
    num_messages: int = 0
    seen: str | None = None
    other_root: Reply | None = None


def recognise(tree: SessionTree, request: Asked) -> Match:
    """The longest recorded conversation that the request extends."""
    if request.session is not None:
        tree.session(request.scope, request.session)
    match = _in_memory(tree, request)
    replied = _assistant_places(request)
    if not replied or match.num_messages > replied[0]:
        return match
    keys = [key for i in replied[::-1] for key in _keys_around(request, i)]
    if tree.bring(request.scope, keys):
        return _in_memory(tree, request)
    return match


def _in_memory(tree: SessionTree, request: Asked) -> Match:
    other_root = None
    for i in _assistant_places(request):
        found = [
            reply
            for reply in tree.replies(request.scope, request.keys[i])
            if request.session in (None, reply.turn.session_id)
        ]
        same = [reply for reply in found if request.root in (None, reply.turn.root)]
        if same:
            return Match(_closest(same, request.prints[i]), i + 1, None, other_root)
        if found:
            other_root = other_root or found[-1]
        if (broken := _broken_off(tree, request, i)) is not None:
            return Match(broken[0], i + 1, broken[1], other_root)
    return Match(None, other_root=other_root)


def _closest(replies: Sequence[Reply], wanted: MessagePrint) -> Reply:
    """Of replies that a lossy client cannot tell apart, the one that it spells, else the newest."""
    if len(replies) == 1:
        return replies[0]
    exact = [
        reply
        for reply in replies
        if message_prints([msgspec.json.decode(reply.message)])[0].strict == wanted.strict
    ]
    return (exact or replies)[-1]


def _broken_off(tree: SessionTree, request: Asked, i: int) -> tuple[Reply, str] | None:
    """A reply that was cut off on its way and of which message i is what the client saw."""
    content = request.messages[i].get("content")
    if not isinstance(content, str) or not content.strip() or i == 0:
        return None
    for turn in reversed(tree.turns(request.scope, request.keys[i - 1])):
        if request.root not in (None, turn.root):
            continue
        if request.session not in (None, turn.session_id):
            continue
        for reply in reversed(turn.replies):
            if not reply.message and reply.text.strip().startswith(content.strip()):
                return reply, content.strip()
    return None


def _assistant_places(request: Asked) -> list[int]:
    """From the last to the first."""
    places = [i for i, m in enumerate(request.messages) if m.get("role") == "assistant"]
    return places[::-1]


def _keys_around(request: Asked, i: int) -> list[bytes]:
    return [request.keys[i - 1], request.keys[i]] if i else [request.keys[i]]


@dataclass(frozen=True)
class Edit:
    """The first message in which a request leaves what was recorded."""

    message: int
    role: str


def find_edit(match: Match, request: Asked) -> Edit | None:
    """Where the client changed history, if the reply that matched had been gone on with already.

    A call that only repeats the one before (a retry, best of n) changes nothing.
    """
    children = match.reply.turns if match.reply is not None else []
    if not children:
        return None
    turn: Turn = children[-1]
    sent = message_prints(msgspec.json.decode(turn.messages))
    end = match.num_messages + len(sent)
    if end <= len(request.keys) and request.keys[end - 1] == turn.key:
        return _edit_at(request, end) if end < len(request.keys) else None  # another reply
    new = request.prints[match.num_messages : end]
    roles = [message.get("role") for message in request.messages[match.num_messages : end]]
    for i, (before, now, role) in enumerate(zip(sent, new, roles, strict=False)):
        # a tool result's print depends on the calls before it, which `sent` does not have
        if before.loose != now.loose and role != "tool":
            return _edit_at(request, match.num_messages + i)
    return _edit_at(request, match.num_messages + len(new) - 1) if len(new) == len(sent) else None


def _edit_at(request: Asked, i: int) -> Edit:
    return Edit(i, str(request.messages[i].get("role")))
