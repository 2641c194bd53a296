"""Sessions in an SQLite file, written by group commit on the event loop's own thread."""

import asyncio
import os
import sqlite3
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from duramen.layout.errors import DuramenError
from duramen.serving.gateway.sessions import loading, rows
from duramen.serving.gateway.sessions.batch import Batch
from duramen.serving.gateway.sessions.checkpoints import Checkpoints
from duramen.serving.gateway.sessions.pieces import fold
from duramen.serving.gateway.sessions.records import Key, Reply, Scope, Turn
from duramen.serving.gateway.sessions.schema import (
    STORAGE,
    cannot_open,
    check,
    code_of,
    connect,
    make_file,
    make_private,
    migrate,
    take_lock,
    transaction,
)

FOLD_AT_PIECES = 4096
EXPIRE_AT_ONCE = 8
RETRY_S = 0.001  # while a checkpoint starts the log anew


class SqliteStore:
    """A Store in one file of mode 0600, for one gateway at a time. Not for several threads.

    Nothing is written before somebody awaits `durable`; then all that was put in this turn of the
    event loop goes into one transaction, and all who wait are woken. Reading writes it first.

    The file is in WAL mode with synchronous=NORMAL: a commit hands its pages to the kernel and does
    not wait for the disk. What `durable` has confirmed survives a kill -9 of this process; a power
    cut can lose the last seconds, but whole commits from the end backwards: it leaves no damage.
    Syncing is done by checkpoints, in a thread of their own.

    A commit that fails (disk full, I/O error) drops what it held. Replies that it would have added
    to are deleted by the next commit that works, and what hangs on something that is not in the
    file is not written, so a path is always whole up to its end. A reply that ends later is written
    as a whole. `clock` is the wall clock; it may jump.

    Raises DuramenError if the file cannot be opened, is damaged, newer, in use or another's.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self.failing: str | None = None
        self._clock = clock
        self._batch = Batch()
        self._waiting: list[asyncio.Future[bool]] = []
        self._lost: set[int] = set()  # reply ids of dropped batches
        self._num_logged = FOLD_AT_PIECES  # what the last gateway left is folded at once
        self._writing = threading.Lock()
        with ExitStack() as stack:
            try:
                self._path = path = path.expanduser().resolve()
                make_file(path)
                stack.callback(os.close, take_lock(path))
                self._db = stack.enter_context(closing(connect(path)))
                version = check(self._db, path)
                make_private(path)
                migrate(self._db, path, version)
            except (OSError, sqlite3.Error) as error:
                raise cannot_open(path, error) from error
            stack.callback(self._last_checkpoint)
            self._checkpoints = Checkpoints(path, self._writing)
            stack.callback(self._checkpoints.stop)
            self._open = stack.pop_all()

    def put_turn(self, turn: Turn, tenant: str) -> None:
        parent = turn.parent
        assert parent is None or (
            (parent.turn.session_id, parent.turn.scope) == (turn.session_id, turn.scope)
        ), "a turn is of its parent's session"
        self._batch.steps += rows.turn_steps(turn, tenant, self._clock())

    def put_record(self, turn: Turn) -> None:
        self._batch.steps.append(rows.record_step(turn))

    def put_reply(self, reply: Reply) -> None:
        self._batch.steps.append(rows.reply_step(reply))

    def add_piece(self, reply: Reply, token_ids: Sequence[int], content: str) -> None:
        piece = (reply.reply_id, array("I", token_ids).tobytes(), rows.as_blob(content))
        self._batch.pieces.append(piece)
        self._batch.reply_ids.add(reply.reply_id)

    def finish(self, reply: Reply) -> None:
        """A reply without a message keeps its own `pieces` and `text`, too."""
        self._batch.steps += rows.finish_steps(reply)
        self._batch.reply_ids.add(reply.reply_id)

    async def durable(self) -> bool:
        """False also if the row that something hangs on is not in the file."""
        if not self._batch:
            return self.failing is None
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._tick, loop)
        waiter: asyncio.Future[bool] = loop.create_future()
        self._waiting.append(waiter)
        return await waiter

    def find(self, scope: Scope, keys: Sequence[Key]) -> str | None:
        """Of several sessions at that place the one that was used last (see loading.TIES)."""
        with self._reading():
            return loading.find_session(self._db, scope, keys)
        return None

    def load(self, session_id: str, scope: Scope) -> list[Turn]:
        """Replies that broke off, or still run, have what was put of them. Counts as a use."""
        with self._reading():
            found = self._db.execute(
                "SELECT session FROM sessions WHERE scope = ? AND session_id = ?",
                (scope, rows.as_blob(session_id)),
            ).fetchone()
            if found is None:
                return []
            turns = loading.load_session(self._db, found[0], session_id)
            self._batch.steps.append((rows.USE, {"session": found[0], "used_s": self._clock()}))
            return turns
        return []

    def list_sessions(self, tenant: str) -> list[tuple[str, float, int]]:
        with self._reading():
            found = self._db.execute(
                "SELECT session_id, used_s, (SELECT count(*) FROM turns"
                " WHERE turns.session = sessions.session)"
                " FROM sessions WHERE tenant = ? ORDER BY used_s DESC, session DESC",
                (rows.as_blob(tenant),),
            ).fetchall()
            return [(rows.as_text(name), used_s, num_turns) for name, used_s, num_turns in found]
        return []

    def delete(self, session_id: str, tenant: str) -> bool:
        """The tenant's sessions of that name, of every model; False if there is none.

        Raises DuramenError if the file cannot be written: nothing is forgotten then.
        """
        sql = "SELECT session FROM sessions WHERE tenant = ? AND session_id = ?"
        return self._forget(sql, (rows.as_blob(tenant), rows.as_blob(session_id))) > 0

    def expire(self, before_s: float) -> int:
        """At most EXPIRE_AT_ONCE of them, the oldest first, because this runs on the event loop:
        call it again while it returns that many. 0 if the file cannot be written."""
        sql = "SELECT session FROM sessions WHERE used_s < ? ORDER BY used_s LIMIT ?"
        try:
            return self._forget(sql, (before_s, EXPIRE_AT_ONCE))
        except DuramenError:  # `failing` has it
            return 0

    def close(self) -> None:
        """Writes what was put and moves all of it into the one file. A second call does nothing."""
        self._flush()
        self._open.close()

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._writing.acquire(blocking=False):
            loop.call_later(RETRY_S, self._tick, loop)
            return
        try:
            self._commit()
        finally:
            self._writing.release()

    def _flush(self) -> None:
        if self._batch:
            with self._writing:
                self._commit()

    def _commit(self) -> None:
        """Writes the batch and wakes who waits, whatever happens."""
        batch, self._batch = self._batch, Batch()
        waiting, self._waiting = self._waiting, []
        try:
            written = self._write(batch)
        except BaseException as error:
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_exception(error)
            raise
        for waiter in waiting:
            if not waiter.done():  # its caller was cancelled
                waiter.set_result(written)

    def _write(self, batch: Batch) -> bool:
        if not batch:
            return self.failing is None
        try:
            with transaction(self._db):
                for reply_id in self._lost:
                    for drop in (rows.DROP_REPLY, rows.DROP_CHUNKS):
                        self._db.execute(drop, {"reply_id": reply_id})
                complete = batch.write(self._db)
                num_logged = self._num_logged + len(batch.pieces)
                if num_logged >= FOLD_AT_PIECES:
                    fold(self._db)
                    num_logged = 0
        except Exception as error:
            self._lost |= batch.reply_ids
            self._fails("write", error)
            return False
        self._lost.clear()
        self._num_logged = num_logged
        self._checkpoints.wrote()
        self.failing = self._checkpoints.failing
        return complete

    def _forget(self, sql: str, values: tuple[object, ...]) -> int:
        self._flush()
        try:
            with self._writing, transaction(self._db):
                found = self._db.execute(sql, values).fetchall()
                if found:
                    fold(self._db)
                for session in found:
                    for forget in rows.FORGET:
                        self._db.execute(forget, session)
        except sqlite3.Error as error:
            self._fails("delete from", error)
            raise DuramenError(f"nothing was forgotten: {self.failing}") from error
        if found:
            self._checkpoints.wrote()
        return len(found)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Ends quietly where the file cannot be read: the session is unknown then."""
        self._flush()
        try:
            yield
        except sqlite3.Error as error:
            self._fails("read", error)

    def _fails(self, verb: str, error: Exception) -> None:
        """Raises `error` again if it is a bug of ours."""
        if code_of(error) not in STORAGE:
            raise error
        self.failing = (
            f"cannot {verb} the session store {self._path}: {error}; "
            "conversations are kept in memory only"
        )

    def _last_checkpoint(self) -> None:
        with suppress(sqlite3.OperationalError):  # the next start does it
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
