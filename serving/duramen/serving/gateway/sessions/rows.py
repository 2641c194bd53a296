"""Turns and replies as rows.

A step is SQL with its values. It writes nothing where the row that it hangs on is missing, so half
a path never enters the file. Token ids and pieces are uint32 in the machine's byte order.
"""

from array import array

from duramen.serving.gateway.sessions.records import Reply, Turn

Step = tuple[str, dict[str, object]]

PUT_SESSION = """
    INSERT INTO sessions (tenant, scope, session_id, used_s)
    SELECT :tenant, :scope, :session_id, :used_s
    WHERE :parent IS NULL OR EXISTS (SELECT 1 FROM replies WHERE reply_id = :parent)
    ON CONFLICT (scope, session_id) DO UPDATE SET used_s = excluded.used_s
    WHERE tenant = excluded.tenant"""
PUT_TURN = """
    INSERT INTO turns (turn_id, session, scope, parent, key, root, num_messages, created_s, head,
        messages, token_ids, spans, hashes)
    SELECT :turn_id, session, scope, :parent, :key, :root, :num_messages, :created_s, :head,
        :messages, :token_ids, :spans, :hashes
    FROM sessions WHERE scope = :scope AND session_id = :session_id AND tenant = :tenant
        AND (:parent IS NULL OR EXISTS (SELECT 1 FROM replies WHERE reply_id = :parent))"""
PUT_RECORD = """
    INSERT OR REPLACE INTO records (turn_id, record)
    SELECT turn_id, :record FROM turns WHERE turn_id = :turn_id"""
PUT_REPLY = """
    INSERT INTO replies (reply_id, turn_id, session, scope, choice)
    SELECT :reply_id, turn_id, session, scope, :choice FROM turns WHERE turn_id = :turn_id"""
FINISH = """
    INSERT INTO replies (reply_id, turn_id, session, scope, choice, ended, key, finish, message,
        token_ids, hashes, pieces, text)
    SELECT :reply_id, turn_id, session, scope, :choice, 1, :key, :finish, :message, :token_ids,
        :hashes, :pieces, :text
    FROM turns WHERE turn_id = :turn_id
    ON CONFLICT (reply_id) DO UPDATE SET ended = 1, key = excluded.key, finish = excluded.finish,
        message = excluded.message, token_ids = excluded.token_ids, hashes = excluded.hashes,
        pieces = excluded.pieces, text = excluded.text"""
DROP_CHUNKS = "DELETE FROM chunks WHERE reply_id = :reply_id"
DROP_REPLY = "DELETE FROM replies WHERE reply_id = :reply_id"
USE = "UPDATE sessions SET used_s = :used_s WHERE session = :session"

FORGET = (
    "DELETE FROM chunks WHERE reply_id IN (SELECT reply_id FROM replies WHERE session = ?)",
    "DELETE FROM records WHERE turn_id IN (SELECT turn_id FROM turns WHERE session = ?)",
    "DELETE FROM replies WHERE session = ?",
    "DELETE FROM turns WHERE session = ?",
    "DELETE FROM sessions WHERE session = ?",
)


def as_blob(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def as_text(blob: bytes) -> str:
    return blob.decode("utf-8", "surrogatepass")


def turn_steps(turn: Turn, tenant: str, used_s: float) -> list[Step]:
    values: dict[str, object] = {
        "tenant": as_blob(tenant),
        "scope": turn.scope,
        "session_id": as_blob(turn.session_id),
        "used_s": used_s,
        "turn_id": turn.turn_id,
        "parent": None if turn.parent is None else turn.parent.reply_id,
        "key": turn.key,
        "root": turn.root,
        "num_messages": turn.num_messages,
        "created_s": turn.created_s,
        "head": turn.head,
        "messages": turn.messages,
        "token_ids": turn.token_ids.tobytes(),
        "spans": turn.spans,
        "hashes": turn.hashes,
    }
    steps: list[Step] = [(PUT_SESSION, values), (PUT_TURN, values)]
    return [*steps, record_step(turn)] if turn.record else steps


def record_step(turn: Turn) -> Step:
    return PUT_RECORD, {"turn_id": turn.turn_id, "record": turn.record}


def reply_step(reply: Reply) -> Step:
    return PUT_REPLY, {
        "reply_id": reply.reply_id,
        "turn_id": reply.turn.turn_id,
        "choice": reply.index,
    }


def finish_steps(reply: Reply) -> list[Step]:
    """Pieces and text are kept only where there is no message."""
    broken = not reply.message
    pieces = array("I", [number for piece in reply.pieces for number in piece] if broken else [])
    values: dict[str, object] = {
        "reply_id": reply.reply_id,
        "turn_id": reply.turn.turn_id,
        "choice": reply.index,
        "key": reply.key,
        "finish": as_blob(reply.finish),
        "message": reply.message,
        "token_ids": reply.token_ids.tobytes(),
        "hashes": reply.hashes,
        "pieces": pieces.tobytes(),
        "text": as_blob(reply.text if broken else ""),
    }
    return [(FINISH, values), (DROP_CHUNKS, values)]
