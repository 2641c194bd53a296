"""Which recorded conversation a request goes on with, told from its content alone.

A request is compared by the chained digests of its messages (layout.fingerprint), so what a
client's round trip does to them does not matter. What was sampled stands in front of some assistant
message: the last one whose chain is recorded decides.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from duramen.layout.fingerprint import MessagePrint, chain, message_prints
from duramen.serving.gateway.sessions.records import Reply, Scope, Turn
from duramen.serving.gateway.sessions.tree import SessionTree

Message = Mapping[str, Any]

MAX_COMPARED = 8  # of many branches the newest
MAX_ALIKE = 64  # of replies at one place the newest


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
    messages are its past. `seen`: how many characters of the reply's text, `said`, the client has
    where that is not all of it.

    `other_root`: a reply that would have matched, had tools and arguments been the same.
    """

    reply: Reply | None
    num_messages: int = 0
    seen: int | None = None
    said: str = ""
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
            reply = _closest(same[-MAX_ALIKE:], request.messages[i], request.prints[i])
            return Match(reply, i + 1, other_root=other_root)
        if found:
            other_root = other_root or found[-1]
        if (partial := _seen_in_part(tree, request, i)) is not None:
            reply, said, seen = partial
            return Match(reply, i + 1, seen, said, other_root)
    return Match(None, other_root=other_root)


def _closest(replies: Sequence[Reply], given: Message, wanted: MessagePrint) -> Reply:
    """Of replies that a lossy client cannot tell apart, the one that it spells, else one with its
    tool call ids, else the newest."""
    if len(replies) == 1:
        return replies[0]
    said = [msgspec.json.decode(reply.message) for reply in replies]
    exact = [message_prints([message])[0].strict == wanted.strict for message in said]
    named = [_call_ids(message) == _call_ids(given) for message in said]
    places = range(len(replies))
    return replies[max(places, key=lambda i: (exact[i], named[i], i))]


def _call_ids(message: Message) -> list[Any]:
    calls = message.get("tool_calls") or ()
    return [call.get("id") for call in calls if isinstance(call, Mapping)]


def _seen_in_part(tree: SessionTree, request: Asked, i: int) -> tuple[Reply, str, int] | None:
    """A reply of whose text message i is the beginning, that text, and the length of the beginning:
    one that was cut off on its way, or that a client stopped reading and nothing went on with."""
    content = _text(request.messages[i])
    if not content.strip() or i == 0 or request.messages[i].get("tool_calls"):
        return None
    for turn in tree.turns(request.scope, request.keys[i - 1])[: -MAX_ALIKE - 1 : -1]:
        if request.root not in (None, turn.root):
            continue
        if request.session not in (None, turn.session_id):
            continue
        for reply in turn.replies[: -MAX_ALIKE - 1 : -1]:
            said = reply.text
            if reply.message and not reply.turns:
                said = _text(msgspec.json.decode(reply.message))
            if (seen := _num_seen(said, content)) is not None:
                return reply, said, seen
    return None


def _num_seen(said: str, content: str) -> int | None:
    """How long a beginning of `said` is `content`, whose outer blanks a client may have lost."""
    if said.startswith(content):
        return len(content)
    start = len(said) - len(said.lstrip())
    inner = content.strip()
    if not said.startswith(inner, start):
        return None
    return len(said) - len(said[start + len(inner) :].lstrip())


def _text(message: Message) -> str:
    """Its content, if that is text."""
    content = message.get("content")
    if isinstance(content, list) and all(
        isinstance(part, dict) and isinstance(part.get("text"), str) for part in content
    ):
        return "".join(part["text"] for part in content)
    return content if isinstance(content, str) else ""


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


@dataclass(frozen=True)
class Nearest:
    """`turn`: the recorded prompt behind the match, or without one in front of the first reply,
    with which the request has most in common. `edit`: where the client changed history."""

    turn: Turn | None = None
    edit: Edit | None = None


def nearest(tree: SessionTree, match: Match, request: Asked) -> Nearest:
    """A call that only repeats an earlier one (a retry, best of n) changes nothing, nor does one
    that goes on behind a prompt that never got a reply."""
    if match.reply is None:
        return _same_first_request(tree, request) or _another_first_reply(tree, request)
    turns = match.reply.turns
    whole = [t for t in turns if t.key in request.keys[t.num_messages - 1 : t.num_messages]]
    if whole:
        turn = max(whole, key=lambda turn: turn.num_messages)
        goes_on = turn.num_messages < len(request.keys) and turn.replies
        return Nearest(turn, _edit_at(request, turn.num_messages) if goes_on else None)
    common = {turn.turn_id: _num_common(match, turn, request) for turn in turns[-MAX_COMPARED:]}
    if not common:
        return Nearest()
    turn = max(turns[-MAX_COMPARED:], key=lambda turn: common[turn.turn_id])
    at = match.num_messages + common[turn.turn_id]
    return Nearest(turn, _edit_at(request, min(at, len(request.keys) - 1)))


def _same_first_request(tree: SessionTree, request: Asked) -> Nearest | None:
    """Only in a session that the client names: without a name it begins another one."""
    if request.session is None or not request.keys:
        return None
    turns = tree.turns(request.scope, request.keys[-1])
    same = [t for t in turns if (t.root, t.session_id) == (request.root, request.session)]
    return Nearest(same[-1]) if same else None


def _another_first_reply(tree: SessionTree, request: Asked) -> Nearest:
    for i in _assistant_places(request):
        turns = [
            turn
            for turn in (tree.turns(request.scope, request.keys[i - 1]) if i else ())
            if request.root in (None, turn.root) and request.session in (None, turn.session_id)
        ]
        if turns:
            return Nearest(turns[-1], _edit_at(request, i) if turns[-1].replies else None)
    return Nearest()


def _num_common(match: Match, turn: Turn, request: Asked) -> int:
    """How many of the turn's own messages the request has, too."""
    assert match.reply is not None
    reply = msgspec.json.decode(match.reply.message)  # whose calls its results answer
    sent = message_prints([reply, *msgspec.json.decode(turn.messages)])[1:]
    new = request.prints[match.num_messages :]
    pairs = enumerate(zip(sent, new, strict=False))
    return next((i for i, (a, b) in pairs if a.loose != b.loose), min(len(sent), len(new)))


def _edit_at(request: Asked, i: int) -> Edit:
    return Edit(i, str(request.messages[i].get("role")))
