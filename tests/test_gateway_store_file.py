"""The store's file: nobody else's eyes, one gateway at a time, its schema, its checkpoints."""

import os
import shutil
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from gateway_store_cases import ALICE, put_call

from duramen.layout.errors import DuramenError
from duramen.serving.gateway.sessions import checkpoints, schema
from duramen.serving.gateway.sessions.store import SqliteStore

SECRET = 0o600


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


@pytest.fixture
def open_to_all() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}


@pytest.mark.usefixtures("open_to_all")
def test_all_its_files_are_private_from_the_start(tmp_path: Path) -> None:
    path = tmp_path / "made" / "by us" / "sessions.db"
    schema.make_file(path)
    assert modes(path.parent) == {"sessions.db": SECRET}
    store = SqliteStore(path)
    put_call(store)
    store.load("s", ALICE)
    names = [f"sessions.db{end}" for end in ("", "-wal", "-shm", ".lock")]
    assert modes(path.parent) == dict.fromkeys(names, SECRET)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    store.close()


@pytest.mark.usefixtures("open_to_all")
def test_files_that_others_could_read_are_taken_from_them(path: Path) -> None:
    store = SqliteStore(path)
    put_call(store)
    store.load("s", ALICE)
    for end in ("", "-wal", "-shm"):
        copy = Path(f"{path.parent / 'copy.db'}{end}")  # as after a kill
        shutil.copyfile(f"{path}{end}", copy)
        copy.chmod(0o666)
    store.close()
    copied = SqliteStore(path.parent / "copy.db")
    assert len(copied.load("s", ALICE)) == 1
    assert {mode for name, mode in modes(path.parent).items() if "copy" in name} == {SECRET}
    copied.close()


def test_a_folder_that_was_there_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    SqliteStore(tmp_path / "sessions.db").close()
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


def test_after_close_all_is_in_the_one_file(path: Path) -> None:
    store = SqliteStore(path)
    put_call(store)
    store.close()
    store.close()
    assert set(modes(path.parent)) == {"sessions.db", "sessions.db.lock"}
    again = SqliteStore(path)
    assert len(again.load("s", ALICE)) == 1
    again.close()


def test_one_gateway_at_a_time(path: Path) -> None:
    store = SqliteStore(path)
    path.with_name("link.db").symlink_to(path)
    for same in (path, path.with_name("link.db")):
        with pytest.raises(DuramenError, match="in use by another gateway: stop that one"):
            SqliteStore(same)
    store.close()
    SqliteStore(path).close()


def newer(path: Path) -> None:
    SqliteStore(path).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version=99")


def of_another(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE bookmarks (url)")


def of_another_that_is_empty(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version=1")


def no_sqlite(path: Path) -> None:
    path.write_text("hello " * 1000)


def short(path: Path) -> None:
    path.write_bytes(b"SQLite")


def broken_schema(path: Path) -> None:
    SqliteStore(path).close()
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 3000)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (newer, "has schema 99, this Duramen knows up to 1: update Duramen, or name another file"),
        (of_another, "Duramen did not write: name another"),
        (of_another_that_is_empty, "Duramen did not write: name another"),
        (no_sqlite, "is damaged .*: move it and sessions.db-wal away, then start again"),
        (short, "is damaged .*: move it and sessions.db-wal away, then start again"),
        (broken_schema, "is damaged .*: move it and sessions.db-wal away, then start again"),
        (Path.mkdir, "cannot open the session store .*Is a directory"),
        (os.mkfifo, "is not a file: name another"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line_and_left_as_it_is(
    path: Path, spoil: Callable[[Path], None], message: str
) -> None:
    spoil(path)
    if path.is_file():
        path.chmod(0o644)
    content = path.read_bytes() if path.is_file() else None
    for _ in range(2):  # the lock is given back
        with pytest.raises(DuramenError, match=message) as refused:
            SqliteStore(path)
        assert "\n" not in str(refused.value)
        assert str(path) in str(refused.value)
    if content is not None:
        assert (path.read_bytes(), modes(path.parent)["sessions.db"]) == (content, 0o644)


def test_a_path_through_a_file_is_refused(path: Path) -> None:
    path.write_text("")
    with pytest.raises(DuramenError, match=r"cannot open the session store .*name another file"):
        SqliteStore(path / "sessions.db")


def test_an_empty_file_is_a_new_store(path: Path) -> None:
    path.write_text("")
    store = SqliteStore(path)
    put_call(store)
    assert len(store.load("s", ALICE)) == 1
    store.close()


def test_an_older_file_is_migrated_all_or_nothing(path: Path) -> None:
    store = SqliteStore(path)
    put_call(store)
    store.close()
    made_up = "ALTER TABLE turns ADD COLUMN made_up INTEGER DEFAULT 7"
    with closing(schema.connect(path)) as db:
        with pytest.raises(sqlite3.OperationalError, match="syntax error"):
            schema.migrate(db, path, 1, (*schema.STEPS, (made_up, "nonsense")))
        assert schema.check(db, path) == 1
        schema.migrate(db, path, 1, (*schema.STEPS, (made_up,)))
        assert schema.check(db, path, 2) == 2
        assert db.execute("SELECT made_up FROM turns").fetchall() == [(7,)]
    with pytest.raises(DuramenError, match="has schema 2, this Duramen knows up to 1"):
        SqliteStore(path)


@pytest.mark.parametrize("long_log_pages", [checkpoints.LONG_LOG_PAGES, 0])
def test_a_checkpoint_moves_all_and_starts_the_log_anew(path: Path, long_log_pages: int) -> None:
    store = SqliteStore(path)
    put_call(store)
    store.load("s", ALICE)
    log = Path(f"{path}-wal")
    first_salt = log.read_bytes()[16:24]
    with closing(schema.connect(path)) as db:
        checkpoints.checkpoint(db, store._writing, long_log_pages)
    assert log.read_bytes()[16:24] != first_salt  # its header was written, by the checkpoint
    shutil.copyfile(path, path.with_name("copy.db"))  # without the log
    store.close()
    copied = SqliteStore(path.with_name("copy.db"))
    assert len(copied.load("s", ALICE)) == 1
    copied.close()


def test_the_thread_makes_checkpoints_only_where_something_was_written(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "EVERY_S", 0.001)
    ran = threading.Semaphore(0)
    monkeypatch.setattr(checkpoints, "checkpoint", lambda db, writing: ran.release())
    store = SqliteStore(path)
    time.sleep(0.05)
    assert not ran.acquire(blocking=False)
    put_call(store)
    store.load("s", ALICE)
    assert ran.acquire(timeout=60)
    time.sleep(0.05)
    assert not ran.acquire(blocking=False)
    store.close()


def test_a_checkpoint_that_fails_is_told_and_tried_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "EVERY_S", 0.001)
    ran = threading.Semaphore(0)
    failures = [sqlite3.OperationalError("disk I/O error")]

    def checkpoint(db: sqlite3.Connection, writing: threading.Lock) -> None:
        ran.release()
        if failures:
            raise failures[0]

    monkeypatch.setattr(checkpoints, "checkpoint", checkpoint)
    store = SqliteStore(path)
    put_call(store)
    store.find(ALICE, [])
    for _ in range(3):
        assert ran.acquire(timeout=60)
    put_call(store)
    store.find(ALICE, [])
    assert store.failing == f"cannot checkpoint {path}: disk I/O error (code 0)"
    failures.clear()
    for _ in range(3):
        put_call(store)
        store.find(ALICE, [])
        assert ran.acquire(timeout=60)
    time.sleep(0.05)
    put_call(store)
    store.find(ALICE, [])
    assert store.failing is None
    store.close()
