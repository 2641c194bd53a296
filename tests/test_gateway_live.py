"""The openai SDK, unchanged, drives every endpoint and every error of a gateway on real vLLM."""

import asyncio
import json
import urllib.request
from collections.abc import Callable, Sequence
from typing import Any, Literal

import openai
import pytest
from gateway_cases import Message, as_message, put_together, user
from gateway_live_cases import (
    ALIAS,
    MAX_BODY_BYTES,
    MODEL,
    UNIT,
    LiveGateway,
    client_of,
    fresh,
    wait_for,
)
from pydantic import BaseModel

from duramen.experiments.roundtrips import Summary, run_conversations, summarise

pytestmark = pytest.mark.live

EXPLAIN = {"x-duramen-explain": "1"}
IDS = {"return_token_ids": True}
CITY: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells the weather of a city.",
        "parameters": CITY,
        "strict": True,  # else vLLM does not hold the model to the parameters
    },
}
NAMED = {"type": "function", "function": {"name": "weather"}}
IMAGE = "data:image/png;base64,iVBORw0KGgo="


class City(BaseModel):
    city: Literal["Paris", "Rome"]


def ask(text: str = "What is the capital of France?", **options: Any) -> dict[str, Any]:
    """A request for a talk of its own."""
    return {
        "model": MODEL,
        "messages": fresh(text),
        "temperature": 0,
        "max_completion_tokens": 12,
    } | options


async def chat(gateway: LiveGateway, **request: Any) -> Any:
    async with gateway.client() as client:
        return await client.chat.completions.create(**request)


async def stream(gateway: LiveGateway, **request: Any) -> list[Any]:
    async with gateway.client() as client:
        chunks = await client.chat.completions.create(stream=True, **request)
        return [chunk async for chunk in chunks]


def sampled_ids(chunks: Sequence[Any]) -> list[int]:
    choices = [choice for chunk in chunks for choice in chunk.choices]
    return [i for choice in choices for i in choice.model_extra.get("token_ids") or ()]


async def refused(gateway: LiveGateway, **request: Any) -> openai.APIStatusError:
    with pytest.raises(openai.APIStatusError) as caught:
        await chat(gateway, **request)
    error = caught.value
    assert isinstance(error.body, dict)
    assert error.body.keys() == {"message", "type", "param", "code"}
    assert error.request_id is not None
    assert error.request_id.startswith("req-")
    return error


def metric(url: str, name: str) -> float:
    """The value on a /metrics page of the series that starts with `name`; 0 if it is not there."""
    with urllib.request.urlopen(url + "/metrics") as page:
        lines = page.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


async def test_an_answer_and_its_usage(live_gateway: LiveGateway) -> None:
    async with live_gateway.client() as client:
        raw = await client.chat.completions.with_raw_response.create(**ask())
    answer = raw.parse()
    assert raw.headers["x-duramen-token-exact"] == "true"
    assert raw.headers["x-duramen-session"].startswith("s-")
    assert (answer.object, answer.model) == ("chat.completion", MODEL)
    (choice,) = answer.choices
    assert choice.message.role == "assistant"
    assert "Paris" in (choice.message.content or "")
    assert choice.finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 0
    assert answer.usage.completion_tokens < 12
    assert "prompt_token_ids" not in answer.model_extra
    assert "duramen" not in answer.model_extra


async def test_a_stream_says_the_same_as_an_answer(live_gateway: LiveGateway) -> None:
    request = ask(seed=7, extra_body=IDS)
    answer = await chat(live_gateway, **request)
    chunks = await stream(live_gateway, **request, stream_options={"include_usage": True})
    assert put_together(chunks)["content"] == answer.choices[0].message.content
    assert chunks[0].prompt_token_ids == answer.prompt_token_ids
    streamed = sampled_ids(chunks)
    assert streamed == answer.choices[0].token_ids
    assert {chunk.model for chunk in chunks} == {MODEL}
    assert [chunk.usage is None for chunk in chunks] == [True] * (len(chunks) - 1) + [False]
    assert (chunks[-1].choices, chunks[-1].usage.completion_tokens) == ([], len(streamed))


