"""The session store: what was put comes back, from its own tenant only."""

import asyncio
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import gateway_store_cases as cases
import hypothesis.strategies as st
import pytest
from gateway_store_cases import (
    ALICE,
    BOB,
    add_piece,
    finish,
    key,
    new_reply,
    new_turn,
    plain,
    put_call,
)
from hypothesis import given
from hypothesis import settings as given_settings

from duramen.serving.gateway.sessions import loading
from duramen.serving.gateway.sessions import store as store_module
from duramen.serving.gateway.sessions.null_store import NullStore
from duramen.serving.gateway.sessions.records import Reply, Turn
from duramen.serving.gateway.sessions.store import SqliteStore
from duramen.serving.gateway.sessions.store_protocol import Store

ANY_TEXT = st.text(st.characters(), max_size=8)  # lone surrogates and NUL, too
HOSTILE = ["", "'; DROP TABLE turns; --", "\x00", "\ud800", "a" * 256, "s%", "S"]


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "sessions.db", clock)
    yield opened
    opened.close()


@pytest.fixture
def both(store: SqliteStore) -> list[Store]:
    return [store, NullStore()]


async def test_a_session_comes_back_with_all_its_branches(store: SqliteStore) -> None:
    first = new_turn()
    store.put_turn(first, "alice")
    best, other = new_reply(first), new_reply(first)
    for reply in (best, other):
        store.put_reply(reply)
        add_piece(store, reply, [reply.index, 9], "héllo")
        finish(store, reply)
    for _ in range(2):
        store.put_turn(new_turn(parent=best), "alice")
    first.record = b'{"cached": 3}'
    store.put_record(first)
    assert await store.durable()
    assert plain(store.load("s", ALICE)) == plain([first])


@pytest.mark.parametrize("fold_at", [1, 2, 1000])
async def test_a_running_reply_comes_back_as_far_as_it_was_put(
    store: SqliteStore, fold_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "FOLD_AT_PIECES", fold_at)
    turn = new_turn()
    store.put_turn(turn, "alice")
    reply = new_reply(turn)
    store.put_reply(reply)
    assert await store.durable()
    for token_ids, content in (([5, 6], "a𝄞"), ([], "\ud800"), ([7], "")):
        add_piece(store, reply, token_ids, content)
        assert await store.durable()
    (loaded,) = store.load("s", ALICE)[0].replies
    assert (loaded.finish, loaded.message, loaded.key) == ("", b"", b"")
    assert loaded.token_ids.tolist() == [5, 6, 7]
    assert (loaded.pieces, loaded.text) == ([(2, 2), (2, 3), (3, 3)], "a𝄞\ud800")


async def test_pieces_are_gone_once_the_reply_has_ended(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "FOLD_AT_PIECES", 2)

    def num_rows(table: str) -> int:
        return int(store._db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])

    turn = new_turn()
    store.put_turn(turn, "alice")
    reply = new_reply(turn)
    store.put_reply(reply)
    assert await store.durable()
    sizes = []
    for _ in range(4):
        add_piece(store, reply, [1], "x")
        assert await store.durable()
        sizes.append((num_rows("log"), num_rows("chunks")))
    assert sizes == [(1, 0), (0, 1), (1, 1), (0, 2)]
    finish(store, reply)
    assert await store.durable()
    assert (num_rows("log"), num_rows("chunks")) == (0, 0)
    other = put_call(store, parent=reply)  # its piece is written with its end
    assert await store.durable()
    put_call(store, parent=other)
    assert await store.durable()
    assert (num_rows("log"), num_rows("chunks")) == (0, 0)


async def test_a_reply_that_is_finished_without_a_message_keeps_its_pieces(
    store: SqliteStore,
) -> None:
    turn = new_turn()
    store.put_turn(turn, "alice")
    reply = new_reply(turn)
    store.put_reply(reply)
    add_piece(store, reply, [5, 6], "ab")
    assert await store.durable()
    finish(store, reply, message=b"")
    assert await store.durable()
    assert plain(store.load("s", ALICE)) == plain([turn])
    assert reply.pieces == [(2, 2)]


