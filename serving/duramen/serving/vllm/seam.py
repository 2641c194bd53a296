"""The seam: token ids in, sampled ids and a parsed message out.

Two ways through it. `ChatSeam` posts to the chat endpoint, which runs ids handed over in
kv_transfer_params instead of rendering messages (entrypoints/openai/chat_completion; made for KV
connectors, so it is probed before it is trusted). `GenerateSeam` is the fallback: the endpoint for
ids alone, then one more call that has vLLM's parsers read the sampled ids (it needs a server with
--enable-scale-out). Both compare the ids that the engine ran with those sent, on every call.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from duramen.layout.errors import EngineError
from duramen.serving.vllm.answer import Answer
from duramen.serving.vllm.http import EngineHttp
from duramen.serving.vllm.protocol import CHAT_PATH, Completion, OnTokens, Sampling, Tool

MESSAGE_KEYS = ("role", "content", "tool_calls", "reasoning")
PROBE = (3, 1, 2)  # no template renders this
PROBE_SALT = "duramen probe"  # three tokens fill no block: nothing stays in the cache


class Seam(Protocol):
    async def run(
        self,
        token_ids: Sequence[int],
        sampling: Sampling,
        tools: Sequence[Tool],
        salt: str,
        on_tokens: OnTokens | None,
    ) -> Completion: ...


class ChatSeam:
    def __init__(self, http: EngineHttp, model: str) -> None:
        self._http = http
        self._model = model

    async def run(
        self,
        token_ids: Sequence[int],
        sampling: Sampling,
        tools: Sequence[Tool],
        salt: str,
        on_tokens: OnTokens | None,
    ) -> Completion:
        body = _chat_request(self._model, tools) | _sampling_fields(sampling)
        body |= {
            "kv_transfer_params": {"prompt_token_ids": list(token_ids)},
            "return_token_ids": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if salt:
            body["cache_salt"] = salt
        answer = Answer(token_ids, on_tokens)
        async for event in self._http.stream(CHAT_PATH, body):
            answer.add(event)
        return answer.completion()


class GenerateSeam:
    """`on_tokens` gets ids without text here: the text is known only when the call has ended."""

    def __init__(self, http: EngineHttp, model: str) -> None:
        self._http = http
        self._model = model

    async def run(
        self,
        token_ids: Sequence[int],
        sampling: Sampling,
        tools: Sequence[Tool],
        salt: str,
        on_tokens: OnTokens | None,
    ) -> Completion:
        body: dict[str, Any] = {
            "model": self._model,
            "token_ids": list(token_ids),
            "sampling_params": _sampling_fields(sampling),
            "return_token_ids": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if salt:
            body["cache_salt"] = salt
        answer = Answer(token_ids, on_tokens)
        async for event in self._http.stream("/inference/v1/generate", body):
            answer.add(event)
        return await self._parse(token_ids, answer, tools)

    async def _parse(
        self, token_ids: Sequence[int], answer: Answer, tools: Sequence[Tool]
    ) -> Completion:
        shown = list(answer.sampled)
        if answer.finish_reason == "stop" and not isinstance(answer.stop_reason, str):
            shown.pop()  # EOS or a stop token, which the chat endpoint does not show either
        if not shown:  # nothing to parse, which derender refuses
            return answer.completion({"role": "assistant", "content": None})
        choice = {"index": 0, "finish_reason": answer.finish_reason, "token_ids": shown}
        body = {
            "model": self._model,
            "generate_response": {"request_id": "duramen", "choices": [choice]},
            "prompt_token_ids": list(token_ids),
            "chat_request": _chat_request(self._model, tools),
        }
        response = await self._http.post("/v1/chat/completions/derender", body)
        parsed = response["choices"][0]["message"]
        message = {key: parsed[key] for key in MESSAGE_KEYS if parsed.get(key)}
        if isinstance(answer.stop_reason, str):
            message["content"] = message.get("content", "").rpartition(answer.stop_reason)[0]
        finish_reason = answer.finish_reason
        if "tool_calls" in message and finish_reason == "stop":
            finish_reason = "tool_calls"
        return replace(
            answer.completion({"content": None} | message), finish_reason=str(finish_reason)
        )


async def find_seam(http: EngineHttp, model: str) -> tuple[Seam, Completion]:
    """The first seam that runs exactly the ids it is given, and what its probe call brought back.

    Raises EngineError with both reasons if neither does.
    """
    reasons = []
    for seam in (ChatSeam(http, model), GenerateSeam(http, model)):
        try:
            return seam, await seam.run(PROBE, Sampling(max_tokens=1), (), PROBE_SALT, None)
        except EngineError as error:
            reasons.append(str(error))
    raise EngineError("this server runs no token ids of ours: " + "; ".join(reasons))


def _chat_request(model: str, tools: Sequence[Tool]) -> dict[str, Any]:
    body: dict[str, Any] = {"model": model, "messages": []}
    if tools:
        body |= {"tools": list(tools), "tool_choice": "auto"}
    return body


def _sampling_fields(sampling: Sampling) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "stop": list(sampling.stop),
        "min_tokens": sampling.min_tokens,
    }
    if sampling.seed is not None:
        fields["seed"] = sampling.seed
    return fields
