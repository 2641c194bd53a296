"""Sessions from their rows: found by key, and read as a tree."""

import sqlite3
from array import array
from collections.abc import Sequence

from duramen.serving.gateway.sessions.pieces import joined, running
from duramen.serving.gateway.sessions.records import Key, Reply, Scope, Turn
from duramen.serving.gateway.sessions.rows import as_text

TIES = 64  # sessions at one place that are compared by use, the newest of them: find stays fast

LONGEST = """
    WITH RECURSIVE places (n) AS (
        VALUES (length(:keys) / 16 - 1) UNION ALL SELECT n - 1 FROM places WHERE n > 0)
    SELECT substr(:keys, n * 16 + 1, 16) AS place FROM places WHERE n >= 0 AND (
        EXISTS (SELECT 1 FROM turns WHERE scope = :scope AND key = place)
        OR EXISTS (SELECT 1 FROM replies WHERE scope = :scope AND key = place)) LIMIT 1"""
MOST_RECENT = """
    SELECT session_id FROM sessions WHERE session IN (
        SELECT * FROM (SELECT session FROM turns WHERE scope = :scope AND key = :key
            ORDER BY seq DESC LIMIT :ties)
        UNION SELECT * FROM (SELECT session FROM replies WHERE scope = :scope AND key = :key
            ORDER BY seq DESC LIMIT :ties))
    ORDER BY used_s DESC, session DESC LIMIT 1"""


def find_session(db: sqlite3.Connection, scope: Scope, keys: Sequence[Key]) -> str | None:
    """See Store.find. Among more than TIES sessions at one place only the newest are compared."""
    joined = b"".join(keys)
    assert len(joined) == 16 * len(keys), "a key has 16 bytes"
    longest = db.execute(LONGEST, {"keys": joined, "scope": scope}).fetchone()
    if longest is None:
        return None
    values = {"scope": scope, "key": longest[0], "ties": TIES}
    return as_text(db.execute(MOST_RECENT, values).fetchone()[0])


def load_session(db: sqlite3.Connection, session: int, session_id: str) -> list[Turn]:
    """First turns, in the order in which they were put; so are the turns and replies behind."""
    turns: dict[int, Turn] = {}
    parents: dict[int, int | None] = {}
    for turn_id, scope, parent, key, root, num_messages, created_s, *blobs in db.execute(
        "SELECT turn_id, scope, parent, key, root, num_messages, created_s, head, messages,"
        " token_ids, spans, hashes, record FROM turns LEFT JOIN records USING (turn_id)"
        " WHERE session = ? ORDER BY seq",
        (session,),
    ):
        head, messages, token_ids, spans, hashes, record = blobs
        turns[turn_id] = Turn(
            turn_id, session_id, scope, None, key, root, head, messages, num_messages,
            array("I", token_ids), spans, hashes, record or b"", created_s,
        )  # fmt: skip
        parents[turn_id] = parent
    replies = load_replies(db, session, turns)
    for turn_id, parent in parents.items():
        if parent in replies:
            turns[turn_id].parent = replies[parent]
            replies[parent].turns.append(turns[turn_id])
    return [turns[turn_id] for turn_id, parent in parents.items() if parent is None]


def load_replies(
    db: sqlite3.Connection, session: int, turns: dict[int, Turn]
) -> dict[int | None, Reply]:
    """By id; each is hung behind its turn."""
    replies: dict[int | None, Reply] = {}
    is_running: set[int] = set()
    for reply_id, turn_id, choice, ended, key, finish, message, *blobs in db.execute(
        "SELECT reply_id, turn_id, choice, ended, key, finish, message, token_ids, hashes, pieces,"
        " text FROM replies WHERE session = ? ORDER BY seq",
        (session,),
    ):
        token_ids, hashes, pieces, text = blobs
        numbers = array("I", pieces)
        replies[reply_id] = reply = Reply(
            reply_id, turns[turn_id], choice, key, array("I", token_ids), hashes, message,
            as_text(finish), list(zip(numbers[::2], numbers[1::2], strict=True)), as_text(text),
        )  # fmt: skip
        reply.turn.replies.append(reply)
        if not ended:
            is_running.add(reply_id)
    added = running(db, session) if is_running else {}
    for reply_id in is_running & added.keys():
        reply = replies[reply_id]
        reply.token_ids, reply.pieces, reply.text = joined(added[reply_id])
    return replies