async def test_all_that_is_put_in_one_turn_of_the_loop_is_one_commit(store: SqliteStore) -> None:
    commits: list[str] = []
    replies = [put_call(store, f"s{number}") for number in range(8)]
    assert await store.durable()
    store._db.set_trace_callback(lambda sql: commits.append(sql) if sql == "COMMIT" else None)

    async def more(number: int) -> bool:
        store.put_turn(new_turn(f"s{number}", replies[number]), "alice")
        return await store.durable()

    assert await asyncio.gather(*map(more, range(8))) == [True] * 8
    assert commits == ["COMMIT"]
    assert await store.durable()  # nothing was put: nothing is written
    assert commits == ["COMMIT"]


async def test_one_who_gives_up_waiting_holds_up_nobody(store: SqliteStore) -> None:
    put_call(store)
    gone = asyncio.create_task(store.durable())
    stays = asyncio.create_task(store.durable())
    await asyncio.sleep(0)
    gone.cancel()
    assert await stays
    assert store.load("s", ALICE)


async def test_a_checkpoint_makes_writers_wait_and_not_the_loop(store: SqliteStore) -> None:
    put_call(store)
    with store._writing:
        waiting = asyncio.create_task(store.durable())
        for _ in range(5):
            await asyncio.sleep(0.002)  # the loop runs
        assert not waiting.done()
    assert await waiting


async def test_a_mistake_of_ours_reaches_who_waits_and_the_next_commit_works(
    store: SqliteStore,
) -> None:
    turn = new_turn()
    store.put_turn(turn, "alice")
    store.put_turn(turn, "alice")
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    with pytest.raises(sqlite3.IntegrityError):
        await store.durable()
    put_call(store)
    assert await store.durable()
    assert store.failing is None


def test_what_hangs_on_nothing_is_not_written_and_durable_says_so(store: SqliteStore) -> None:
    unknown = new_reply(new_turn())

    async def put_behind_it() -> None:
        turn = new_turn(parent=unknown)
        store.put_turn(turn, "alice")
        assert not await store.durable()
        store.put_reply(new_reply(turn))
        assert not await store.durable()
        store.add_piece(turn.replies[0], [1], "x")
        assert not await store.durable()
        store.finish(turn.replies[0])
        assert not await store.durable()
        store.put_record(turn)
        assert not await store.durable()

    asyncio.run(put_behind_it())
    assert store.load("s", ALICE) == []
    assert store.list_sessions("alice") == []


def test_a_turn_whose_parents_are_not_all_there_is_left_out(store: SqliteStore) -> None:
    first = put_call(store)
    put_call(store, parent=put_call(store, parent=first))
    store.put_turn(other := new_turn(), "alice")
    store.find(ALICE, [])  # writes what was put
    store._db.execute("DELETE FROM replies WHERE reply_id = ?", (first.reply_id,))
    first.turn.replies.clear()
    assert plain(store.load("s", ALICE)) == plain([first.turn, other])


@pytest.mark.parametrize("name", HOSTILE)
def test_a_session_name_is_only_a_name(store: SqliteStore, name: str) -> None:
    put_call(store, "s")
    turn = put_call(store, name, name="own").turn
    assert plain(store.load(name, ALICE)) == plain([turn])
    assert store.find(ALICE, [key("own-t")]) == name
    assert [found for found, _, _ in store.list_sessions("alice")] == [name, "s"]
    assert store.delete(name, "alice")
    assert store.load(name, ALICE) == []
    assert len(store.load("s", ALICE)) == 1


def test_tenants_with_the_same_session_name_do_not_meet(store: SqliteStore) -> None:
    hers, his = new_turn(), new_turn(scope=BOB)
    store.put_turn(hers, "alice")
    store.put_turn(his, "bob")
    assert plain(store.load("s", ALICE)) == plain([hers])
    assert plain(store.load("s", BOB)) == plain([his])
    assert store.find(b"carol's.........", [hers.key]) is None
    assert store.list_sessions("alice") == [("s", 1000.0, 1)]
    assert not store.delete("s", "carol")
    assert store.delete("s", "bob")
    assert (store.load("s", BOB), len(store.load("s", ALICE))) == ([], 1)


