"""vLLM's HTTP over the fake engine, as far as `duramen verify` asks, and ways to spoil it.

Its prompts are made by transformers' rules out of our template's text: encoded whole, so that a
control token's spelling in data becomes that token, as in vLLM.
"""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp.web
import msgspec
import tokenizers
import zmq
import zmq.asyncio
from aiohttp.web import Request, Response, StreamResponse
from test_engine_events import Publisher

from duramen.layout.blocks import BlockHash
from duramen.layout.chat_messages import template_tools
from duramen.layout.template import ChatTemplate, load_chat_template
from duramen.serving.kv.pool import Cleared, Removed
from duramen.serving.vllm.events import AllBlocksCleared, BlockRemoved, BlockStored
from duramen.serving.vllm.fake import FakeEngine
from duramen.serving.vllm.launch import EventEndpoints

VOCABULARY, EOS, FIRST_SAMPLED = 49152, 2, 1000
NAMES = (
    "time_to_first_token_seconds",
    "request_queue_time_seconds",
    "request_prefill_time_seconds",
)
METRICS = (
    'vllm:cache_config_info{block_size="16",num_gpu_blocks="4096"} 1.0\n'
    + "".join(f"vllm:{name}_sum 1.0\nvllm:{name}_count 2.0\n" for name in NAMES)
    + 'vllm:num_preemptions_total 0.0\nvllm:prompt_tokens_by_source_total{source="x"} 8.0\n'
)
CALLED = '{"on": true}'

Body = dict[str, Any]
Spoil = Callable[[str, Body, Any], Any]  # path, request, answer (or one event of it) -> answer


@functools.cache
def loaded(folder: Path) -> tuple[tokenizers.Tokenizer, ChatTemplate]:
    encoder = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    return encoder, load_chat_template(folder)


