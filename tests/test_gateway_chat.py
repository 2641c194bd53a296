"""The OpenAI SDK against the whole gateway: answers, errors, names, policies."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import openai
import pytest
import pytest_asyncio
from gateway_cases import (
    MODEL,
    Case,
    gateway,
    get,
    put_together,
    says,
    streamed,
    system,
    user,
)
from starlette.requests import Request

from duramen.layout.errors import RequestError
from duramen.serving.gateway.errors import ApiError
from duramen.serving.gateway.headers import session_of
from duramen.serving.gateway.settings import Limits, Settings

pytestmark = pytest.mark.asyncio(loop_scope="module")
EXPLAIN = {"x-duramen-explain": "1"}
HI = [system(), user("hi")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def case(smollm2: Path) -> AsyncIterator[Case]:
    limits = Limits(max_body_bytes=100_000)
    async with gateway(smollm2, Settings(aliases=("oak",), limits=limits)) as case:
        yield case


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(case: Case) -> AsyncIterator[openai.AsyncOpenAI]:
    async with case.client() as client:
        yield client


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def settled(case: Case) -> AsyncIterator[None]:
    case.engine.bodies.clear()
    yield
    await case.settled()


ERRORS: dict[str, tuple[dict[str, Any], type[openai.APIStatusError], str | None, str | None]] = {
    "model": ({"model": "elm"}, openai.NotFoundError, "model_not_found", "model"),
    "no messages": ({"messages": []}, openai.BadRequestError, None, "messages"),
    "n": ({"n": 0}, openai.BadRequestError, None, "n"),
    "role": ({"messages": [{"content": "x"}]}, openai.BadRequestError, None, "messages[0].role"),
    "tools": ({"tools": [{"type": "function"}]}, openai.BadRequestError, None, "tools[0].function"),
    "too long": (
        {"messages": [user("many words " * 5000)]},
        openai.BadRequestError,
        "context_length_exceeded",
        "messages",
    ),
    "too large": (
        {"messages": [user("x" * 100_001)]},
        openai.APIStatusError,
        "body_too_large",
        None,
    ),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", ERRORS)
async def test_a_refusal(case: Case, client: openai.AsyncOpenAI, name: str, stream: bool) -> None:
    request, kind, code, param = ERRORS[name]
    with pytest.raises(kind) as refused:
        await client.chat.completions.create(
            **{"model": MODEL, "messages": HI, "stream": stream} | request
        )
    error = refused.value
    assert (error.code, error.param, error.type) == (code, param, "invalid_request_error")
    assert error.status_code == (413 if name == "too large" else kind.status_code)
    assert error.response.headers["x-request-id"].startswith("req-")
    assert not case.engine.bodies


async def test_what_the_engine_refuses(case: Case, client: openai.AsyncOpenAI) -> None:
    case.engine.script.append(RequestError("top_k must be -1 or more", 400, param="top_k"))
    with pytest.raises(openai.BadRequestError) as refused:
        await streamed(client, messages=HI)
    assert (refused.value.param, refused.value.code) == ("top_k", None)


async def test_names_of_sessions(case: Case, client: openai.AsyncOpenAI) -> None:
    for good in ("a", "x" * 256, "a%0d%0aset-cookie:%20b", "..%2f", "'\"\\", "é".encode().hex()):
        raw = await client.chat.completions.with_raw_response.create(
            model=MODEL, messages=HI, max_tokens=1, extra_headers={"x-duramen-session": good}
        )
        assert raw.headers["x-duramen-session"] == good
        assert "set-cookie" not in raw.headers
        assert good in [s["id"] for s in (await get(client, "/duramen/sessions"))["data"]]
    for bad in ("", "x" * 257, "a b"):
        with pytest.raises(openai.BadRequestError) as refused:
            await client.chat.completions.create(
                model=MODEL,
                messages=HI,
                extra_headers={"x-duramen-session": bad},
            )
        assert refused.value.param == "x-duramen-session"
    header = (b"x-duramen-session", "é".encode())
    with pytest.raises(ApiError, match="printable ASCII"):
        session_of(Request({"type": "http", "headers": [header]}))


async def test_a_session_is_shown_and_deleted(case: Case, client: openai.AsyncOpenAI) -> None:
    header = {"x-duramen-session": "shown"}
    case.engine.script += [says(case, "hello"), says(case, "bye")]
    reply = put_together(await streamed(client, messages=HI, extra_headers=header))
    await streamed(client, messages=[*HI, reply, user("and?")], extra_headers=header)
    await case.settled()
    first, second = (await get(client, "/duramen/sessions/shown"))["calls"]
    assert (first["parent"], second["parent"]) == (None, first["turn"])
    assert [first["num_messages"], second["num_messages"]] == [2, 4]
    assert first["replies"] == [{"index": 0, "sampled_tokens": 2, "finish_reason": "stop"}]
    assert first["added_tokens"] + 2 + second["added_tokens"] == len(case.sent())
    assert {span["zone"] for span in first["spans"]} == {"root", "leaf"}
    assert second["account"]["relation"] == "extends"
    assert "hello" not in str([first, second])
    done = await client.delete("/duramen/sessions/shown", cast_to=object)
    assert done == {"id": "shown", "object": "session", "deleted": True}
    for call in (get(client, "/duramen/sessions/shown"),):
        with pytest.raises(openai.NotFoundError) as unknown:
            await call
        assert unknown.value.code == "session_not_found"


async def test_usage_says_what_was_cached(case: Case, client: openai.AsyncOpenAI) -> None:
    messages = [system("Long enough for a block or two. " * 4), user("usage")]
    sent = 0
    for cached in (False, True):
        answer = await client.chat.completions.create(model=MODEL, messages=messages, max_tokens=2)
        assert answer.usage is not None
        assert answer.usage.prompt_tokens_details is not None
        sent = (len(case.sent()) - 1) // 16 * 16
        assert answer.usage.prompt_tokens_details.cached_tokens == sent * cached
    several = await client.chat.completions.create(
        model=MODEL, messages=messages, max_tokens=2, n=2
    )
    assert several.usage.to_dict()["prompt_tokens_details"] == {"cached_tokens": None}
    assert several.usage.completion_tokens == 4
    plain = await streamed(client, messages=messages, max_tokens=2)
    assert all(chunk.usage is None and chunk.choices for chunk in plain)
    asked = await streamed(
        client, messages=messages, max_tokens=2, stream_options={"include_usage": True}
    )
    assert asked[-1].choices == []
    assert asked[-1].usage.prompt_tokens_details.cached_tokens == sent


async def test_ids_and_the_explanation_only_where_asked_for(
    case: Case, client: openai.AsyncOpenAI
) -> None:
    case.engine.script += [says(case, "hello")] * 4
    chunks = await streamed(client, messages=HI)
    assert not any("token_ids" in str(chunk) or "duramen" in str(chunk) for chunk in chunks)
    assert {chunk.model for chunk in chunks} == {MODEL}
    chunks = await streamed(
        client, messages=HI, extra_body={"return_token_ids": True}, extra_headers=EXPLAIN
    )
    assert chunks[0].prompt_token_ids == case.sent()
    ids = [i for chunk in chunks for c in chunk.choices for i in c.to_dict().get("token_ids", ())]
    assert ids == [*case.encode("hello"), 2]
    assert chunks[-1].duramen["sampled_tokens"] == len(ids)
    answer = await client.chat.completions.create(
        model="oak", messages=HI, extra_body={"return_token_ids": True}
    )
    assert answer.model == "oak"
    assert answer.to_dict()["prompt_token_ids"] == case.sent()
    answer = await client.chat.completions.create(model=MODEL, messages=HI)
    assert "prompt_token_ids" not in answer.to_dict()


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}


@pytest.mark.parametrize(
    "request_",
    [
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "look"}, IMAGE]}]},
        {"messages": HI, "extra_body": {"echo": True}},
        {"messages": [{"role": "oracle", "content": "unknown to our template"}]},
    ],
    ids=["image", "echo", "role"],
)
async def test_what_only_the_engine_can_render(
    case: Case, client: openai.AsyncOpenAI, request_: dict[str, Any]
) -> None:
    raw = await client.chat.completions.with_raw_response.create(
        model=MODEL, max_tokens=2, extra_headers=EXPLAIN, **request_
    )
    assert raw.headers["x-duramen-token-exact"] == "false"
    told = raw.parse().duramen
    assert told["token_exact"] is False
    assert told["not_exact_because"]
    assert case.engine.bodies[-1]["messages"] == request_["messages"]
    assert "kv_transfer_params" not in case.engine.bodies[-1]


async def test_health_and_models(case: Case, client: openai.AsyncOpenAI) -> None:
    assert [m.id async for m in client.models.list()] == [MODEL, "oak"]
    assert (await client.models.retrieve("oak")).id == "oak"
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("elm")
    health = msgspec.convert(await get(client, "/../health"), dict[str, Any])
    assert (health["status"], health["reason"], health["store"]) == ("ready", None, "ok")
