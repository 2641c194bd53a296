"""What the store keeps when its process is killed, and when the disk takes no more."""

import asyncio
import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from gateway_store_cases import (
    ALICE,
    add_piece,
    finish,
    key,
    new_reply,
    new_turn,
    plain,
    put_call,
)

from duramen.layout.errors import DuramenError
from duramen.serving.gateway.sessions.records import Reply, walk
from duramen.serving.gateway.sessions.store import SqliteStore

STREAMS = """
import asyncio, os, sys
from pathlib import Path
import gateway_store_cases as cases
from duramen.serving.gateway.sessions import checkpoints, store as store_module

checkpoints.EVERY_S, store_module.FOLD_AT_PIECES = 0.005, 16
run = int(sys.argv[2])
cases.numbers = iter(range((run + 1) * 10**6, 10**9))

async def stream(store, number):
    parent = None
    while True:
        turn = cases.new_turn(f"s{run}-{number}", parent)
        store.put_turn(turn, "alice")
        reply = parent = cases.new_reply(turn)
        store.put_reply(reply)
        for piece in range(20):
            cases.add_piece(store, reply, [piece, reply.reply_id % 1000], f"{piece} ")
            if piece == 19:
                cases.finish(store, reply)
            assert await store.durable()
            os.write(1, f"{reply.reply_id} {piece}\\n".encode())

async def streams():
    store = store_module.SqliteStore(Path(sys.argv[1]))
    await asyncio.gather(*(stream(store, number) for number in range(8)))

asyncio.run(streams())
"""

FULL_DISK = """
import asyncio, resource, sys
from pathlib import Path
from gateway_store_cases import put_call
from duramen.serving.gateway.sessions.store import SqliteStore

def limit(num_bytes):
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, resource.RLIM_INFINITY))

async def fill():
    store = SqliteStore(Path(sys.argv[1]))
    limit(300_000)
    parents = [None] * 4
    while await store.durable():
        parents = [put_call(store, f"s{n}", parent) for n, parent in enumerate(parents)]
    assert store.failing.startswith(f"cannot write the session store {sys.argv[1]}: ")
    lost = [put_call(store, f"s{n}", parent) for n, parent in enumerate(parents)]
    assert not await store.durable()
    limit(resource.RLIM_INFINITY)
    new = put_call(store, "new")
    assert await store.durable()
    assert store.failing is None
    lost = [put_call(store, f"s{n}", parent) for n, parent in enumerate(lost)]
    assert not await store.durable()
    assert store.failing is None
    store.close()

asyncio.run(fill())
"""


def child(source: str, *arguments: object) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", source, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    )


def replies_of(store: SqliteStore, session_id: str) -> list[Reply]:
    turns = [turn for first in store.load(session_id, ALICE) for turn in walk(first)]
    return [reply for turn in turns for reply in turn.replies]


@pytest.mark.parametrize("run", range(12))
def test_what_durable_has_confirmed_survives_a_kill(tmp_path: Path, run: int) -> None:
    path = tmp_path / "sessions.db"
    confirmed: Counter[int] = Counter()
    wait_for = random.Random(run).randrange(1, 3000)
    with child(STREAMS, path, run) as streams:
        assert streams.stdout is not None
        for _ in range(wait_for):
            reply_id, _ = next(streams.stdout).split()
            confirmed[int(reply_id)] += 1
        streams.send_signal(signal.SIGKILL)
        for line in streams.stdout:  # what was still in the pipe
            if line.endswith("\n"):
                confirmed[int(line.split()[0])] += 1
    store = SqliteStore(path)
    replies = {r.reply_id: r for n in range(8) for r in replies_of(store, f"s{run}-{n}")}
    assert confirmed.keys() <= replies.keys()
    for reply in replies.values():
        num_pieces = len(reply.token_ids) // 2
        assert num_pieces >= confirmed[reply.reply_id]
        assert reply.token_ids.tolist() == [
            token_id for piece in range(num_pieces) for token_id in (piece, reply.reply_id % 1000)
        ]
        if num_pieces == 20:
            assert (reply.finish, reply.text, reply.pieces) == ("stop", "", [])
        else:
            assert (reply.finish, reply.message, reply.turns) == ("", b"", [])
            assert reply.text == "".join(f"{piece} " for piece in range(num_pieces))
            assert reply.pieces[-1:] == [(2 * num_pieces, len(reply.text))][: len(reply.pieces)]
    put_call(store, "next")
    assert len(store.load("next", ALICE)) == 1
    store.close()


