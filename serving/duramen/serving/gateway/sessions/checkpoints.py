"""Moves what is in the write-ahead log into the database, away from the event loop.

A checkpoint syncs the disk. So does the first commit after a complete one, because it starts the
log anew and syncs its header (walRestartHdr and sqlite3WalFrames in SQLite's wal.c). This thread
does both: behind a complete checkpoint it makes a commit of its own. `writing` is held meanwhile;
whoever writes must hold it too, and the event loop only tries to.
"""

import sqlite3
import threading
from pathlib import Path

from duramen.serving.gateway.sessions.schema import STEPS, code_of, connect

EVERY_S = 2.0
LONG_LOG_PAGES = 8192  # 32 MiB: writers that never rest are held up once, so that it starts anew


class Checkpoints:
    """Runs every `EVERY_S` seconds if `wrote` was called since. `failing`: why the last one did not
    work, or None; it is tried again."""

    def __init__(self, path: Path, writing: threading.Lock) -> None:
        self.failing: str | None = None
        self._path = path
        self._writing = writing
        self._wrote = False
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)
        self._thread.start()

    def wrote(self) -> None:
        self._wrote = True

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        db: sqlite3.Connection | None = None
        while not self._stopped.wait(EVERY_S):
            if not self._wrote:
                continue
            self._wrote = False
            try:
                db = db or connect(self._path)
                checkpoint(db, self._writing)
                self.failing = None
            except sqlite3.Error as error:
                self._wrote = True
                self.failing = f"cannot checkpoint {self._path}: {error} (code {code_of(error)})"
        if db is not None:
            db.close()


def checkpoint(
    db: sqlite3.Connection, writing: threading.Lock, long_log_pages: int = LONG_LOG_PAGES
) -> None:
    """One round: all pages that no writer is adding to, then the log's new start if it is due."""
    _, num_pages, num_moved = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    if num_pages > long_log_pages:
        with writing:
            db.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
            start_log(db)
    elif num_pages == num_moved:
        with writing:
            start_log(db)


def start_log(db: sqlite3.Connection) -> None:
    """A commit that changes nothing; it is the one that syncs the header of the new log."""
    db.execute(f"PRAGMA user_version={len(STEPS)}")