async def test_a_stream_without_usage_has_none(live_gateway: LiveGateway) -> None:
    chunks = await stream(live_gateway, **ask())
    assert all(chunk.choices and chunk.usage is None for chunk in chunks)
    assert not any("prompt_token_ids" in chunk.model_extra for chunk in chunks)


async def test_the_blocking_sdk(live_gateway: LiveGateway) -> None:
    def talk() -> str:
        with openai.OpenAI(base_url=live_gateway.url, api_key="none") as client:
            chunks = list(client.chat.completions.create(stream=True, **ask()))
            return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)

    assert "Paris" in await asyncio.to_thread(talk)


async def test_the_sdk_s_stream_helper(live_gateway: LiveGateway) -> None:
    async with (
        live_gateway.client() as client,
        client.chat.completions.stream(**ask()) as events,
    ):
        final = await events.get_final_completion()
    assert "Paris" in (final.choices[0].message.content or "")


async def test_models_and_aliases(live_gateway: LiveGateway) -> None:
    async with live_gateway.client() as client:
        assert [model.id async for model in client.models.list()] == [MODEL, ALIAS]
        card = await client.models.retrieve(ALIAS)
        assert card.to_dict() | {"created": 0} == {
            "id": ALIAS,
            "object": "model",
            "created": 0,
            "owned_by": "duramen",
            "root": MODEL,
            "parent": None,
            "max_model_len": 8192,
        }
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve("gpt-4o")
    assert (await chat(live_gateway, **ask(model=ALIAS))).model == ALIAS


@pytest.mark.parametrize("choice", ["required", NAMED], ids=["required", "named"])
@pytest.mark.parametrize("streams", [False, True], ids=["answer", "stream"])
async def test_a_tool_that_must_be_called(
    live_gateway: LiveGateway, choice: Any, streams: bool
) -> None:
    """And its result, with which the conversation goes on."""
    request = ask("What is the weather in Rome?", tools=[WEATHER], extra_body=IDS)
    request |= {"max_completion_tokens": 48, "tool_choice": choice}
    if streams:
        chunks = await stream(live_gateway, **request)
        message, first_prompt = put_together(chunks), chunks[0].prompt_token_ids
        sampled = sampled_ids(chunks)
        finish = chunks[-1].choices[0].finish_reason
    else:
        answer = await chat(live_gateway, **request)
        message, first_prompt = as_message(answer.choices[0].message), answer.prompt_token_ids
        sampled = answer.choices[0].token_ids
        finish = answer.choices[0].finish_reason
    call = message["tool_calls"][0]
    assert call["function"]["name"] == "weather"
    City.model_validate_json(call["function"]["arguments"])
    assert finish in ("tool_calls", "stop")
    messages = [*request["messages"], message]
    messages += [
        {"role": "tool", "tool_call_id": call["id"], "content": "sunny"}
        for call in message["tool_calls"]
    ]
    answer = await chat(
        live_gateway,
        **request | {"messages": messages, "tool_choice": "none"},
        extra_headers=EXPLAIN,
    )
    assert answer.duramen["relation"] == "extends"
    assert answer.prompt_token_ids[: len(first_prompt) + len(sampled)] == first_prompt + sampled
    assert not answer.choices[0].message.tool_calls


@pytest.mark.parametrize("choice", ["auto", "none"])
async def test_a_tool_that_may_be_called_or_not(live_gateway: LiveGateway, choice: Any) -> None:
    request = ask("Say hello.", tools=[WEATHER], tool_choice=choice)
    (answered,) = (await chat(live_gateway, **request)).choices
    calls = answered.message.tool_calls or []
    assert [call.function.name for call in calls] in ([], ["weather"])
    assert not (calls and choice == "none")


