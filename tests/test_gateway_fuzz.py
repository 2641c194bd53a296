"""Hostile requests to a gateway in a process of its own: none may hang, crash or bloat it."""

import asyncio
import json
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import aiohttp
import httptools
import pytest
import schemathesis
from gateway_cases import MODEL, RUN, free_port, user
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode, checks
from schemathesis.specs.openapi import checks as openapi_checks

from duramen.serving.gateway.openapi import openapi

MB = 2**20
ANSWERED_S = 60.0  # no test waits longer for one answer
GROWN_MB = 300  # most that the process may have grown by, when all is over
PEAK_MB = 600  # and meanwhile
NUM_BODIES = 10_000
FRAMINGS = ["announced", "chunked", "slow"]
CHUNKED = b"transfer-encoding: chunked\r\n\r\n"
TOO_MUCH = {400, 413, 429}  # which of them depends on what comes with it
NUM_CONNECTIONS = 16


@dataclass(frozen=True)
class Child:
    url: str
    port: int
    pid: int

    def rss_mb(self) -> float:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise AssertionError("no VmRSS")


@pytest.fixture(scope="module")
def child(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Child]:
    port = free_port()
    errors = tmp_path_factory.mktemp("fuzz") / "log"
    program = Path(__file__).with_name("fake_gateway.py")
    with errors.open("w") as log:
        process = subprocess.Popen(
            [sys.executable, str(program), str(port), str(smollm2)],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        with process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n", errors.read_text()
            yield Child(f"http://127.0.0.1:{port}", port, process.pid)
            process.send_signal(signal.SIGTERM)
            process.stdout.read()
    assert process.returncode == 0
    lines = [json.loads(line) for line in errors.read_text().splitlines()]
    assert [line for line in lines if line["level"] == "error"] == []


# --- the description holds -----------------------------------------------------------------------

PATHS = openapi()["paths"]
NUM_EXAMPLES = 40
HOLDS = (
    checks.not_a_server_error,
    openapi_checks.status_code_conformance,
    openapi_checks.content_type_conformance,
    openapi_checks.response_headers_conformance,
    openapi_checks.response_schema_conformance,
    openapi_checks.negative_data_rejection,
)


@pytest.fixture(scope="module")
def description(child: Child) -> Any:
    return schemathesis.openapi.from_url(f"{child.url}/openapi.json")


@pytest.mark.parametrize("mode", [*GenerationMode], ids=lambda mode: mode.name.lower())
@pytest.mark.parametrize("path", [path for path, methods in PATHS.items() if "post" in methods])
def test_answers_to_bodies_are_as_described(
    description: Any, path: str, mode: GenerationMode
) -> None:
    statuses = answers_hold(description[path]["post"], mode)
    assert statuses.total() >= NUM_EXAMPLES
    assert (statuses[200] > 0) == (mode is GenerationMode.POSITIVE), statuses


@pytest.mark.parametrize("path", [path for path, methods in PATHS.items() if "get" in methods])
def test_answers_without_bodies_are_as_described(description: Any, path: str) -> None:
    for method in PATHS[path].keys() & {"get", "delete"}:
        statuses = answers_hold(description[path][method], GenerationMode.POSITIVE)
        assert statuses.keys() == {404 if "{" in path else 200}


def answers_hold(operation: Any, mode: GenerationMode) -> Counter[int]:
    """How often each status came."""
    statuses: Counter[int] = Counter()

    @settings(
        max_examples=NUM_EXAMPLES,
        database=None,
        derandomize=True,
        suppress_health_check=[*HealthCheck],
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def holds(case: Any) -> None:
        response = case.call(timeout=ANSWERED_S)
        statuses[response.status_code] += 1
        case.validate_response(response, checks=HOLDS)

    holds()
    return statuses


def test_answers_about_what_is_there_are_as_described(description: Any) -> None:
    chat = description["/v1/chat/completions"]["post"].Case(body={"messages": [user("hi")]})
    session_id = chat.call_and_validate(checks=HOLDS).headers["x-duramen-session"][0]
    for path, method, parameters, status in (
        ("/v1/models/{model_id}", "get", {"model_id": "oak"}, 200),
        ("/v1/duramen/sessions/{session_id}", "get", {"session_id": session_id}, 200),
        ("/v1/duramen/sessions/{session_id}", "delete", {"session_id": session_id}, 200),
        ("/v1/duramen/sessions/{session_id}", "get", {"session_id": session_id}, 404),
    ):
        case = description[path][method].Case(path_parameters=parameters)
        assert case.call_and_validate(checks=HOLDS).status_code == status


# --- small malformed bodies ----------------------------------------------------------------------

CALL = {"id": "c", "type": "function", "function": {"name": "run", "arguments": '{"a": 1}'}}
PARTS = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
CHAT, RAW, TOKENIZE = "/v1/chat/completions", "/v1/completions", "/tokenize"
GOOD: list[tuple[str, dict[str, Any]]] = [
    (CHAT, {"messages": [user("hi")]}),
    (CHAT, {"messages": [user("hi")], "stream": True, "stream_options": {"include_usage": True}}),
    (
        CHAT,
        {
            "model": MODEL,
            "messages": [
                {"role": "system", "content": PARTS},
                user("go"),
                {"role": "assistant", "content": None, "tool_calls": [CALL]},
                {"role": "tool", "tool_call_id": "c", "content": "done"},
                {"role": "assistant", "content": "so", "reasoning_content": "hm"},
                user("on"),
            ],
            "tools": [RUN],
            "tool_choice": "auto",
            "n": 2,
            "stop": ["x", "yy"],
            "temperature": 0.5,
            "max_tokens": 8,
            "seed": 1,
            "logprobs": True,
            "response_format": {"type": "json_object"},
            "chat_template_kwargs": {"enable_thinking": False},
            "cache_salt": "s",
            "return_token_ids": True,
            "vllm_xargs": {"a": 1},
        },
    ),
    (RAW, {"prompt": "once", "max_tokens": 4, "stop": "x", "stream": False, "n": 1}),
    (RAW, {"prompt": [[1, 2], [3]], "stream": True}),
    (TOKENIZE, {"prompt": "once"}),
    (TOKENIZE, {"messages": [user("hi")], "tools": [RUN], "return_token_strs": True}),
]
ODD_VALUES: list[Any] = [
    None, True, False, 0, -0.0, -1, 2**31, 2**63, 2**64, -(2**63) - 1, 1e308, 5e-324, "", " ", "\0",
    "a\0b", "\u202e\ufeff\U0001f9ff", "\ufffd" * 3, "x" * 5000, "../../etc/passwd", "<|im_end|>",
    "<|im_start|>system\n", "{{ 7 * 7 }}", "\r\nx-evil: 1", [], {}, [[]], [{}], {"": {}}, [None],
    ["a", 1], {"role": 1}, {"type": "text"}, {"type": "text", "text": 5}, {"type": "image_url"},
    {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}, "nan", "true", "1e400",
    [CALL], {"function": "run"}, {"function": {"name": None}}, {"function": {"name": "run"}},
    {"function": {"name": "run", "arguments": "{" * 500}},
    {"function": {"name": "run", "arguments": {"a": [1, {"b": None}]}}},
]  # fmt: skip
ODD_NAMES = [
    "", "messages", "role", "content", "tool_calls", "kv_transfer_params", "priority", "n",
    "request_id", "cache_salt", "__class__", "self", "\0", "ключ", "k" * 3000, "stream", "echo",
]  # fmt: skip
ODD_NUMBERS = [b"1e400", b"-0", b"-1e400", b"NaN", b"Infinity", b"1" * 4000, b"01", b"1."]
ODD_BYTES = [
    b"\0", b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\\ud800", b"\\u0000", b"\xef\xbb\xbf", b"}",
    b"]", b'"', b",", b":", b"\\", b"[" * 300, b'{"a":' * 300, b"/*", b"\n", b"\x7f",
]  # fmt: skip
HEADERS = [
    b"content-type: application/json", b"content-type: text/plain", b"content-type: ;;;",
    b"content-encoding: gzip", b"content-encoding: br, x", b"accept: text/event-stream",
    b"x-duramen-session: s-1", b"x-duramen-session: " + b"s" * 300, b"x-duramen-session: /\xff%00",
    b"x-duramen-explain: 1", b"authorization: Bearer \xff", b"authorization: Basic Og==",
    b"x-forwarded-for: ::1", b"expect: 100-continue", b"cookie: " + b"a=b;" * 500,
]  # fmt: skip


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container with each of its keys or indices."""
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from places(value[key])


def mutated(rng: random.Random) -> tuple[str, bytes]:
    """A path, and a body that is a good one but for one to three changes."""
    path, good = rng.choice(GOOD)
    body = json.loads(json.dumps(good))
    for _ in range(rng.randint(0, 2)):
        found = list(places(body))
        if not found:
            break
        parent, key = rng.choice(found)
        change = rng.randrange(6)
        if change == 0:
            del parent[key]
        elif change == 1 and isinstance(parent, dict):
            parent[rng.choice(ODD_NAMES)] = parent.pop(key)
        elif change == 2 and isinstance(parent, dict):
            parent[rng.choice(ODD_NAMES)] = deepcopy(rng.choice(ODD_VALUES))
        elif change == 3 and isinstance(parent, list):
            parent += [parent[key]] * rng.randint(1, 20)
        elif change == 4:
            parent[key] = [parent[key]]
        else:
            parent[key] = deepcopy(rng.choice(ODD_VALUES))
    data = json.dumps(body, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    for _ in range(rng.randint(0, 1)):
        at = rng.randrange(len(data) + 1)
        change = rng.randrange(5)
        if change == 0:
            data = data[:at]
        elif change == 1:
            data = data[:at] + rng.choice(ODD_BYTES) + data[at:]
        elif change == 2:
            digits = [i for i, byte in enumerate(data) if 0x30 <= byte <= 0x39] or [0]
            i = rng.choice(digits)
            data = data[:i] + rng.choice(ODD_NUMBERS) + data[i + 1 :]
        elif change == 3:  # every key stands there twice
            data = data[:-1] + b"," + data[1:] if data[:1] == b"{" and len(data) > 2 else data * 2
        else:
            data = data[:at] + bytes(rng.randrange(256) for _ in range(8)) + data[at + 8 :]
    return path, data


def framed(rng: random.Random, path: str, data: bytes) -> bytes:
    """The request, its body announced or in chunks."""
    head = [b"POST " + path.encode() + b" HTTP/1.1", b"host: tree"]
    head += rng.sample(HEADERS, rng.randrange(3))
    if rng.random() < 0.7:
        return b"\r\n".join([*head, b"content-length: %d" % len(data), b"", data])
    size = rng.randint(1, max(len(data), 1))
    chunks = [data[i : i + size] for i in range(0, len(data), size)][:64]
    sent = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    return b"\r\n".join([*head, b"transfer-encoding: chunked", b"", sent + b"0\r\n\r\n"])


class Answer:
    """Takes one HTTP response: httptools calls it."""

    def __init__(self) -> None:
        self.body = b""
        self.is_whole = False
        self.status = 0
        self._parser = httptools.HttpResponseParser(self)

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        self.is_whole = self.status != 100

    async def read(self, reader: asyncio.StreamReader) -> "Answer":
        """Until it is whole or the connection ends. Fails if that takes too long."""
        async with asyncio.timeout(ANSWERED_S):
            while not self.is_whole and (data := await reader.read(2**16)):
                self._parser.feed_data(data)
        return self


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def one_after_another(port: int, requests: Iterator[bytes], seen: Counter[int]) -> None:
    """On one connection, and on a new one where the gateway closed it."""
    request = next(requests, None)
    while request is not None:
        async with connected(port) as (reader, writer):
            while request is not None and not reader.at_eof():
                writer.write(request)
                answer = await Answer().read(reader)
                seen[answer.status] += 1
                assert 200 <= answer.status < 500, (answer.status, request, answer.body)
                if answer.status >= 400:
                    error = json.loads(answer.body)["error"]
                    assert error.keys() == {"message", "type", "param", "code"}
                request = next(requests, None)


async def test_malformed_bodies(child: Child, notice: Callable[[str], None]) -> None:
    rng = random.Random(1201)
    seen: Counter[int] = Counter()

    async def send(num_requests: int) -> None:
        requests = iter([framed(rng, *mutated(rng)) for _ in range(num_requests)])
        lanes = (one_after_another(child.port, requests, seen) for _ in range(NUM_CONNECTIONS))
        await asyncio.gather(*lanes)

    await send(NUM_BODIES // 10)
    before_mb = child.rss_mb()
    await send(NUM_BODIES)
    after_mb = child.rss_mb()
    notice(f"malformed bodies: {dict(seen)}, {before_mb:.0f} MB before, {after_mb:.0f} MB after")
    assert after_mb < before_mb + GROWN_MB
    assert seen[200] > NUM_BODIES // 50  # some are good all the same
    assert seen[400] > NUM_BODIES // 2
    await serves_exactly(child)


async def serves_exactly(child: Child) -> None:
    """A conversation of two turns has the ids of the first verbatim in the second."""
    messages = [user("How old is this oak?")]
    ids: list[int] = []
    for _ in range(3):
        body = {"model": MODEL, "messages": messages, "return_token_ids": True, "max_tokens": 9}
        async with aiohttp.ClientSession() as client:
            timeout = aiohttp.ClientTimeout(ANSWERED_S)
            async with client.post(f"{child.url}{CHAT}", json=body, timeout=timeout) as response:
                assert response.status == 200
                assert response.headers["x-duramen-token-exact"] == "true"
                answer = await response.json()
        prompt, [choice] = answer["prompt_token_ids"], answer["choices"]
        assert prompt[: len(ids)] == ids
        ids = prompt + choice["token_ids"]
        messages += [choice["message"], user("And now?")]


# --- how bodies come -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "statuses"),
    [
        (b"content-length: 1\r\n\r\n{}GET / HTTP/1.1\r\n\r\n", {400}),
        (b"content-length: -1\r\n\r\n{}", {400}),
        (b"content-length: " + b"9" * 400 + b"\r\n\r\n{}", {400}),
        (b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}", {400}),
        (b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", {400}),
        (b"transfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n", {400}),
        (b"transfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n{}", {400}),
        (b"transfer-encoding: gzip\r\n\r\n{}", {400}),
        (b"upgrade: websocket\r\nconnection: upgrade\r\ncontent-length: 2\r\n\r\n{}", {400}),
        (b"x: " + b"y" * 2**20, {0}),  # a head without end
        (b"x: y\r\n" * 2**18, {0}),
        (b"x y\r\n\r\n", {400}),
    ],
)
async def test_bodies_that_are_framed_wrong(child: Child, sent: bytes, statuses: set[int]) -> None:
    answer = Answer()
    async with connected(child.port) as (reader, writer):
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: tree\r\n" + sent)
        with suppress(ConnectionResetError):
            await answer.read(reader)
    assert answer.status in statuses, answer.body


def nothing_but(unit: bytes, num_bytes: int, before: bytes = b"", after: bytes = b"") -> bytes:
    room = num_bytes - len(before) - len(after)
    return before + unit * (room // len(unit)) + after


def in_messages(unit: bytes, num_bytes: int) -> bytes:
    return nothing_but(unit, num_bytes, b'{"messages":[', unit[:-1] + b"]}")


def large_bodies() -> list[tuple[bytes, set[int]]]:
    """20 MB each, and a little less than the limit of 16."""
    text = (b'{"messages":[{"role":"user","content":"', b'"}]}')
    below = 16 * MB - 100
    words = b'{"messages":[{"role":"user",'
    return [
        (nothing_but(b"wood ", 20 * MB, *text), {413}),
        (nothing_but(b"\xff", 20 * MB), {413}),
        (in_messages(b"{},", 20 * MB), {413}),
        (nothing_but(b"[", 20 * MB), {413}),
        (nothing_but(b"wood ", below, *text), {400}),
        (nothing_but(b"\\u0000", below, *text), {400}),
        (nothing_but(b"\xf0\x9f\xa7\xbf", below, *text), {400}),
        (nothing_but(b"\0", below), {400}),
        (nothing_but(b" ", below), {400}),
        (nothing_but(b"1", below, b'{"messages":', b"}"), {400}),
        (nothing_but(b"[", below), {413}),
        (in_messages(b"{},", below), {413}),
        (in_messages(b"[],", below), {413}),
        (in_messages(b'{"role":"user"},', below), TOO_MUCH),
        (in_messages(b'{"role":"assistant","content":"a"},', below), TOO_MUCH),
        (nothing_but(b'"a",', below, words + b'"content":[', b'""]}]}'), TOO_MUCH),
        (nothing_but(b'"wood",', below, words + b'"x":[', b'""]}]}'), TOO_MUCH),
        (nothing_but(b"1,", below, b'{"prompt":[', b"1]}"), {413}),
        (nothing_but(b"0,", below, words + b'"content":"a"}],"documents":[', b"0]}"), {413}),
        (nothing_but(b"9", below, *text), {400}),
    ]  # fmt: skip


async def pieces(data: bytes, framing: str) -> AsyncIterator[bytes]:
    """A request with this body, 1 MB at a time."""
    is_announced = framing == "announced"
    yield b"POST /v1/chat/completions HTTP/1.1\r\nhost: tree\r\n"
    yield b"content-length: %d\r\n\r\n" % len(data) if is_announced else CHUNKED
    for start in range(0, len(data), MB):
        part = data[start : start + MB]
        yield part if is_announced else b"%x\r\n%b\r\n" % (len(part), part)
        if framing == "slow":
            await asyncio.sleep(0.05)
    if not is_announced:
        yield b"0\r\n\r\n"


@pytest.mark.parametrize(
    "shift", [0, pytest.param(1, marks=pytest.mark.long), pytest.param(2, marks=pytest.mark.long)]
)
async def test_large_bodies(child: Child, shift: int, notice: Callable[[str], None]) -> None:
    """Each comes in one of three ways; the `long` tests have the other two."""
    bodies = list(zip(large_bodies(), cycle(FRAMINGS[shift:] + FRAMINGS[:shift]), strict=False))
    assert len(bodies) == 20
    await serves_exactly(child)
    before_mb = child.rss_mb()
    peaks: list[float] = []

    async def send(data: bytes, statuses: set[int], framing: str) -> None:
        async with connected(child.port) as (reader, writer):
            reading = asyncio.create_task(Answer().read(reader))
            async for piece in pieces(data, framing):
                if reading.done():
                    break
                writer.write(piece)
                with suppress(ConnectionResetError):  # it has read enough
                    await writer.drain()
                peaks.append(child.rss_mb())
            answer = await reading
        assert answer.status in statuses, (data[:60], answer.body[:300])

    async with asyncio.timeout(5 * ANSWERED_S):
        for four in batched(bodies, 4):
            await asyncio.gather(
                *(send(*body, framing) for body, framing in four), serves_exactly(child)
            )
    after_mb = child.rss_mb()
    notice(
        f"large bodies: {before_mb:.0f} MB before, at most {max(peaks):.0f} MB while, "
        f"{after_mb:.0f} MB after"
    )
    assert after_mb < before_mb + GROWN_MB
    assert max(peaks) < before_mb + PEAK_MB
    await serves_exactly(child)


def batched(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
