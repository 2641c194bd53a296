"""What goes wrong around a call: nothing is left running, and no conversation gets wrong ids."""

import asyncio
import datetime
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import openai
import pytest
import pytest_asyncio
from gateway_cases import (
    MODEL,
    RUN,
    Case,
    Message,
    as_message,
    calls_tools,
    gateway,
    get,
    put_together,
    says,
    streamed,
    system,
    until,
    user,
)

from duramen.serving.gateway import lay_out
from duramen.serving.gateway.sessions.store import SqliteStore
from duramen.serving.gateway.settings import Limits, SessionSettings, Settings
from duramen.serving.vllm.fake import EOS
from duramen.serving.vllm.fake_chat import Said

EXPLAIN = {"x-duramen-explain": "1"}


@pytest_asyncio.fixture
async def case(smollm2: Path) -> AsyncIterator[Case]:
    async with gateway(smollm2) as case:
        yield case


@pytest_asyncio.fixture
async def client(case: Case) -> AsyncIterator[openai.AsyncOpenAI]:
    async with case.client() as client:
        yield client


class Gate:
    """Holds an engine's answer before its token number `at`."""

    def __init__(self, case: Case, at: int) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()
        self._at = at
        case.engine.before_token = self

    async def __call__(self, i: int) -> None:
        if i == self._at:
            self.reached.set()
            await self.opened.wait()


async def leave_after(
    client: openai.AsyncOpenAI, num_tokens: int, messages: list[Message], **more: Any
) -> Message:
    """What a client has that reads the first chunk and so many more, and goes."""
    stream = await client.chat.completions.create(
        model=MODEL, messages=messages, stream=True, **more
    )
    chunks = [await anext(stream) for _ in range(num_tokens + 1)]
    await stream.close()
    return put_together(chunks)


def long_reply(case: Case) -> Said:
    """Reasoning, text with characters of several tokens, then a tool call."""
    spoken = [*case.encode(" A 🌍 naïve"), 220, *case.encode("plan.\n")]
    call = calls_tools(case, ("run", '{"a": [1, 2]}'), reasoning="Hm.")
    start = len(case.encode("<think>\nHm.\n</think>\n\n"))
    text = says(case, "", ids=spoken, ends=False)
    return Said(
        [*call.token_ids[:start], *text.token_ids, *call.token_ids[start:]],
        [*call.deltas[:start], *text.deltas, *call.deltas[start:]],
        "tool_calls",
    )


async def test_a_client_that_left_goes_on_with_what_it_saw(
    case: Case, client: openai.AsyncOpenAI
) -> None:
    said = long_reply(case)
    with_text = [i for i, delta in enumerate(said.deltas) if delta.get("content")]
    for cut in range(with_text[0] + 1, len(said.token_ids)):
        messages = [system(), user(f"cut at {cut}")]
        gate = Gate(case, cut)
        case.engine.script.append(said)
        seen = await leave_after(client, cut, messages, tools=[RUN])
        await case.settled()
        assert gate.reached.is_set()
        sent = case.sent()
        kept = said.token_ids[: max(i for i in with_text if i < cut) + 1]
        case.engine.script.append(says(case, "ok"))
        goes_on = [*messages, {"role": "assistant", "content": seen["content"]}, user("Go on.")]
        answer = await client.chat.completions.create(
            model=MODEL, messages=goes_on, tools=[RUN], extra_headers=EXPLAIN
        )
        assert answer.duramen["relation"] == "extends"
        assert answer.duramen["break"] is None
        assert case.sent()[: len(sent) + len(kept)] == [*sent, *kept], cut
        added = case.text(case.sent()[len(sent) + len(kept) :])
        assert added == ("<|im_end|>\n<|im_start|>user\nGo on.<|im_end|>\n<|im_start|>assistant\n")
        again = [*goes_on, as_message(answer.choices[0].message), user("More.")]
        past = [*case.sent(), *case.encode("ok"), EOS]
        await client.chat.completions.create(model=MODEL, messages=again, tools=[RUN], max_tokens=1)
        assert case.sent()[: len(past)] == past