async def test_parallel_tool_calls_in_the_history(
    live_gateway: LiveGateway, decode: Callable[[list[int]], str]
) -> None:
    calls = [
        {
            "id": f"call_{i}",
            "type": "function",
            "function": {"name": "weather", "arguments": json.dumps({"city": city})},
        }
        for i, city in enumerate(("Paris", "Rome"))
    ]
    messages: list[Message] = [
        *fresh("How is the weather in Paris and in Rome?"),
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "call_0", "content": "rain"},
        {"role": "tool", "tool_call_id": "call_1", "content": "sun"},
    ]
    answer = await chat(
        live_gateway,
        **ask(tools=[WEATHER], parallel_tool_calls=True, extra_body=IDS) | {"messages": messages},
    )
    text = decode(answer.prompt_token_ids)
    places = [text.index(part) for part in ('"Paris"}', '"Rome"}', "\nrain\n", "\nsun\n")]
    assert places == sorted(places)
    assert answer.choices[0].message.content


async def test_json_objects_and_schemas(live_gateway: LiveGateway) -> None:
    question = "Name a city as JSON."
    answer = await chat(
        live_gateway,
        **ask(question, response_format={"type": "json_object"}, max_completion_tokens=96),
    )
    text = answer.choices[0].message.content
    assert text.lstrip().startswith("{")
    if answer.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(text), dict)
    schema = {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY}}
    answer = await chat(
        live_gateway, **ask(question, response_format=schema, max_completion_tokens=32)
    )
    City.model_validate_json(answer.choices[0].message.content)


async def test_the_sdk_s_parse_helper(live_gateway: LiveGateway) -> None:
    async with live_gateway.client() as client:
        answer = await client.chat.completions.parse(
            **ask("Name a city as JSON.", max_completion_tokens=32), response_format=City
        )
    assert isinstance(answer.choices[0].message.parsed, City)


async def test_two_replies_to_one_prompt(live_gateway: LiveGateway) -> None:
    """Both can be gone on with; of two, nobody knows which one `cached_tokens` is about."""
    request = ask("Tell me a story.", extra_body=IDS) | {"n": 2, "temperature": 1}
    answer = await chat(live_gateway, **request)
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert answer.usage.prompt_tokens_details.cached_tokens is None
    for choice in answer.choices:
        messages = [*request["messages"], as_message(choice.message), user("Go on.")]
        behind = await chat(live_gateway, **request | {"messages": messages, "n": 1})
        past = answer.prompt_token_ids + choice.token_ids
        assert behind.prompt_token_ids[: len(past)] == past


@pytest.mark.parametrize("stop", ["Paris", ["Rome", "Paris"]], ids=["string", "list"])
async def test_stop_strings(live_gateway: LiveGateway, stop: Any) -> None:
    request = ask(extra_body=IDS)
    (stopped,) = (await chat(live_gateway, **request, stop=stop)).choices
    assert (stopped.finish_reason, stopped.model_extra["stop_reason"]) == ("stop", "Paris")
    assert "Paris" not in stopped.message.content
    assert stopped.message.content.startswith("The capital")


async def test_no_more_tokens_than_asked_for(live_gateway: LiveGateway) -> None:
    answer = await chat(live_gateway, **ask("Tell me a story.", max_completion_tokens=3))
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 3


async def test_logprobs(live_gateway: LiveGateway) -> None:
    request = ask(logprobs=True, top_logprobs=2, max_completion_tokens=3)
    whole = (await chat(live_gateway, **request)).choices[0].logprobs.content
    chunks = await stream(live_gateway, **request)
    parts = [chunk.choices[0].logprobs for chunk in chunks]
    streamed = [token for part in parts if part is not None for token in part.content or ()]
    for tokens in (whole, streamed):
        assert len(tokens) == 3
        assert all(len(token.top_logprobs) == 2 and token.logprob <= 0 for token in tokens)
        assert all(token.logprob == token.top_logprobs[0].logprob for token in tokens)