def test_another_tenant_cannot_write_into_a_session(store: SqliteStore, clock: Clock) -> None:
    hers, his = new_turn(), new_turn()
    store.put_turn(hers, "alice")
    clock.now_s += 1
    store.put_turn(his, "bob")
    assert store.list_sessions("alice") == [("s", 1000.0, 1)]
    assert plain(store.load("s", ALICE)) == plain([hers])
    assert store.list_sessions("bob") == []


def test_delete_takes_everything_of_the_session(store: SqliteStore) -> None:
    running = new_reply(put_call(store).turn)
    store.put_reply(running)
    add_piece(store, running, [1], "secret")
    running.turn.record = b"{}"
    store.put_record(running.turn)
    store.put_turn(new_turn(scope=BOB), "alice")  # another model of hers
    store.find(ALICE, [])
    add_piece(store, running, [1], "secret")
    assert store.delete("s", "alice")
    assert not store.delete("s", "alice")
    for table in ("sessions", "turns", "records", "replies", "log", "chunks"):
        assert store._db.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table


def test_the_longest_conversation_is_found(store: SqliteStore) -> None:
    put_call(store, "short", name="a")
    put_call(store, "long", put_call(store, "long", name="b"), name="c")
    running = new_reply(new_turn())
    assert store.find(ALICE, [key("a-t"), key("b-t"), key("none")]) == "long"
    assert store.find(ALICE, [key("b-r"), key("a-r")]) == "short"
    assert store.find(ALICE, [key("a-t"), key("none"), key("none")]) == "short"
    assert store.find(ALICE, [key("none")]) is None
    assert store.find(ALICE, []) is None
    store.put_turn(running.turn, "alice")
    store.put_reply(running)
    assert store.find(ALICE, [key("r")]) is None


def test_of_sessions_at_one_place_the_last_used_is_found(store: SqliteStore, clock: Clock) -> None:
    for session_id in "xyz":
        put_call(store, session_id)
    assert store.find(ALICE, [key("c-t")]) == "z"
    clock.now_s += 1
    store.load("x", ALICE)
    assert store.find(ALICE, [key("c-t")]) == "x"
    clock.now_s += 1
    store.put_turn(new_turn("y"), "alice")
    assert store.find(ALICE, [key("c-t")]) == "y"
    assert [name for name, _, _ in store.list_sessions("alice")] == ["y", "x", "z"]


def test_with_very_many_sessions_at_one_place_the_newest_are_compared(
    store: SqliteStore, clock: Clock
) -> None:
    put_call(store, "old")
    for number in range(loading.TIES):
        put_call(store, f"s{number}")
    clock.now_s += 1
    store.load("old", ALICE)
    assert store.find(ALICE, [key("c-t")]) == f"s{loading.TIES - 1}"


def test_sessions_expire_by_their_last_use_some_at_a_time(store: SqliteStore, clock: Clock) -> None:
    for number in range(10):
        clock.now_s = 1000.0 + number
        put_call(store, f"s{number}")
    clock.now_s = 2000.0
    store.load("s0", ALICE)
    assert store.expire(1000.0) == 0
    assert store.expire(1999.0) == store_module.EXPIRE_AT_ONCE == 8
    assert store.expire(1999.0) == 1
    assert store.expire(1999.0) == 0
    assert store.list_sessions("alice") == [("s0", 2000.0, 1)]


async def test_a_clock_that_jumps_breaks_nothing(store: SqliteStore, clock: Clock) -> None:
    turns = [new_turn() for _ in range(5)]
    for turn, now_s in zip(turns, (2e9, 5.0, -1e300, float("inf"), 1000.0), strict=True):
        clock.now_s = turn.created_s = now_s
        store.put_turn(turn, "alice")
        assert await store.durable()
    assert plain(store.load("s", ALICE)) == plain(turns)
    assert store.list_sessions("alice") == [("s", 1000.0, 5)]