@pytest.mark.parametrize("ended", [False, True], ids=["broken off", "whole"])
async def test_the_client_may_have_seen_less_than_was_sent(
    case: Case, client: openai.AsyncOpenAI, ended: bool
) -> None:
    ids = [*case.encode("He"), *case.encode("llo 🌍"), *case.encode(" naïve \n."), 220]
    said = says(case, "", ids=ids)
    shown = [str(delta["content"]) for delta in said.deltas]
    for num_seen in range(1, len(ids) - 1):
        seen = "".join(shown[:num_seen])
        messages = [system(), user(f"less: {num_seen} {ended}")]
        case.engine.script.append(said)
        if ended:
            await streamed(client, messages=messages)
        else:
            Gate(case, len(ids))
            await leave_after(client, len(ids), messages)
            await case.settled()
        sent = case.sent()
        goes_on = [*messages, {"role": "assistant", "content": seen}, user("Go on.")]
        answer = await client.chat.completions.create(
            model=MODEL, messages=goes_on, max_tokens=1, extra_headers=EXPLAIN
        )
        kept = ids[: max(i for i in range(num_seen) if shown[i]) + 1]
        assert case.sent()[: len(sent) + len(kept)] == [*sent, *kept]
        assert case.text(case.sent()[len(sent) :]).startswith(f"{seen}<|im_end|>")
        assert answer.duramen["break"] is None


async def test_a_client_that_leaves_a_whole_answer_ends_the_call(
    case: Case, client: openai.AsyncOpenAI
) -> None:
    gate = Gate(case, 3)
    messages = [system(), user("gone")]
    call = asyncio.create_task(
        client.chat.completions.create(model=MODEL, messages=messages, max_tokens=9)
    )
    await gate.reached.wait()
    assert case.run.gateway.admission.num_running == 1
    call.cancel()
    await asyncio.wait({call})
    await case.settled()
    case.engine.before_token = lambda i: asyncio.sleep(0)
    await client.chat.completions.create(model=MODEL, messages=messages, max_tokens=9)
    await case.settled()


async def test_a_client_that_leaves_the_queue_takes_its_place_along(smollm2: Path) -> None:
    settings = Settings(limits=Limits(max_running=1, max_queued=1))
    async with gateway(smollm2, settings) as case, case.client() as client:
        gate = Gate(case, 1)
        running = asyncio.create_task(streamed(client, messages=[user("a")], max_tokens=3))
        await gate.reached.wait()
        waiting = asyncio.create_task(streamed(client, messages=[user("b")], max_tokens=3))
        await until(lambda: case.run.gateway.admission.num_queued == 1)
        with pytest.raises(openai.RateLimitError) as full:
            await streamed(client, messages=[user("c")])
        assert int(full.value.response.headers["retry-after"]) >= 1
        assert full.value.code == "rate_limit_exceeded"
        waiting.cancel()
        await until(lambda: case.run.gateway.admission.num_queued == 0)
        gate.opened.set()
        assert len(await running) == 4
        assert len(case.engine.bodies) == 1
        await case.settled()
        listed = await get(client, "/duramen/sessions")
        assert [s["num_calls"] for s in listed["data"]] == [1]


def raw_request(body: dict[str, Any]) -> bytes:
    data = msgspec.json.encode(body)
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: "
    return f"{head}{len(data)}\r\n\r\n".encode() + data


@pytest.mark.parametrize(
    "limits",
    [Limits(slow_reader_s=0.3), Limits(slow_reader_s=1.2, deadline_s=1)],
    ids=["slow reader", "deadline"],
)
async def test_a_client_that_reads_nothing_is_dropped(smollm2: Path, limits: Limits) -> None:
    async with gateway(smollm2, Settings(limits=limits)) as case:
        case.engine.script.append(Said([300] * 400, [{"content": "x" * 40_000}] * 400, "length"))
        loop = asyncio.get_running_loop()
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.setblocking(False)
            await loop.sock_connect(connection, ("127.0.0.1", case.run.server.config.port))
            await loop.sock_sendall(
                connection, raw_request({"messages": [user("talk")], "stream": True})
            )
            await until(lambda: case.engine.num_running == 1)
            await until(lambda: case.engine.num_running == 0)
            await case.settled()
            await until(lambda: not case.run.server.server_state.connections)


