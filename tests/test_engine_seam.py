"""The seam against servers that do what vLLM must not, and its fallback."""

from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp.web
import pytest
from aiohttp.web import StreamResponse

from duramen.layout.errors import EngineError
from duramen.serving.vllm.http import EngineHttp
from duramen.serving.vllm.protocol import Sampling
from duramen.serving.vllm.seam import ChatSeam, GenerateSeam, find_seam


def events(*bodies: object) -> Callable[[aiohttp.web.Request], Awaitable[StreamResponse]]:
    """A handler that streams these; None at the end drops the connection."""

    async def handler(request: aiohttp.web.Request) -> StreamResponse:
        response = StreamResponse()
        await response.prepare(request)
        for body in bodies:
            if body is None:
                assert request.transport is not None
                request.transport.abort()
            else:
                await response.write(f"data: {body}\n\n".encode())
        return response

    return handler


async def fails(request: aiohttp.web.Request) -> aiohttp.web.Response:
    return aiohttp.web.Response(status=500, text="out\nof order")


async def parses(request: aiohttp.web.Request) -> aiohttp.web.Response:
    message = {"role": "assistant", "content": "parsed"}
    return aiohttp.web.json_response({"choices": [{"message": message}]})


OWN_PROMPT = '{"choices": [], "prompt_token_ids": [1, 2]}'
OUR_PROMPT = '{"choices": [], "prompt_token_ids": [3, 1, 2]}'
ANSWER = '{"choices": [{"token_ids": [5], "finish_reason": "length"}]}'
USAGE = '{"choices": [], "usage": {"prompt_tokens": 3}}'
BROKEN = '{"error": {"message": "core died", "code": 500}}'


@pytest.fixture
async def odd_server() -> AsyncIterator[str]:
    """The address of a server that does what vLLM must not, each under its own path."""
    app = aiohttp.web.Application()
    for path, handler in {
        "/own/v1/chat/completions": events(OWN_PROMPT),
        "/ends/v1/chat/completions": events(OUR_PROMPT),
        "/drops/v1/chat/completions": events(OUR_PROMPT, None),
        "/broken/v1/chat/completions": events(OUR_PROMPT, BROKEN),
        "/silent/v1/chat/completions": events(ANSWER, USAGE, "[DONE]"),
        "/fails/v1/chat/completions": fails,
        "/own/inference/v1/generate": events(OUR_PROMPT, ANSWER, USAGE, "[DONE]"),
        "/own/v1/chat/completions/derender": parses,
    }.items():
        app.router.add_post(path, handler)
    runner = aiohttp.web.AppRunner(app)
    await runner.setup()
    await aiohttp.web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0]
    yield f"http://{host}:{port}"
    await runner.cleanup()


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("own", "ran other token ids than the 3 sent"),
        ("ends", "broke off in the middle of an answer. its last words"),
        ("drops", "no answer from the engine .* its last words"),
        ("broken", "failed .500.: core died its last words"),
        ("silent", "did not say which token ids it ran"),
        ("fails", "failed .500.: out of order its last words"),
        ("missing", "refused the request .404."),
    ],
)
async def test_what_a_server_must_not_do(path: str, message: str, odd_server: str) -> None:
    http = EngineHttp(f"{odd_server}/{path}", lambda: "its last words")
    try:
        with pytest.raises(EngineError, match=message):
            await ChatSeam(http, "m").run([3, 1, 2], Sampling(max_tokens=1), (), "", None)
    finally:
        await http.close()


async def test_the_fallback_where_the_chat_endpoint_renders_itself(odd_server: str) -> None:
    http = EngineHttp(f"{odd_server}/own", lambda: "")
    try:
        seam, probe = await find_seam(http, "m")
    finally:
        await http.close()
    assert isinstance(seam, GenerateSeam)
    assert (probe.token_ids, probe.message["content"]) == ((5,), "parsed")
    assert probe.cached_tokens is None  # not reported is not zero


async def test_no_way_through(odd_server: str) -> None:
    http = EngineHttp(f"{odd_server}/fails", lambda: "")
    try:
        with pytest.raises(EngineError, match=r"no token ids of ours: .*500.*; .*404"):
            await find_seam(http, "m")
    finally:
        await http.close()