class FakeVllm(FakeEngine):
    """`spoil` changes answers. `spells_controls`: as vLLM does; `keeps_replies` and `takes_salts`:
    whether what was sampled is cached, and salts count; `tells_salts`: whether events bear them;
    `missing`: paths that are not served."""

    def __init__(self, folder: Path, *, block_size: int = 16) -> None:
        self.folder = folder
        self.encoder, self.template = loaded(folder)
        super().__init__(self._said, block_size=block_size, max_model_len=1024)
        self.spoil: Spoil = lambda path, body, answer: answer
        self.spells_controls = self.keeps_replies = self.takes_salts = self.tells_salts = True
        self.missing: set[str] = set()
        self.publisher: Publisher | None = None
        self._stored: list[Any] = []

    def _said(self, token_ids: Sequence[int]) -> str:
        return str(self.encoder.decode(list(token_ids), skip_special_tokens=True))

    def app(self) -> aiohttp.web.Application:
        app = aiohttp.web.Application(client_max_size=2**26)
        app.router.add_get("/{path:.*}", self._get)
        app.router.add_post("/{path:.*}", self._post)
        return app

    async def _get(self, request: Request) -> Response:
        pages: dict[str, Any] = {
            "/version": {"version": "0.32.0"},
            "/v1/models": {"data": [{"id": "fake", "max_model_len": self.info.max_model_len}]},
            "/health": {},
            "/metrics": METRICS,
        }
        if request.path not in pages:
            raise aiohttp.web.HTTPNotFound
        page = self.spoil(request.path, {}, pages[request.path])
        return Response(text=page if isinstance(page, str) else msgspec.json.encode(page).decode())

    async def _post(self, request: Request) -> StreamResponse:
        if request.path in self.missing:
            raise aiohttp.web.HTTPNotFound
        body = msgspec.json.decode(await request.read())
        match request.path:
            case "/v1/chat/completions":
                given = body["kv_transfer_params"]["prompt_token_ids"]
            case "/inference/v1/generate":
                given = body["token_ids"]
                body |= body["sampling_params"]
            case "/tokenize":
                return self._whole(request, body, {"tokens": self._rendered(body)})
            case "/v1/chat/completions/render":
                return self._whole(request, body, {"token_ids": self._rendered(body)})
            case "/v1/chat/completions/derender":
                ids = body["generate_response"]["choices"][0]["token_ids"]
                message = {"role": "assistant", "content": self._said(ids)}
                return self._whole(request, body, {"choices": [{"message": message}]})
            case _:
                raise aiohttp.web.HTTPNotFound
        if len(given) >= self.info.max_model_len or max(given) >= VOCABULARY:
            refusal = {"error": {"message": "refused", "code": 400}}
            refused = self.spoil(request.path, body, refusal)
            return aiohttp.web.json_response(refused, status=refused["error"]["code"])
        answer = await self._answer(given, body)
        if not body.get("stream"):
            return self._whole(request, body, answer)
        return await self._streamed(request, body, answer)

    def _whole(self, request: Request, body: Body, answer: Body) -> Response:
        return aiohttp.web.json_response(self.spoil(request.path, body, answer))

    async def _streamed(self, request: Request, body: Body, answer: Body) -> StreamResponse:
        response = StreamResponse()
        await response.prepare(request)
        (choice,) = answer["choices"]
        delta = choice.pop("message")
        first = {"choices": [], "prompt_token_ids": answer["prompt_token_ids"]}
        events = [first, {"choices": [choice | {"delta": delta}]}]
        for event in [*events, {"choices": [], "usage": answer["usage"]}]:
            data = msgspec.json.encode(self.spoil(request.path, body, event))
            await response.write(b"data: " + data + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        return response

    async def _answer(self, prompt: list[int], body: Body) -> Body:
        choices = [self._choice(index, body) for index in range(body.get("n", 1))]
        salt = body["cache_salt"] if self.takes_salts else ""
        cached = 0
        for choice in choices:
            sampled = choice["token_ids"] if self.keeps_replies else choice["token_ids"][:1]
            cached = await self._run(prompt, sampled, salt)
        await self._tell()
        usage = {
            "prompt_tokens": len(prompt),
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        return {"choices": choices, "prompt_token_ids": prompt, "usage": usage}

    def _choice(self, index: int, body: Body) -> Body:
        most = body["max_tokens"]
        ids = [FIRST_SAMPLED + 7 * index + place for place in range(most)]
        stop_reason, finish_reason, tool_calls = None, "length", []
        if bias := body.get("logit_bias"):
            ids = [int(next(iter(bias)))] * most
        if ids[0] == EOS:
            ids, finish_reason = [EOS], "stop"
        text = self._said(ids)
        for stop in body.get("stop") or ():
            num = next(n for n in range(1, most + 1) if stop in self._said(ids[:n]))
            ids, text, finish_reason, stop_reason = ids[:num], text.split(stop)[0], "stop", stop
        if isinstance(body.get("tool_choice"), dict):
            ids, text, finish_reason = [*self.encoder.encode(CALLED).ids, EOS], "", "stop"
            function = {"name": body["tool_choice"]["function"]["name"], "arguments": CALLED}
            tool_calls = [{"id": "1", "type": "function", "function": function}]
        return {
            "index": index,
            "message": {"role": "assistant", "content": text or None, "tool_calls": tool_calls},
            "finish_reason": finish_reason,
            "stop_reason": stop_reason,
            "token_ids": ids,
        }

    def _rendered(self, body: Body) -> list[int]:
        messages = self.template.prepared(body["messages"])
        tools = template_tools(body.get("tools") or ())
        text = str(self.template.render(messages, tools=tools, add_generation_prompt=True))
        ids: list[int] = self.encoder.encode(text, add_special_tokens=False).ids
        if not self.spells_controls:  # only where the conversation spells one
            ids = [i for n, i in enumerate(ids) if i != 1 or n == 0 or ids[n - 1] in (2, 198)]
        return ids

    def _publish(self, token_ids: Sequence[int], keys: Sequence[BlockHash], salt: str) -> None:
        """As the fake does to its mirror, and as events."""
        size = self.info.unit_tokens
        for event in self._cache.take_events():
            if isinstance(event, Cleared):
                self._stored.append(AllBlocksCleared())
            elif isinstance(event, Removed):
                self._stored.append(BlockRemoved(block_hashes=[bytes(event.key)]))
            else:
                start = keys.index(event.parent) + 1 if event.parent else 0
                tokens = list(token_ids[start * size : (start + len(event.keys)) * size])
                extra = [(salt,)] if start == 0 and salt and self.tells_salts else None
                parent = event.parent and bytes(event.parent)
                hashes: list[int | bytes] = [bytes(key) for key in event.keys]
                stored = BlockStored(hashes, parent, tokens, medium="GPU", extra_keys=extra)
                self._stored.append(stored)

    async def _tell(self) -> None:
        if self.publisher is not None and self._stored:
            await self.publisher.publish(*self._stored)
        self._stored.clear()


@asynccontextmanager
async def served(fake: FakeVllm) -> AsyncIterator[str]:
    """Its address."""
    runner = aiohttp.web.AppRunner(fake.app())
    await runner.setup()
    site = aiohttp.web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def publishing(fake: FakeVllm, folder: Path) -> AsyncIterator[EventEndpoints]:
    """The addresses of its KV events."""
    endpoints = EventEndpoints(f"ipc://{folder}/events", f"ipc://{folder}/replay")
    context = zmq.asyncio.Context()
    pub, router = context.socket(zmq.PUB), context.socket(zmq.ROUTER)
    pub.bind(endpoints.publish)
    router.bind(endpoints.replay)
    fake.publisher = Publisher(pub)
    server = asyncio.create_task(fake.publisher.serve_replay(router))
    try:
        yield endpoints
    finally:
        server.cancel()
        context.destroy(linger=0)


def with_usage(answer: Mapping[str, Any], cached_tokens: int | None) -> Any:
    """The answer, or the event, with another number of cached tokens where it bears usage."""
    if not answer.get("usage"):
        return answer
    details = None if cached_tokens is None else {"cached_tokens": cached_tokens}
    return {**answer, "usage": {**answer["usage"], "prompt_tokens_details": details}}
