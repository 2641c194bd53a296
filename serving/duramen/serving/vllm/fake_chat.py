"""The fake engine as a gateway sees one: OpenAI requests in, vLLM's answers and events out."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import msgspec

from duramen.layout.errors import EngineError, RequestError
from duramen.serving.vllm.fake import EOS, Decode, FakeEngine, sample
from duramen.serving.vllm.gathered import Gathered
from duramen.serving.vllm.itl_report import ItlReport
from duramen.serving.vllm.protocol import CHAT_PATH, Sampling

CHAT = CHAT_PATH


@dataclass(frozen=True)
class Said:
    """A reply: `deltas[i]` is what a client gets with `token_ids[i]`."""

    token_ids: Sequence[int]
    deltas: Sequence[Mapping[str, Any]]
    finish_reason: str = "stop"
    stop_reason: str | int | None = None


class FakeChatEngine(FakeEngine):
    """Implements protocol.ChatEngine for the chat endpoint.

    `script`: what the next choices say, or the error that the next call ends with; choices that it
    has nothing for are sampled. `bodies`: the requests so far. `num_running`: calls whose answer
    has neither ended nor been closed. `before_token`: awaited before each token of an answer;
    `pace_s` is a pause there. `kill` ends it as a crash does: calls that run fail, and it is dead.
    """

    def __init__(self, decode: Decode, *, pace_s: float = 0.0, max_model_len: int = 8192) -> None:
        super().__init__(decode, max_model_len=max_model_len)
        self.script: deque[Said | Exception] = deque()
        self.bodies: list[Mapping[str, Any]] = []
        self.num_running = 0
        self.before_token: Callable[[int], Awaitable[object]] = lambda i: asyncio.sleep(pace_s)
        self._dead = asyncio.Event()

    @property
    def is_alive(self) -> bool:
        return not self._dead.is_set()

    async def is_healthy(self, timeout_s: float) -> bool:
        return self.is_alive

    def explain(self) -> str:
        return "It is a fake."

    def kill(self) -> None:
        self._dead.set()

    async def num_preemptions(self) -> int | None:
        return None

    def itl_report(self) -> ItlReport | None:
        return None

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        choices: dict[int, Gathered] = {}
        ids: dict[int, list[int]] = {}
        answer = self._shell("chat.completion")
        async with aclosing(self.batches(path, body)) as batches:
            async for batch in batches:
                for event in map(msgspec.json.decode, batch):
                    answer |= {k: event[k] for k in ("prompt_token_ids", "usage") if k in event}
                    for choice in event["choices"]:
                        choices.setdefault(choice["index"], Gathered()).add(choice)
                        ids.setdefault(choice["index"], []).extend(choice.get("token_ids") or ())
        answer["choices"] = [
            {
                "index": index,
                "message": gathered.message,
                "logprobs": None,
                "finish_reason": gathered.finish_reason,
                "stop_reason": gathered.stop_reason,
                "token_ids": ids[index],
            }
            for index, gathered in sorted(choices.items())
        ]
        return answer

    async def batches(
        self, path: str, body: Mapping[str, Any]
    ) -> AsyncGenerator[list[bytes], None]:
        self._check_alive()
        self.bodies.append(body)
        if path != CHAT:
            raise RequestError(f"the fake has no {path}", 404)
        self.num_running += 1
        try:
            async with aclosing(self._answered(body)) as batches:
                async for batch in batches:
                    yield [msgspec.json.encode(event) for event in batch]
        finally:
            self.num_running -= 1

    async def _answered(
        self, body: Mapping[str, Any]
    ) -> AsyncGenerator[list[dict[str, Any]], None]:
        """`messages` that came without ids are of a request that is not token-exact."""
        given = (body.get("kv_transfer_params") or {}).get("prompt_token_ids")
        prompt: Sequence[int] = [1, 2, 3] if given is None else given
        room = self.info.max_model_len - len(prompt)
        if room < 1:
            raise RequestError("This model's maximum context length is exceeded", 400)
        said = [self._said(prompt, body, room, index) for index in range(body.get("n") or 1)]
        cached = [await self._run(prompt, s.token_ids, body.get("cache_salt") or "") for s in said]
        self._check_alive()
        first = [self._choice(i, {"role": "assistant", "content": ""}) for i in range(len(said))]
        yield [self._chunk(first) | {"prompt_token_ids": prompt}]
        for i in range(max(len(s.token_ids) for s in said)):
            await self.before_token(i)
            self._check_alive()
            choices = [self._nth(index, s, i) for index, s in enumerate(said)]
            yield [self._chunk([choice]) for choice in choices if choice is not None]
        num_sampled = sum(len(s.token_ids) for s in said)
        usage = {
            "prompt_tokens": len(prompt),
            "completion_tokens": num_sampled,
            "total_tokens": len(prompt) + num_sampled,
            "prompt_tokens_details": {"cached_tokens": cached[-1]},
        }
        yield [self._chunk([]) | {"usage": usage}]

    def _said(self, prompt: Sequence[int], body: Mapping[str, Any], room: int, index: int) -> Said:
        if self.script:
            said = self.script.popleft()
            if isinstance(said, Exception):
                raise said
            return said
        temperature = body.get("temperature")
        most = min(body.get("max_completion_tokens") or body.get("max_tokens") or 16, room)
        sampling = Sampling(most, 1.0 if temperature is None else temperature, body.get("seed"))
        sampled, by_eos = sample([*prompt, *[index] * bool(index)], sampling, most)
        stops = body.get("stop") or ()
        return spoken(
            self._decode,
            sampled,
            "stop" if by_eos else "length",
            [stops] if isinstance(stops, str) else stops,
            body.get("stop_token_ids") or (),
        )

    def _check_alive(self) -> None:
        if self._dead.is_set():
            raise EngineError("the engine broke off in the middle of an answer. It is a fake.")

    def _nth(self, index: int, said: Said, i: int) -> dict[str, Any] | None:
        if i >= len(said.token_ids):
            return None
        choice = self._choice(index, said.deltas[i]) | {"token_ids": [said.token_ids[i]]}
        if i + 1 == len(said.token_ids):
            choice |= {"finish_reason": said.finish_reason, "stop_reason": said.stop_reason}
        return choice

    def _choice(self, index: int, delta: Mapping[str, Any]) -> dict[str, Any]:
        return {"index": index, "delta": dict(delta), "finish_reason": None}

    def _chunk(self, choices: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return self._shell("chat.completion.chunk") | {"choices": list(choices)}

    def _shell(self, kind: str) -> dict[str, Any]:
        return {"id": "chatcmpl-fake", "object": kind, "created": 0, "model": self.info.model}


def spoken(
    decode: Decode,
    sampled: Sequence[int],
    finish_reason: str,
    stops: Sequence[str] = (),
    stop_ids: Sequence[int] = (),
) -> Said:
    """Plain text as vLLM streams it: a character when all its bytes are there, and of what may be
    the beginning of a stop string nothing until it is not. The ids end with the token that
    completed the stop string, or with the stop token, whose text is not shown."""
    held = max((len(stop) for stop in stops), default=1) - 1
    text, shown = "", 0
    deltas = []
    for i, (token_id, new) in enumerate(zip(sampled, pieces(decode, sampled), strict=True)):
        is_last = i + 1 == len(sampled)
        if token_id in stop_ids:
            deltas.append({"content": text[shown:]})
            return Said(sampled[: i + 1], deltas, "stop", token_id)
        searched = max(0, len(text) - held)
        text += new
        found = {stop: at for stop in stops if (at := text.find(stop, searched)) >= 0}
        if found:
            stop = min(found, key=lambda each: found[each])
            deltas.append({"content": text[shown : max(shown, found[stop])]})
            return Said(sampled[: i + 1], deltas, "stop", stop)
        end = len(text) if is_last else max(shown, len(text) - held)
        deltas.append({"content": text[shown:end]})
        shown = end
    return Said(sampled, deltas, finish_reason)


def pieces(decode: Decode, token_ids: Sequence[int]) -> Iterator[str]:
    """What each id adds to the text: nothing while a character lacks bytes; the EOS nothing."""
    start = read = 0  # [start, read) is shown, and decoded with what follows
    for end, token_id in enumerate(token_ids, 1):
        if token_id == EOS:
            yield ""
            continue
        before, text = decode(token_ids[start:read]), decode(token_ids[start:end])
        if len(text) > len(before) and not text.endswith("\ufffd"):
            start, read = read, end
            yield text[len(before) :]
        else:
            yield ""