async def test_a_deadline_ends_a_call(smollm2: Path) -> None:
    settings = Settings(limits=Limits(deadline_s=0.3))
    async with gateway(smollm2, settings) as case, case.client() as client:
        Gate(case, 2)
        with pytest.raises(openai.InternalServerError) as late:
            await client.chat.completions.create(model=MODEL, messages=[user("a")], max_tokens=9)
        assert (late.value.status_code, late.value.code) == (504, "deadline_exceeded")
        stream = await client.chat.completions.create(
            model=MODEL, messages=[user("b")], max_tokens=9, stream=True
        )
        chunks = [await anext(stream) for _ in range(3)]
        with pytest.raises(openai.APIError) as cut:
            await anext(stream)
        assert cut.value.code == "deadline_exceeded"
        await case.settled()
        sent = case.sent()
        case.engine.before_token = lambda i: asyncio.sleep(0)
        goes_on = [user("b"), put_together(chunks), user("go on")]
        await client.chat.completions.create(model=MODEL, messages=goes_on, max_tokens=1)
        assert case.sent()[: len(sent)] == sent
        await case.settled()


async def test_an_engine_that_dies(smollm2: Path) -> None:
    async with gateway(smollm2) as case, case.client() as client:
        root = "A root of many words. " * 20
        ids = case.encode("He") + case.encode("llo")
        case.engine.script.append(says(case, "", ids=[*ids, *case.encode(" there")]))
        gate = Gate(case, 2)
        stream = await client.chat.completions.create(
            model=MODEL, messages=[system(root), user("hi")], stream=True
        )
        chunks = [await anext(stream) for _ in range(3)]
        await gate.reached.wait()
        sent, dead = case.sent(), case.engine
        dead.kill()
        gate.opened.set()
        with pytest.raises(openai.APIError) as broken:
            [chunk async for chunk in stream]
        assert broken.value.code == "engine_unavailable"
        assert "fake" not in str(broken.value), "where the engine runs is nobody's business"
        await case.settled()
        await until(lambda: case.engine is not dead and case.run.gateway.engines.num_ready)
        goes_on = [system(root), user("hi"), put_together(chunks), user("go on")]
        for predicted in (0, None):
            answer = await client.chat.completions.create(
                model=MODEL, messages=goes_on, max_tokens=1, extra_headers=EXPLAIN
            )
            told = answer.duramen
            assert case.sent()[: len(sent) + 2] == [*sent, *ids]
            unit = (len(case.sent()) - 1) // 16 * 16 if predicted is None else 0
            assert told["predicted_tokens"] == [unit, unit]
            assert told["delivered_tokens"] == unit
            assert told["mismatch"] is None
        await case.settled()


async def test_while_the_engine_is_down(smollm2: Path) -> None:
    async with gateway(smollm2) as case, case.client() as client:
        case.run.gateway.engines.members[0].supervisor.engine = None
        with pytest.raises(openai.InternalServerError) as down:
            await client.chat.completions.create(model=MODEL, messages=[user("a")])
        assert (down.value.status_code, down.value.code) == (503, "engine_unavailable")
        assert down.value.response.headers["retry-after"] == "5"
        with pytest.raises(openai.InternalServerError):
            await client.get("../health", cast_to=object)
        await case.settled()


async def test_draining_finishes_what_runs(smollm2: Path) -> None:
    async with gateway(smollm2) as case, case.client() as client:
        gate = Gate(case, 2)
        running = asyncio.create_task(streamed(client, messages=[user("a")], max_tokens=4))
        await gate.reached.wait()
        signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(0.3)  # the server looks for a signal ten times a second
        with pytest.raises(openai.InternalServerError) as refused:
            await streamed(client, messages=[user("b")])
        assert (refused.value.status_code, refused.value.code) == (503, "shutting_down")
        with pytest.raises(openai.InternalServerError) as health:
            await get(client, "/../health")
        assert msgspec.json.decode(health.value.response.content)["status"] == "draining"
        assert not case.run.serving.done()
        gate.opened.set()
        assert len(await running) == 5
        await case.run.ended()
        assert case.run.serving.done()


