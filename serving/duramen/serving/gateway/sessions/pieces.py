"""What running replies have got so far: one log row for each commit, however many replies run.

    log      a row for each commit, with pieces of many replies     written at every commit
    chunks   rows of one reply's pieces                             the log is folded into them
    replies  the row of a reply that has ended has all of it        its log and chunks are void

So each piece is written three times at most, and a commit touches a page or two.
"""

import sqlite3
from array import array
from collections.abc import Sequence

import msgspec

from duramen.serving.gateway.sessions.rows import as_text

LogPiece = tuple[int, bytes, bytes]  # reply id, token ids, content
Piece = tuple[bytes, bytes]  # token ids, content

LOG = msgspec.msgpack.Decoder(list[LogPiece])
CHUNK = msgspec.msgpack.Decoder(list[Piece])

NUM_REPLIES = "SELECT count(*) FROM json_each(?) JOIN replies ON reply_id = value"
ADD_CHUNK = """
    INSERT INTO chunks (reply_id, pieces)
    SELECT reply_id, :pieces FROM replies WHERE reply_id = :reply_id AND NOT ended"""
CHUNKS = """
    SELECT reply_id, pieces FROM chunks WHERE reply_id IN (
        SELECT reply_id FROM replies WHERE session = ? AND NOT ended) ORDER BY seq"""


def add_to_log(db: sqlite3.Connection, pieces: Sequence[LogPiece]) -> bool:
    """False if one of the replies is not in the file: its pieces will never be read."""
    db.execute("INSERT INTO log (pieces) VALUES (?)", (msgspec.msgpack.encode(pieces),))
    reply_ids = {reply_id for reply_id, _, _ in pieces}
    (num_known,) = db.execute(NUM_REPLIES, (msgspec.json.encode(reply_ids),)).fetchone()
    return bool(num_known == len(reply_ids))


def read_log(db: sqlite3.Connection) -> dict[int, list[Piece]]:
    """By reply, also of replies that have ended."""
    found: dict[int, list[Piece]] = {}
    for (pieces,) in db.execute("SELECT pieces FROM log ORDER BY seq"):
        for reply_id, token_ids, content in LOG.decode(pieces):
            found.setdefault(reply_id, []).append((token_ids, content))
    return found


def fold(db: sqlite3.Connection) -> None:
    """Moves the log into chunks of the replies that still run, and empties it."""
    for reply_id, pieces in read_log(db).items():
        values = {"reply_id": reply_id, "pieces": msgspec.msgpack.encode(pieces)}
        db.execute(ADD_CHUNK, values)
    db.execute("DELETE FROM log")


def running(db: sqlite3.Connection, session: int) -> dict[int, list[Piece]]:
    """All pieces of the session's replies that have not ended; void ones of others may be there."""
    found: dict[int, list[Piece]] = {}
    for reply_id, pieces in db.execute(CHUNKS, (session,)):
        found.setdefault(reply_id, []).extend(CHUNK.decode(pieces))
    for reply_id, logged in read_log(db).items():
        found.setdefault(reply_id, []).extend(logged)
    return found


def joined(pieces: Sequence[Piece]) -> tuple["array[int]", list[tuple[int, int]], str]:
    """Ids, a Reply's `pieces`, and text."""
    token_ids = array("I")
    so_far = []
    num_characters = 0
    for ids, content in pieces:
        token_ids.frombytes(ids)
        num_characters += len(as_text(content))
        so_far.append((len(token_ids), num_characters))
    return token_ids, so_far, "".join(as_text(content) for _, content in pieces)
