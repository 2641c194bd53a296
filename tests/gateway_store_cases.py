"""Small sessions for the store's tests, and what of them must come back."""

import itertools
from array import array
from collections.abc import Sequence
from typing import Any

from duramen.serving.gateway.sessions.records import Reply, Turn
from duramen.serving.gateway.sessions.store import SqliteStore

ALICE, BOB = b"alice's model...", b"bob's model....."
numbers = itertools.count(1)


def key(name: str) -> bytes:
    return name.encode().ljust(16, b".")


def new_turn(
    session_id: str = "s", parent: Reply | None = None, name: str = "t", scope: bytes = ALICE
) -> Turn:
    number = next(numbers)
    turn = Turn(
        turn_id=number * 7919 % 2**63,  # ids do not ascend
        session_id=session_id,
        scope=scope,
        parent=parent,
        key=key(name),
        root=b"root............",
        head=b"" if parent else b"{}",
        messages=b"[%d]" % number,
        num_messages=number,
        token_ids=array("I", [number, 2**32 - 1]),
        spans=b"spans",
        hashes=b"\x00" * 16,
        created_s=1.5,
    )
    if parent is not None:
        parent.turns.append(turn)
    return turn


def new_reply(turn: Turn) -> Reply:
    reply = Reply((2**63 - 1) - next(numbers), turn, len(turn.replies))
    turn.replies.append(reply)
    return reply


def add_piece(store: SqliteStore, reply: Reply, token_ids: Sequence[int], content: str) -> None:
    """As the gateway does it: the records change first."""
    reply.token_ids.extend(token_ids)
    reply.text += content
    reply.pieces.append((len(reply.token_ids), len(reply.text)))
    store.add_piece(reply, token_ids, content)


def finish(store: SqliteStore, reply: Reply, name: str = "r", message: bytes = b"{}") -> None:
    if message:
        reply.key, reply.finish, reply.message = key(name), "stop", message
        reply.pieces, reply.text = [], ""
    reply.hashes = b"hashes"
    store.finish(reply)


def put_call(
    store: SqliteStore, session_id: str = "s", parent: Reply | None = None, name: str = "c"
) -> Reply:
    """A turn, and a finished reply behind it. Keys: NAME-t and NAME-r."""
    turn = new_turn(session_id, parent, f"{name}-t")
    store.put_turn(turn, "alice")
    reply = new_reply(turn)
    store.put_reply(reply)
    add_piece(store, reply, [1, 2], "hi")
    finish(store, reply, f"{name}-r")
    return reply


def plain(turns: Sequence[Turn]) -> list[Any]:
    """Everything in a tree, with no objects of ours in it."""
    return [
        (
            turn.turn_id, turn.session_id, turn.scope, turn.parent and turn.parent.reply_id,
            turn.key, turn.root, turn.head, turn.messages, turn.num_messages,
            turn.token_ids.tolist(), turn.spans, turn.hashes, turn.record, turn.created_s,
            [
                (
                    reply.reply_id, reply.turn.turn_id, reply.index, reply.key,
                    reply.token_ids.tolist(), reply.hashes, reply.message, reply.finish,
                    reply.pieces, reply.text, plain(reply.turns),
                )
                for reply in turn.replies
            ],
        )
        for turn in turns
    ]  # fmt: skip