def test_a_file_that_can_grow_no_more(tmp_path: Path) -> None:
    with child(FULL_DISK, tmp_path / "sessions.db") as fill:
        assert fill.wait(60) == 0
    store = SqliteStore(tmp_path / "sessions.db")
    assert len(store.load("new", ALICE)) == 1
    for number in range(4):
        replies = replies_of(store, f"s{number}")
        assert len(replies) > 3
        assert {(r.finish, r.message, tuple(r.token_ids)) for r in replies} == {
            ("stop", b"{}", (1, 2))
        }
        assert [len(r.turns) for r in replies] == [1] * (len(replies) - 1) + [0]
    assert store._db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    store.close()


def fill_up(store: SqliteStore) -> None:
    """SQLite's own "database or disk is full" for everything that needs a new page."""
    store._db.execute("PRAGMA max_page_count=1")  # becomes the pages it has


def make_room(store: SqliteStore) -> None:
    store._db.execute("PRAGMA max_page_count=1000000")


async def test_a_full_disk_loses_what_was_put_and_never_half_a_path(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "sessions.db")
    first = put_call(store)
    turn = new_turn(parent=first)
    store.put_turn(turn, "alice")
    running, other = new_reply(turn), new_reply(turn)
    store.put_reply(running)
    store.put_reply(other)
    add_piece(store, running, [1], "a")
    add_piece(store, other, [1], "a")
    assert await store.durable()

    fill_up(store)
    add_piece(store, running, [2], "b" * 10000)
    assert not await store.durable()
    assert store.failing == (
        f"cannot write the session store {tmp_path / 'sessions.db'}: database or disk is full; "
        "conversations are kept in memory only"
    )
    assert not await store.durable()  # nothing new, and still not written

    make_room(store)
    add_piece(store, running, [3], "c")  # a gap lies before it
    add_piece(store, other, [3], "c")
    assert not await store.durable()
    assert store.failing is None
    turn.replies.remove(running)
    assert plain(store.load("s", ALICE)) == plain([first.turn])

    finish(store, running)  # all of it again
    assert await store.durable()
    turn.replies.append(running)
    put_call(store, "another")
    assert await store.durable()
    assert plain(store.load("s", ALICE)) == plain([first.turn])
    store.close()


async def test_a_turn_that_was_lost_takes_what_follows_with_it(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "sessions.db")
    first = put_call(store)
    assert await store.durable()
    fill_up(store)
    lost = new_turn(parent=first)
    lost.messages = b"m" * 10000
    store.put_turn(lost, "alice")
    assert not await store.durable()
    make_room(store)
    reply = new_reply(lost)
    store.put_reply(reply)
    add_piece(store, reply, [1], "a")
    finish(store, reply)
    assert not await store.durable()
    store.put_turn(new_turn(parent=reply, name="behind"), "alice")
    assert not await store.durable()
    assert store.find(ALICE, [key("behind")]) is None
    first.turns.clear()
    assert plain(store.load("s", ALICE)) == plain([first.turn])
    first_again = put_call(store, parent=first)
    assert await store.durable()
    assert first.turns == [first_again.turn]
    assert plain(store.load("s", ALICE)) == plain([first.turn])
    store.close()


async def test_nothing_can_be_forgotten_in_a_file_that_is_held(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    store = SqliteStore(path)
    put_call(store)
    assert await store.durable()
    foreign = sqlite3.connect(path, isolation_level=None)
    foreign.execute("BEGIN IMMEDIATE")
    with pytest.raises(DuramenError, match="nothing was forgotten: cannot delete from the session"):
        store.delete("s", "alice")
    store.failing = None
    assert store.expire(1e12) == 0
    assert store.failing is not None
    put_call(store)
    assert not await store.durable()
    foreign.execute("ROLLBACK")
    foreign.close()
    assert len(store.load("s", ALICE)) == 1
    assert store.delete("s", "alice")
    store.close()


def test_a_page_that_cannot_be_read_makes_the_session_unknown(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    store = SqliteStore(path)
    for number in range(100):
        put_call(store, f"s{number}")
    store.close()
    with path.open("r+b") as file:  # page 1 holds the schema
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))
    store = SqliteStore(path)
    assert store.load("s1", ALICE) == []
    assert store.failing is not None
    assert "cannot read the session store" in store.failing
    assert store.find(ALICE, [b"k" * 16]) is None
    assert store.list_sessions("alice") == []
    store.close()


def test_a_store_that_was_closed_in_the_middle_of_a_loop_wrote_what_it_had(tmp_path: Path) -> None:
    async def put_and_leave() -> bool:
        store = SqliteStore(tmp_path / "sessions.db")
        put_call(store)
        waiting = asyncio.create_task(store.durable())
        await asyncio.sleep(0)
        store.close()
        return await waiting

    assert asyncio.run(put_and_leave())
    store = SqliteStore(tmp_path / "sessions.db")
    assert len(store.load("s", ALICE)) == 1
    store.close()