async def test_completions(live_gateway: LiveGateway) -> None:
    request: dict[str, Any] = {"model": ALIAS, "prompt": "One, two, three,", "temperature": 0}
    async with live_gateway.client() as client:
        raw = await client.completions.with_raw_response.create(**request, max_tokens=4)
        answer = raw.parse()
        assert raw.headers["x-duramen-token-exact"] == "false"
        assert (answer.model, answer.object) == (ALIAS, "text_completion")
        assert answer.choices[0].text.strip().startswith("four")
        chunks = await client.completions.create(**request, max_tokens=4, stream=True)
        text = "".join([chunk.choices[0].text async for chunk in chunks])
        assert text == answer.choices[0].text
        with pytest.raises(openai.BadRequestError) as caught:
            await client.completions.create(**request | {"prompt": []})
        assert caught.value.param == "prompt"


async def test_an_unknown_model(live_gateway: LiveGateway) -> None:
    error = await refused(live_gateway, **ask(model="gpt-4o"))
    assert isinstance(error, openai.NotFoundError)
    assert (error.code, error.param) == ("model_not_found", "model")


async def test_more_than_the_context_holds(live_gateway: LiveGateway) -> None:
    """Of messages alone the gateway says so; with max_tokens vLLM does."""
    too_long = await refused(live_gateway, **ask("word " * 9000))
    assert isinstance(too_long, openai.BadRequestError)
    assert (too_long.code, too_long.param) == ("context_length_exceeded", "messages")
    assert "maximum context length is 8192 tokens" in too_long.message
    too_much = await refused(live_gateway, **ask(max_completion_tokens=9000))
    assert isinstance(too_much, openai.BadRequestError)
    assert too_much.code == "context_length_exceeded"


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"temperature": "hot"}, "temperature"),
        ({"n": 0}, "n"),
        ({"stop": 3}, "stop"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"temperature": -1}, "temperature"),  # from here on it is vLLM that refuses
        ({"top_p": 2}, "top_p"),
        ({"tool_choice": "required"}, "tool_choice"),
    ],
)
async def test_bad_fields(live_gateway: LiveGateway, change: dict[str, Any], param: str) -> None:
    error = await refused(live_gateway, **ask() | change)
    assert isinstance(error, openai.BadRequestError)
    assert (error.type, error.param) == ("invalid_request_error", param)


async def test_a_body_beyond_the_limit(live_gateway: LiveGateway) -> None:
    error = await refused(live_gateway, **ask("x" * MAX_BODY_BYTES))
    assert (error.status_code, error.code) == (413, "body_too_large")


async def test_what_was_predicted_is_delivered(live_gateway: LiveGateway) -> None:
    """One call after the other: what is reusable, what was predicted and what came are one."""
    messages = fresh("Tell me a story of a river, a bridge and an old clock in many words.")
    past: list[int] = []
    cached = []
    for turn in range(4):
        request = ask(extra_body=IDS, extra_headers=EXPLAIN, max_completion_tokens=40)
        answer = await chat(live_gateway, **request | {"messages": messages, "temperature": 1})
        told = answer.duramen
        bound = len(past) // UNIT * UNIT
        assert told["relation"] == ("extends" if turn else "new")
        assert told["break"] == (None if turn else "uuid")  # in the system message of each talk
        assert (told["token_exact"], told["deviations"]) == (True, [])
        assert told["recorded_tokens"] == len(past)
        assert told["bounds"]["unit"] == told["delivered_tokens"] == bound
        assert told["predicted_tokens"] == [bound, bound]
        assert told["mismatch"] is None
        assert answer.usage.prompt_tokens_details.cached_tokens == bound
        assert answer.prompt_token_ids[: len(past)] == past
        past = answer.prompt_token_ids + answer.choices[0].token_ids
        cached.append(bound)
        messages += [as_message(answer.choices[0].message), user(f"Go on, part {turn}.")]
        await live_gateway.settled(past[:-1])  # the last one's keys and values were never computed
    assert cached[0] == 0 < cached[1] < cached[2] < cached[3]


