"""What a client can use up before its call runs: connections, memory, the event loop."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import openai
import pytest
from gateway_cases import MODEL, Case, gateway, system, until, user
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from duramen.layout.tokenizer import Tokenizer
from duramen.serving.gateway import bodies, http_protocol, too_long
from duramen.serving.gateway.bodies import Bodies
from duramen.serving.gateway.errors import ApiError
from duramen.serving.gateway.histories import Histories
from duramen.serving.gateway.settings import Limits, Settings
from duramen.serving.gateway.shapes import MAX_PROMPTS, check_completion
from duramen.serving.gateway.too_long import FAR, FAR_CHARACTERS, MAX_PIECES, check_length
from duramen.serving.gateway.wire import AT_END, Disconnected

SOON_S = 0.05
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: tree\r\n"


# --- connections ---------------------------------------------------------------------------------


@asynccontextmanager
async def connected(case: Case) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    port = int(case.url.removesuffix("/v1").rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def all_read(reader: asyncio.StreamReader) -> bytes:
    """Until the gateway closes the connection."""
    data = b""
    async with asyncio.timeout(30):
        with suppress(ConnectionError):
            while part := await reader.read(2**16):
                data += part
    return data


async def write_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes) -> None:
    """Again and again until the gateway closes the connection, without another answer."""
    async with asyncio.timeout(30):
        while reader.exception() is None and not reader.at_eof():
            writer.write(data)
            await asyncio.sleep(0.002)
    assert await all_read(reader) == b""


@pytest.mark.parametrize("sent", [b"", b"P", HEAD, HEAD + b"content-length: 2\r\nx: "])
async def test_a_head_that_does_not_come_ends_the_connection(
    smollm2: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(http_protocol, "HEAD_S", SOON_S)
    async with gateway(smollm2) as case, connected(case) as (reader, writer):
        writer.write(sent)
        assert await all_read(reader) == b""


@pytest.mark.parametrize("line", [b"x: y\r\n", b"y"])
async def test_a_head_without_end_ends_the_connection(smollm2: Path, line: bytes) -> None:
    async with gateway(smollm2) as case, connected(case) as (reader, writer):
        writer.write(HEAD + b"x: ")
        await write_on(reader, writer, line * (2**15 // len(line)))


async def test_a_head_of_the_largest_size_is_served(smollm2: Path) -> None:
    async with gateway(smollm2) as case, connected(case) as (reader, writer):
        body = b'{"messages": [{"role": "user", "content": "hi"}]}'
        large = b"x: " + b"y" * (http_protocol.MAX_HEAD_BYTES - 200) + b"\r\n"
        for _ in range(2):
            for byte_range in (slice(0, 30_000), slice(30_000, None)):
                writer.write((HEAD + large)[byte_range])
                await asyncio.sleep(0.01)
            writer.write(b"content-length: %d\r\n\r\n%b" % (len(body), body))
            assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
            await reader.readuntil(b"}]}")


async def test_what_nobody_reads_any_more_ends_the_connection(
    smollm2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_protocol, "LINGER_S", SOON_S)
    settings = Settings(limits=Limits(max_body_bytes=1000))
    async with gateway(smollm2, settings) as case, connected(case) as (reader, writer):
        chunk = b"3e8\r\n" + b"x" * 1000 + b"\r\n"
        writer.write(HEAD + b"transfer-encoding: chunked\r\n\r\n" + 2 * chunk)
        assert (await reader.readline())[:13] == b"HTTP/1.1 413 "
        await reader.readuntil(b"}}")
        await write_on(reader, writer, chunk)


async def test_a_connection_that_goes_on_is_kept(
    smollm2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HEAD_S", "LINGER_S"):
        monkeypatch.setattr(http_protocol, name, SOON_S)
    async with gateway(smollm2) as case, connected(case) as (reader, writer):
        for _ in range(2):
            writer.write(b"GET /health HTTP/1.1\r\nhost: tree\r\n\r\n")
            assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
            await reader.readuntil(b"}")
            await asyncio.sleep(4 * SOON_S)


@pytest.mark.parametrize("length", [b"content-length: 9", b"transfer-encoding: chunked"])
async def test_a_body_that_does_not_come_is_refused(smollm2: Path, length: bytes) -> None:
    settings = Settings(limits=Limits(deadline_s=SOON_S))
    async with gateway(smollm2, settings) as case, connected(case) as (reader, writer):
        writer.write(HEAD + length + b"\r\n\r\n2\r\n{}\r\n")
        assert await reader.readline() == b"HTTP/1.1 408 Request Timeout\r\n"
        await case.settled()


async def test_a_client_that_goes_while_it_sends_is_forgotten(smollm2: Path) -> None:
    async with gateway(smollm2) as case:
        async with connected(case) as (_, writer):
            writer.write(HEAD + b"content-length: 99\r\n\r\n{")
            await until(lambda: case.run.gateway.bodies._by_tenant.total() == 1)
        await case.settled()
        assert not case.run.gateway.bodies._by_tenant


# --- bodies --------------------------------------------------------------------------------------


def request_of(*parts: bytes, **headers: str) -> tuple[Request, ExitStack]:
    """A request whose body comes in these parts; then its client goes."""
    messages = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    if parts:
        messages[-1]["more_body"] = False
    messages.append({"type": "http.disconnect"})
    at_end = ExitStack()
    names = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]

    async def receive() -> Any:
        return messages.pop(0)

    return Request({"type": "http", "headers": names, AT_END: at_end}, receive), at_end


async def refused(read: Any) -> tuple[int, str]:
    with pytest.raises(ApiError) as caught:
        await read
    return caught.value.status, str(caught.value)


async def test_a_body_weighs_until_its_request_is_over() -> None:
    room = Bodies(Limits(max_body_bytes=100))
    data = b'{"a": [1, 2]}'
    request, at_end = request_of(data[:5], data[5:])
    assert await room.read(request, "oak") == {"a": [1, 2]}
    assert room._by_tenant == {"oak": len(data) + 3 * bodies.VALUE_BYTES}
    at_end.close()
    assert not room._by_tenant


async def test_a_tenants_bodies_weigh_together() -> None:
    room = Bodies(Limits(max_body_bytes=100))
    most = bodies.NUM_LARGEST * 100
    data = b"{" + b" " * 90 + b"}"
    num_fitting = most // (len(data) + bodies.VALUE_BYTES)
    ends = ExitStack()
    for _ in range(num_fitting):
        request, at_end = request_of(data)
        assert await room.read(request, "oak") == {}
        ends.push(at_end)
    request, at_end = request_of(data)
    status, text = await refused(room.read(request, "oak"))
    assert (status, text.partition(":")[0]) == (
        429,
        "your calls that run and wait hold too large bodies",
    )
    other, at_its_end = request_of(data)
    assert await room.read(other, "elm") == {}
    for stack in (at_end, at_its_end, ends):
        stack.close()
    assert not room._by_tenant


@pytest.mark.parametrize(
    ("parts", "headers", "status"),
    [
        ((b"x" * 60, b"x" * 41), {}, 413),
        ((), {"content_length": "101"}, 413),
        ((), {"content_length": "9" * 5000}, 413),
        ((b"{}",), {"content_length": "\u00b2"}, None),  # a digit, and no number
        ((b"[]",), {}, 400),
        ((b"",), {}, 400),
    ],
)
async def test_bodies_that_are_refused(
    parts: tuple[bytes, ...], headers: dict[str, str], status: int | None
) -> None:
    room = Bodies(Limits(max_body_bytes=100))
    request, at_end = request_of(*parts, **headers)
    if status is None:
        assert await room.read(request, "oak") == {}
    else:
        assert (await refused(room.read(request, "oak")))[0] == status
    at_end.close()
    assert not room._by_tenant


async def test_too_many_values() -> None:
    room = Bodies(Limits())
    few = b'{"a":[' + b"0," * (bodies.MAX_VALUES - 2) + b"0]}"
    request, _ = request_of(few)
    assert len((await room.read(request, "oak"))["a"]) == bodies.MAX_VALUES - 1
    request, _ = request_of(few[:-2] + b",0]}")
    status, text = await refused(room.read(request, "oak"))
    assert (status, text) == (
        413,
        f"the body holds more than {bodies.MAX_VALUES} values: send less",
    )


async def test_a_client_that_goes() -> None:
    request, _ = request_of()
    with pytest.raises(Disconnected):
        await Bodies(Limits()).read(request, "oak")


# --- messages that cannot fit --------------------------------------------------------------------

CONTEXT = 100


@pytest.fixture(scope="module")
def tokenizer(smollm2: Path) -> Tokenizer:
    return Tokenizer.load(smollm2)


MANY = "wood " * (FAR_CHARACTERS * CONTEXT // 5 + 1)
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": MANY}}


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [user(MANY)]},
        {"messages": [system(MANY), user("hi")]},
        {"messages": [user("wood " * 40)] * 10},
        {"messages": [{"role": "user", "content": [MANY]}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": MANY}]}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "", "x": MANY}]}]},
        {"messages": [{"role": "assistant", "content": None, "tool_calls": [CALL]}]},
        {"messages": [{"role": "user", "content": "hi", "reasoning": MANY}]},
        {"messages": [user("hi")], "tools": [{"function": {"name": MANY}}]},
        {"messages": [user("hi")], "chat_template_kwargs": {"a": MANY}},
    ],
)
async def test_far_too_long(tokenizer: Tokenizer, body: Any) -> None:
    with pytest.raises(ApiError) as caught:
        await check_length(body, CONTEXT, tokenizer)
    assert caught.value.code == "context_length_exceeded"
    assert f"resulted in more than {FAR * CONTEXT} tokens" in str(caught.value)
    await check_length(body, 100 * CONTEXT, tokenizer)


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [user(" " * 10_000)]},  # 64 of them are a token
        {"messages": [user("wood " * 300)]},  # too long, but not by far: laid out and counted
        {"messages": [user("hi")] * 10},
        {"messages": [{"role": "user", "content": None}]},
        {"messages": [{"role": "user"}], "tools": None},
    ],
)
async def test_not_far_too_long(tokenizer: Tokenizer, body: Any) -> None:
    await check_length(body, CONTEXT, tokenizer)


@pytest.mark.parametrize("where", ["messages", "parts", "calls", "tools"])
async def test_too_many_pieces(tokenizer: Tokenizer, where: str) -> None:
    def body(number: int) -> dict[str, Any]:
        if where == "messages":
            return {"messages": [user("")] * number}
        if where == "parts":
            return {"messages": [{"role": "user", "content": [""] * (number - 1)}]}
        if where == "calls":
            calls = [{"function": {"name": "f"}}] * (number - 1)
            return {"messages": [{"role": "assistant", "tool_calls": calls}]}
        return {"messages": [user("")], "tools": [{"function": {"name": "f"}}] * (number - 1)}

    await check_length(body(MAX_PIECES), 10**6, tokenizer)
    status, text = await refused(check_length(body(MAX_PIECES + 1), 10**6, tokenizer))
    assert (status, f"are {MAX_PIECES + 1}: at most {MAX_PIECES}" in text) == (400, True)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=5))
def test_counting_stops_when_it_is_over(tokenizer: Tokenizer, texts: list[str]) -> None:
    num_tokens = sum(len(tokenizer.encode_text(text)) for text in texts)
    assert not too_long._is_over(texts, num_tokens, tokenizer)
    if num_tokens:
        assert too_long._is_over([*texts, "wood"], num_tokens, tokenizer)


async def test_others_are_served_while_a_long_one_is_counted(
    smollm2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting, others_done = threading.Event(), threading.Event()

    def count(*arguments: Any) -> bool:
        counting.set()
        return others_done.wait(30)

    monkeypatch.setattr(too_long, "_is_over", count)
    async with gateway(smollm2) as case, case.client() as client:
        messages = [user("wood " * 8192 * FAR_CHARACTERS)]
        long = asyncio.create_task(client.chat.completions.create(model=MODEL, messages=messages))
        await until(counting.is_set)
        await client.chat.completions.create(model=MODEL, messages=[user("hi")])
        others_done.set()
        with pytest.raises(openai.BadRequestError):
            await long


@pytest.mark.parametrize("one", ["wood", [1]])
def test_many_prompts_are_no_single_call(one: Any) -> None:
    check_completion({"prompt": [one] * MAX_PROMPTS})
    with pytest.raises(ApiError, match=f"at most {MAX_PROMPTS} prompts"):
        check_completion({"prompt": [one] * (MAX_PROMPTS + 1)})
    check_completion({"prompt": [1] * (MAX_PROMPTS + 1)})  # one prompt of many token ids


# --- what is remembered for each cache salt ------------------------------------------------------


async def test_histories_of_many_salts_stay_within_their_limit(smollm2: Path) -> None:
    async with gateway(smollm2) as case, case.client() as client:
        gateway_ = case.run.gateway
        block_size = case.engine.info.unit_tokens
        histories = Histories(block_size, block_size, limit_bytes=20_000)
        gateway_.up = replace(gateway_.serving, histories=histories)

        async def unit_bound(salt: str) -> int:
            answer = await client.chat.completions.create(
                model=MODEL,
                messages=[user("wood " * 40)],
                max_tokens=1,
                extra_body={"cache_salt": salt},
                extra_headers={"x-duramen-explain": "1"},
            )
            assert answer.model_extra is not None
            bound: int = answer.model_extra["duramen"]["bounds"]["unit"]
            return bound

        assert await unit_bound("first") == 0
        known = await unit_bound("first")
        assert known > 0
        for i in range(30):
            assert await unit_bound(f"salt {i}") == 0
            assert histories.num_bytes <= 20_000
        assert await unit_bound("salt 29") == known
        assert await unit_bound("first") == 0  # forgotten: counts as never seen