async def test_a_full_disk(smollm2: Path, tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    settings = Settings(sessions=SessionSettings(store=path))
    async with gateway(smollm2, settings) as case, case.client() as client:
        store = case.run.gateway.tree.store
        assert isinstance(store, SqliteStore)

        async def turn(messages: list[Message], past: list[int]) -> list[int]:
            said = says(case, "", ids=[*case.encode("He"), *case.encode("llo")] * 30)
            case.engine.script.append(said)
            messages.append(put_together(await streamed(client, messages=messages)))
            assert case.sent()[: len(past)] == past
            messages.append(user("And? " * 200))
            return [*case.sent(), *said.token_ids]

        early: list[Message] = [system(), user("early")]
        past = await turn(early, [])
        (pages,) = store._db.execute("PRAGMA page_count").fetchone()
        store._db.execute(f"PRAGMA max_page_count = {pages}")
        late: list[Message] = [system(), user("late")]
        past = await turn(early, past)
        late_past = await turn(late, [])
        health = await get(client, "/../health")
        assert health["status"] == "ready"
        assert "full" in health["store"]
        past = await turn(early, past)
        late_past = await turn(late, late_past)
        (deleting,) = [s["id"] for s in (await get(client, "/duramen/sessions"))["data"]][:1]
        store._db.execute("PRAGMA max_page_count = 1000000")
        past = await turn(early, past)
        await turn(late, late_past)
        assert (await get(client, "/../health"))["store"] == "ok"
        assert deleting
        await case.settled()
    async with gateway(smollm2, settings) as case, case.client() as client:
        for messages in (early, late):
            case.engine.script.append(says(case, "bye"))
            await streamed(client, messages=messages)
            text = case.text(case.sent())
            assert text.count("Hello" * 30 + "<|im_end|>") == len(messages) // 2 - 1
        await case.settled()


async def test_a_restart_keeps_every_conversation(smollm2: Path, tmp_path: Path) -> None:
    settings = Settings(sessions=SessionSettings(store=tmp_path / "sessions.db"))
    messages: list[Message] = [system(), user("hi")]
    past: list[int] = []
    seen: list[Message] = []
    for _ in range(3):
        async with gateway(smollm2, settings) as case, case.client() as client:
            said = says(case, "", ids=[*case.encode("He"), *case.encode("llo")])
            case.engine.script.append(said)
            reply = put_together(await streamed(client, messages=messages))
            assert case.sent()[: len(past)] == past
            past = [*case.sent(), *said.token_ids]
            messages += [reply, user("and?")]
            await case.settled()
            Gate(case, 1)
            case.engine.script.append(said)
            seen = [*messages, await leave_after(client, 1, messages), user("go on")]
            await case.settled()
            broken = [*case.sent(), *said.token_ids[:1]]
        async with gateway(smollm2, settings) as case, case.client() as client:
            await client.chat.completions.create(model=MODEL, messages=seen, max_tokens=1)
            assert case.sent()[: len(broken)] == broken
            (listed,) = (await get(client, "/duramen/sessions"))["data"]
            await case.settled()
    assert listed["num_calls"] == 9


async def test_sessions_beyond_the_limit_come_back_from_the_store(
    smollm2: Path, tmp_path: Path
) -> None:
    sessions = SessionSettings(store=tmp_path / "sessions.db", memory_bytes=1)
    async with gateway(smollm2, Settings(sessions=sessions)) as case, case.client() as client:
        talks: list[list[Message]] = [[system(), user(f"talk {i}")] for i in range(3)]
        past: list[list[int]] = [[], [], []]
        for _ in range(3):
            for i, messages in enumerate(talks):
                said = says(case, "", ids=[*case.encode("He"), *case.encode("llo")])
                case.engine.script.append(said)
                messages.append(put_together(await streamed(client, messages=messages)))
                messages.append(user("and?"))
                assert case.sent()[: len(past[i])] == past[i]
                past[i] = [*case.sent(), *said.token_ids]
                await case.settled()
                assert len(case.run.gateway.tree) == 1
        assert len((await get(client, "/duramen/sessions"))["data"]) == 3


async def test_a_session_that_waits_is_not_evicted(smollm2: Path) -> None:
    settings = Settings(limits=Limits(max_running=1))
    async with gateway(smollm2, settings) as case, case.client() as client:
        tree = case.run.gateway.tree
        ids = [*case.encode("He"), *case.encode("llo")]
        case.engine.script.append(says(case, "", ids=ids))
        messages = [user("a")]
        messages.append(put_together(await streamed(client, messages=messages)))
        past = [*case.sent(), *ids, EOS]
        gate = Gate(case, 1)
        other = asyncio.create_task(streamed(client, messages=[user("b")], max_tokens=3))
        await gate.reached.wait()
        waiting = asyncio.create_task(
            streamed(client, messages=[*messages, user("on")], max_tokens=3)
        )
        await until(lambda: case.run.gateway.admission.num_queued == 1)
        tree._limit_bytes = 1
        tree._evict()
        assert len(tree) == 2
        gate.opened.set()
        await other
        messages += [user("on"), put_together(await waiting)]
        assert case.sent()[: len(past)] == past
        sent = case.sent()
        await case.settled()
        await client.chat.completions.create(
            model=MODEL, messages=[*messages, user("and on")], max_tokens=1
        )
        assert case.sent()[: len(sent)] == sent


async def test_a_session_that_is_deleted_while_it_runs(
    case: Case, client: openai.AsyncOpenAI
) -> None:
    tree = case.run.gateway.tree
    name = {"x-duramen-session": "short-lived"}
    messages = [system(), user("delete me")]
    gate = Gate(case, 2)
    num_bytes, num_turns = tree.num_bytes, len(tree._turns)
    running = asyncio.create_task(
        streamed(client, messages=messages, max_tokens=4, extra_headers=name)
    )
    await gate.reached.wait()
    done = await client.delete("/duramen/sessions/short-lived", cast_to=object)
    assert done == {"id": "short-lived", "object": "session", "deleted": True}
    gate.opened.set()
    reply = put_together(await running)
    await case.settled()
    assert (tree.num_bytes, len(tree._turns)) == (num_bytes, num_turns)
    with pytest.raises(openai.NotFoundError):
        await get(client, "/duramen/sessions/short-lived")
    case.engine.before_token = lambda i: asyncio.sleep(0)
    answer = await client.chat.completions.create(
        model=MODEL, messages=[*messages, reply, user("x")], max_tokens=1, extra_headers=EXPLAIN
    )
    assert answer.duramen["relation"] == "new"


async def test_a_clock_that_jumps(
    case: Case, client: openai.AsyncOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    years = iter([2026, 1971, 2099, 2000, 2026])

    class Jumping(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> "Jumping":
            return cls(next(years), 1, 1)

    monkeypatch.setattr(lay_out, "datetime", SimpleNamespace(datetime=Jumping))
    messages = [system(), user("what time is it?")]
    past: list[int] = []
    for _ in range(5):
        said = says(case, "", ids=[*case.encode("He"), *case.encode("llo")])
        case.engine.script.append(said)
        reply = put_together(await streamed(client, messages=messages))
        assert case.sent()[: len(past)] == past
        past = [*case.sent(), *said.token_ids]
        messages += [reply, user("and now?")]
    await case.settled()


async def test_a_gap_in_the_events(smollm2: Path) -> None:
    async with gateway(smollm2) as case, case.client() as client:
        mirror = case.engine.mirror
        assert mirror is not None
        mirror.break_off("an event was lost")
        for messages in ([user("hi " * 40)], [user("hi " * 40)]):
            answer = await client.chat.completions.create(
                model=MODEL, messages=messages, max_tokens=2, extra_headers=EXPLAIN
            )
            assert answer.duramen["predicted_tokens"] is None
            assert answer.duramen["mismatch"] is None
        assert answer.duramen["delivered_tokens"] == answer.duramen["bounds"]["unit"] > 0
        await case.settled()


async def test_a_client_that_leaves_while_it_sends_its_body(case: Case) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", case.run.server.config.port)
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 99\r\n\r\n{")
    await writer.drain()
    await until(lambda: case.run.server.server_state.tasks)
    writer.close()
    await case.settled()