async def test_tokenize_says_what_is_sent(live_gateway: LiveGateway) -> None:
    messages = fresh("Tell me a story.")
    async with live_gateway.client() as client:
        for turn in range(2):
            counted = await client.post(
                live_gateway.root + "/tokenize",
                cast_to=object,
                body={"model": MODEL, "messages": messages, "return_token_strs": True},
            )
            assert isinstance(counted, dict)
            answer = await chat(live_gateway, **ask(extra_body=IDS) | {"messages": messages})
            assert counted["tokens"] == answer.prompt_token_ids
            assert counted["count"] == len(counted["token_strs"]) == answer.usage.prompt_tokens
            assert counted["max_model_len"] == 8192
            messages += [as_message(answer.choices[0].message), user(f"Go on, {turn}.")]
        plain = await client.post(
            live_gateway.root + "/tokenize", cast_to=object, body={"prompt": "One, two"}
        )
        assert isinstance(plain, dict)
        assert plain["count"] == len(plain["tokens"]) == 3


async def test_an_image_is_left_to_the_engine(live_gateway: LiveGateway) -> None:
    """SmolLM2 sees none: its refusal arrives as vLLM wrote it, and counts as not token-exact."""
    series = 'duramen_calls_total{exact="false",status="refused"}'
    before = await asyncio.to_thread(metric, live_gateway.root, series)
    parts: Any = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": IMAGE}},
    ]
    error = await refused(live_gateway, **ask() | {"messages": [user(parts)]})
    assert isinstance(error, openai.BadRequestError)
    assert "not a multimodal model" in error.message
    assert await asyncio.to_thread(metric, live_gateway.root, series) == before + 1


async def test_an_echo_is_left_to_the_engine(live_gateway: LiveGateway) -> None:
    request = ask(extra_body={"echo": True}, extra_headers=EXPLAIN, max_completion_tokens=3)
    async with live_gateway.client() as client:
        raw = await client.chat.completions.with_raw_response.create(**request)
    told = raw.parse().duramen
    assert raw.headers["x-duramen-token-exact"] == "false"
    assert (told["token_exact"], told["not_exact_because"]) == (
        False,
        "echo is rendered by the engine",
    )


@pytest.mark.parametrize("streams", [False, True], ids=["answer", "stream"])
async def test_a_client_that_leaves(live_gateway: LiveGateway, streams: bool) -> None:
    """vLLM stops to decode for it: 4,000 tokens would take minutes here."""
    request = ask("Count from one to a thousand.", max_completion_tokens=4000)
    request["extra_body"] = {"ignore_eos": True}
    running = "vllm:num_requests_running"

    def is_running(expected: bool) -> bool:
        return (metric(live_gateway.vllm.url, running) > 0) is expected

    await wait_for(lambda: is_running(False))
    async with live_gateway.client() as client:
        create: Any = client.chat.completions.create
        call = asyncio.create_task(create(stream=streams, **request))
        if streams:
            chunks = await call
            await anext(aiter(chunks))
        await wait_for(lambda: is_running(True))
        if streams:
            await chunks.close()
        else:
            call.cancel()
    await wait_for(lambda: is_running(False), limit_s=20)
    gateway = live_gateway.run.gateway
    await wait_for(lambda: gateway.admission.num_running == 0)
    assert not [s for s in gateway.tree._sessions.values() if s.num_running]


async def test_conversations_that_clients_respell(
    live_gateway: LiveGateway, notice: Callable[[str], None]
) -> None:
    """No break; beside it the same talks straight at vLLM, which renders the history anew."""

    async def run(name: str, url: str, model: str) -> Summary:
        async with client_of(url) as client:
            turns = await run_conversations(
                client, model, num=16, turns=4, concurrency=8, unit=UNIT, salt=name
            )
        told = summarise(turns)
        notice(
            f"16 talks of 4 turns, {name}: {told.num_breaks} of {told.num_follow_ups} follow-ups "
            f"broke, {told.uncached_tokens:,} of {told.prompt_tokens:,} prompt tokens computed"
        )
        return told

    vllm_url = live_gateway.vllm.url + "/v1"
    async with client_of(vllm_url) as client:
        (served,) = [model.id async for model in client.models.list()]
    told, _ = await asyncio.gather(
        run("gateway", live_gateway.url, MODEL), run("vLLM alone", vllm_url, served)
    )
    assert told.num_follow_ups == 48
    assert (told.num_breaks, told.off_bound, told.off_prediction) == (0, 0, 0)
