"""The fake engine as a gateway sees one: OpenAI requests in, vLLM's answers and events out."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from duramen.layout.errors import EngineError, RequestError
from duramen.serving.vllm.fake import EOS, Decode, FakeEngine, sample
from duramen.serving.vllm.protocol import Sampling


class FakeChatEngine(FakeEngine):
    """Implements protocol.ChatEngine for the chat endpoint, n = 1. `kill` ends it as a crash does:
    calls that run fail, and it is dead from then on. `pace_s`: between two tokens."""

    def __init__(self, decode: Decode, *, pace_s: float = 0.0, max_model_len: int = 8192) -> None:
        super().__init__(decode, max_model_len=max_model_len)
        self._pace_s = pace_s
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

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        content, ids = "", []
        last: dict[str, Any] = {}
        usage = None
        prompt: Sequence[int] = ()
        async for batch in self.batches(path, body):
            for event in batch:
                prompt = event.get("prompt_token_ids") or prompt
                usage = event.get("usage") or usage
                for choice in event["choices"]:
                    content += choice["delta"].get("content") or ""
                    ids += choice.get("token_ids") or []
                    last = choice
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": content},
            "logprobs": None,
            "finish_reason": last["finish_reason"],
            "stop_reason": None,
            "token_ids": ids,
        }
        return self._shell("chat.completion") | {
            "choices": [choice],
            "usage": usage,
            "prompt_token_ids": list(prompt),
        }

    async def batches(
        self, path: str, body: Mapping[str, Any]
    ) -> AsyncGenerator[list[dict[str, Any]], None]:
        if path != "/v1/chat/completions":
            raise RequestError(f"the fake has no {path}", 404)
        prompt = (body.get("kv_transfer_params") or {}).get("prompt_token_ids")
        if prompt is None:
            raise RequestError("the fake renders no messages", 400)
        max_tokens = body.get("max_completion_tokens") or body.get("max_tokens") or 16
        room = self.info.max_model_len - len(prompt)
        if room < 1:
            raise RequestError("This model's maximum context length is exceeded", 400)
        temperature = body.get("temperature")
        sampling = Sampling(
            min(max_tokens, room), 1.0 if temperature is None else temperature, body.get("seed")
        )
        sampled, by_eos = sample(prompt, sampling, sampling.max_tokens)
        cached_tokens = await self._run(prompt, sampled, body.get("cache_salt") or "")
        self._check_alive()
        yield [self._chunk({"role": "assistant", "content": ""}) | {"prompt_token_ids": prompt}]
        for i, token_id in enumerate(sampled):
            await asyncio.sleep(self._pace_s)
            self._check_alive()
            text = "" if token_id == EOS else self._decode([token_id])
            finish = None
            if i + 1 == len(sampled):
                finish = "stop" if by_eos else "length"
            yield [self._chunk({"content": text}, finish, [token_id])]
        usage = {
            "prompt_tokens": len(prompt),
            "completion_tokens": len(sampled),
            "total_tokens": len(prompt) + len(sampled),
            "prompt_tokens_details": {"cached_tokens": cached_tokens},
        }
        yield [self._shell("chat.completion.chunk") | {"choices": [], "usage": usage}]

    def _check_alive(self) -> None:
        if self._dead.is_set():
            raise EngineError("the engine broke off in the middle of an answer. It is a fake.")

    def _chunk(
        self,
        delta: Mapping[str, Any],
        finish_reason: str | None = None,
        token_ids: Sequence[int] | None = None,
    ) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        if token_ids is not None:
            choice["token_ids"] = list(token_ids)
        return self._shell("chat.completion.chunk") | {"choices": [choice]}

    def _shell(self, kind: str) -> dict[str, Any]:
        return {"id": "chatcmpl-fake", "object": kind, "created": 0, "model": self.info.model}
