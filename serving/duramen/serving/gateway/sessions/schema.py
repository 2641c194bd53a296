"""The file that sessions are written to: who may read it, one gateway at a time, its schema."""

import fcntl
import os
import sqlite3
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from duramen.layout.errors import DuramenError

APPLICATION_ID = 0x4455524D  # "DURM", in the file's header: tells our files from other SQLite files
BUSY_TIMEOUT_S = 0.1  # only a foreign tool can hold the file; the event loop waits no longer

# Step i leads from schema i to i + 1; user_version holds the number of steps a file has seen.
# Text from clients is kept as UTF-8 blobs, so that lone surrogates survive. `seq` is the
# order of writing; `log` and `chunks`: see pieces.py.
STEPS: tuple[Sequence[str], ...] = (
    (
        """CREATE TABLE sessions (
            session INTEGER PRIMARY KEY, tenant BLOB NOT NULL, scope BLOB NOT NULL,
            session_id BLOB NOT NULL, used_s REAL NOT NULL, UNIQUE (scope, session_id))""",
        "CREATE INDEX sessions_of_tenant ON sessions (tenant, session_id)",
        "CREATE INDEX sessions_by_use ON sessions (used_s)",
        """CREATE TABLE turns (
            seq INTEGER PRIMARY KEY, turn_id INTEGER NOT NULL UNIQUE, session INTEGER NOT NULL,
            scope BLOB NOT NULL, parent INTEGER, key BLOB NOT NULL, root BLOB NOT NULL,
            num_messages INTEGER NOT NULL, created_s REAL NOT NULL, head BLOB NOT NULL,
            messages BLOB NOT NULL, token_ids BLOB NOT NULL, spans BLOB NOT NULL,
            hashes BLOB NOT NULL)""",
        "CREATE INDEX turns_of_session ON turns (session)",
        "CREATE INDEX turns_by_key ON turns (scope, key)",
        "CREATE TABLE records (turn_id INTEGER PRIMARY KEY, record BLOB NOT NULL)",
        """CREATE TABLE replies (
            seq INTEGER PRIMARY KEY, reply_id INTEGER NOT NULL UNIQUE, turn_id INTEGER NOT NULL,
            session INTEGER NOT NULL, scope BLOB NOT NULL, choice INTEGER NOT NULL,
            ended INTEGER NOT NULL DEFAULT 0, key BLOB NOT NULL DEFAULT x'',
            finish BLOB NOT NULL DEFAULT x'', message BLOB NOT NULL DEFAULT x'',
            token_ids BLOB NOT NULL DEFAULT x'', hashes BLOB NOT NULL DEFAULT x'',
            pieces BLOB NOT NULL DEFAULT x'', text BLOB NOT NULL DEFAULT x'')""",
        "CREATE INDEX replies_of_session ON replies (session)",
        "CREATE INDEX replies_by_key ON replies (scope, key)",
        "CREATE TABLE log (seq INTEGER PRIMARY KEY, pieces BLOB NOT NULL)",
        """CREATE TABLE chunks (
            seq INTEGER PRIMARY KEY, reply_id INTEGER NOT NULL, pieces BLOB NOT NULL)""",
        "CREATE INDEX chunks_of_reply ON chunks (reply_id)",
    ),
)

DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
STORAGE = DAMAGED | {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_READONLY,
}


def code_of(error: Exception) -> int:
    """SQLite's primary result code, 0 for any other error."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Everything inside is written together or not at all."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # SQLite has rolled back by itself after some errors
            db.execute("ROLLBACK")
        raise


def make_file(path: Path) -> None:
    """Makes the file and its folder where they are missing, for nobody else to read."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise DuramenError(f"the session store {path} is not a file: name another")
    finally:
        os.close(file)


def make_private(path: Path) -> None:
    """Takes the rights of others away. SQLite gives new -wal and -shm files the file's own mode."""
    os.chmod(path, 0o600)
    for beside in ("-wal", "-shm"):
        with suppress(FileNotFoundError):
            os.chmod(f"{path}{beside}", 0o600)


def take_lock(path: Path) -> int:
    """Descriptor that holds the store for this process; the kernel drops it when we are killed."""
    file = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        raise DuramenError(
            f"the session store {path} is in use by another gateway: stop that one, name another "
            "file, or run with --no-store"
        ) from None
    except BaseException:
        os.close(file)
        raise
    return file


def connect(path: Path) -> sqlite3.Connection:
    """WAL; synchronous NORMAL: see SqliteStore for what survives. No commit checkpoints."""
    db = sqlite3.connect(
        path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
    )
    try:
        db.execute("PRAGMA synchronous=NORMAL")
        db.execute("PRAGMA wal_autocheckpoint=0")
        db.execute("PRAGMA journal_size_limit=67108864")  # bytes the -wal file keeps after a burst
        db.execute("PRAGMA temp_store=MEMORY")  # no text of users in temporary files
        db.execute("PRAGMA cache_size=-16384")  # KiB: a turn of 100k tokens is not spilled
    except BaseException:
        db.close()
        raise
    return db


def check(db: sqlite3.Connection, path: Path, num_steps: int = len(STEPS)) -> int:
    """The file's schema, 0 for a new one. Raises DuramenError for a newer file or another's."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (num_tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != APPLICATION_ID and (application or version or num_tables):
        raise DuramenError(
            f"{path} is an SQLite file that Duramen did not write: name another for the sessions"
        )
    if version > num_steps:
        raise DuramenError(
            f"the session store {path} has schema {version}, this Duramen knows up to "
            f"{num_steps}: update Duramen, or name another file"
        )
    return int(version)


def migrate(
    db: sqlite3.Connection,
    path: Path,
    version: int,
    steps: Sequence[Sequence[str]] = STEPS,
) -> None:
    """From `version` to the schema of `steps`, all or nothing.

    Raises DuramenError for a file system without WAL.
    """
    (mode,) = db.execute("PRAGMA journal_mode=WAL").fetchone()
    if mode != "wal":
        raise DuramenError(
            f"the file system of {path} has no shared memory for SQLite's WAL: name a file on a "
            "local disk, or run with --no-store"
        )
    if version == len(steps):
        return
    with transaction(db):
        for statement in (statement for step in steps[version:] for statement in step):
            db.execute(statement)
        db.execute(f"PRAGMA application_id={APPLICATION_ID}")
        db.execute(f"PRAGMA user_version={len(steps)}")


def cannot_open(path: Path, error: OSError | sqlite3.Error) -> DuramenError:
    if isinstance(error, sqlite3.Error) and code_of(error) in DAMAGED:
        return DuramenError(
            f"the session store {path} is damaged ({error}): move it and {path.name}-wal away, "
            "then start again"
        )
    why = error.strerror if isinstance(error, OSError) else error
    return DuramenError(
        f"cannot open the session store {path}: {why}: make it writable, name another file, or run "
        "with --no-store"
    )