@pytest.mark.parametrize("token_ids", [[-1], [2**32], [1.5], ["1"]])
def test_ids_that_are_none_are_refused_at_once(store: SqliteStore, token_ids: list[int]) -> None:
    reply = put_call(store)
    with pytest.raises((OverflowError, TypeError)):
        store.add_piece(reply, token_ids, "x")
    assert len(store.load("s", ALICE)) == 1


async def test_the_null_store_has_nothing_and_makes_nobody_wait() -> None:
    store: Store = NullStore()
    turn = new_turn()
    reply = new_reply(turn)
    store.put_turn(turn, "alice")
    store.put_record(turn)
    store.put_reply(reply)
    store.add_piece(reply, [1], "x")
    store.finish(reply)
    assert await store.durable()
    assert store.failing is None
    assert store.find(ALICE, [turn.key]) is None
    assert store.load("s", ALICE) == []
    assert store.list_sessions("alice") == []
    assert not store.delete("s", "alice")
    assert store.expire(1e12) == 0
    store.close()


Steps = list[tuple[str, int, str]]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["first", "turn", "reply", "piece", "piece", "finish", "commit", "open"]),
        st.integers(0, 99),
        ANY_TEXT,
    ),
    max_size=40,
)


class Played:
    """A store that steps were played on, and the same in memory: the slow twin."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = SqliteStore(path, lambda: 1000.0)
        self.turns: list[Turn] = []
        self.running: list[Reply] = []
        self.ended: list[Reply] = []

    def put_turn(self, turn: Turn) -> None:
        self.turns.append(turn)
        self.store.put_turn(turn, "alice")

    async def play(self, step: str, which: int, text: str) -> None:
        if step == "first":
            self.put_turn(new_turn(text, name=f"k{which % 5}"))
        elif step == "turn" and self.ended:
            parent = self.ended[which % len(self.ended)]
            self.put_turn(new_turn(parent.turn.session_id, parent, f"k{which % 7}"))
        elif step == "reply" and self.turns:
            reply = new_reply(self.turns[which % len(self.turns)])
            self.running.append(reply)
            self.store.put_reply(reply)
        elif step == "piece" and self.running:
            reply = self.running[which % len(self.running)]
            add_piece(self.store, reply, list(range(which % 4)), text)
        elif step == "finish" and self.running:
            self.ended.append(self.running.pop(which % len(self.running)))
            message = text.encode("utf-8", "replace")
            finish(self.store, self.ended[-1], f"k{which % 7}", message)
        elif step == "commit":
            assert await self.store.durable()
        elif step == "open":
            self.store.close()
            self.store = SqliteStore(self.path, lambda: 1000.0)

    def longest(self, keys: list[bytes]) -> set[str]:
        """Sessions that find may return."""
        replies = [reply for turn in self.turns for reply in turn.replies if reply.message]
        for wanted in reversed(keys):
            found = {turn.session_id for turn in self.turns if turn.key == wanted}
            found |= {reply.turn.session_id for reply in replies if reply.key == wanted}
            if found:
                return found
        return set()


@given_settings(max_examples=60)
@given(steps=STEPS, asked=st.lists(st.integers(0, 7), max_size=5))
def test_any_tree_comes_back_as_it_was_put(steps: Steps, asked: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_module, "FOLD_AT_PIECES", 3)
        played = Played(Path(folder) / "sessions.db")

        async def play() -> None:
            for step in steps:
                await played.play(*step)

        try:
            asyncio.run(play())
            for session_id in {turn.session_id for turn in played.turns}:
                first = [t for t in played.turns if t.session_id == session_id and not t.parent]
                assert plain(played.store.load(session_id, ALICE)) == plain(first)
            keys = [cases.key(f"k{number}") for number in asked]
            found = played.store.find(ALICE, keys)
            longest = played.longest(keys)
            assert found in longest if longest else found is None
        finally:
            played.store.close()
