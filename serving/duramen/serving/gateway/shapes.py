"""What a request must look like. Requests are checked here and never changed.

Refused is what vLLM 0.32 or OpenAI refuses too; of that, only fields that the gateway itself reads
or keeps from the engine. Everything else passes, for the engine to judge.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from duramen.serving.gateway.errors import ApiError

MAX_PROMPTS = 2048  # in one completion: the engine runs each as a call of its own
MAX_DEPTH = 128  # objects and arrays inside one another; code that walks a body recurses
CONTAINERS = (dict, list)

PATH = re.compile(r" - at `\$\.?([^`]*)`$")
MISSING_FIELD = re.compile(r"Object missing required field `(\w+)`")

Text = str | None
AtLeastOne = Annotated[int, Meta(ge=1)]
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
TokenId = Annotated[int, Meta(ge=0)]
CacheSalt = Annotated[str, Meta(min_length=1, max_length=128)] | None


class FunctionCall(Struct):
    name: str
    arguments: str | dict[str, Any] | None = None


class ToolCall(Struct):
    function: FunctionCall
    id: Text = None
    type: Text = None


class Message(Struct):
    role: Annotated[str, Meta(min_length=1)]
    content: str | list[str | dict[str, Any]] | None = None
    name: Text = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: Text = None
    reasoning: Text = None
    reasoning_content: Text = None


class FunctionDefinition(Struct):
    name: str
    description: Text = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Struct):
    function: FunctionDefinition
    type: Literal["function"] = "function"


class FunctionName(Struct):
    name: str


class NamedTool(Struct):
    function: FunctionName
    type: Literal["function"] = "function"


class StreamOptions(Struct):
    include_usage: bool | None = None


class Sampling(Struct, kw_only=True):
    """What chat and text completions have in common."""

    model: Text = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Meta(ge=1, le=128)] | None = None
    stop: str | list[str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: Int64 | None = None
    response_format: dict[str, Any] | None = None
    cache_salt: CacheSalt = None
    return_token_ids: bool | None = None
    kv_transfer_params: None = None


class ChatRequest(Sampling, kw_only=True):
    messages: Annotated[list[Message], Meta(min_length=1)]
    tools: list[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    max_tokens: AtLeastOne | None = None
    max_completion_tokens: AtLeastOne | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: Text = None


class CompletionRequest(Sampling, kw_only=True):
    prompt: str | list[str | TokenId | list[TokenId]]
    max_tokens: Annotated[int, Meta(ge=0)] | None = None
    logprobs: int | None = None


class TokenizeTextRequest(Struct, kw_only=True):
    prompt: str
    model: Text = None


class TokenizeChatRequest(Struct, kw_only=True):
    messages: Annotated[list[Message], Meta(min_length=1)]
    model: Text = None
    tools: list[Tool] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: Text = None
    cache_salt: CacheSalt = None


def decode_body(data: bytes) -> dict[str, Any]:
    """The JSON object in a request's body. Of equal keys the last one holds.

    Raises ApiError 400 for anything else: broken JSON or UTF-8, lone surrogates, NaN and Infinity,
    numbers outside of a double or of 4300 digits, and more than MAX_DEPTH levels.
    """
    try:
        body = msgspec.json.decode(data)
    except RecursionError:
        raise _too_deep() from None
    except msgspec.DecodeError as error:
        what = PATH.sub("", str(error))
        raise ApiError(400, f"the body is not valid JSON: {what}") from None
    if not isinstance(body, dict):
        raise ApiError(400, f"the body must be a JSON object, not {_json_type(body)}")
    _check_depth(body)
    return body


def check_chat(body: Mapping[str, object]) -> None:
    """Raises ApiError 400 with `param` if this is no request for a chat completion."""
    _check_sampling(body, ChatRequest)


def check_completion(body: Mapping[str, object]) -> None:
    """The same for a text completion."""
    _check_sampling(body, CompletionRequest)
    prompt = body["prompt"]
    if not prompt:
        raise _invalid("prompt", "must not be empty")
    if isinstance(prompt, list) and len({type(item) for item in prompt}) > 1:
        raise _invalid("prompt", "must be all texts, all token ids or all lists of token ids")
    if isinstance(prompt, list) and len(prompt) > MAX_PROMPTS and not isinstance(prompt[0], int):
        raise _invalid("prompt", f"must be at most {MAX_PROMPTS} prompts")


def check_tokenize(body: Mapping[str, object]) -> None:
    """The same for /tokenize, which takes messages or a prompt."""
    _convert(body, TokenizeChatRequest if "messages" in body else TokenizeTextRequest)


def _check_sampling(body: Mapping[str, object], shape: type[Sampling]) -> None:
    if body.get("kv_transfer_params") is not None:
        raise _invalid("kv_transfer_params", "is set by the gateway: leave it out")
    _convert(body, shape)
    if body.get("stream_options") and not body.get("stream"):
        raise _invalid("stream_options", "is only allowed with stream: true")


def _convert(body: Mapping[str, object], shape: type[Struct]) -> None:
    try:
        msgspec.convert(body, shape)
    except msgspec.ValidationError as error:
        text = str(error)
        found = PATH.search(text)
        param = found[1] if found else ""
        what = PATH.sub("", text)
        if missing := MISSING_FIELD.fullmatch(what):
            raise _invalid(f"{param}.{missing[1]}".lstrip("."), "is required") from None
        raise _invalid(param, what[:1].lower() + what[1:]) from None


def _invalid(param: str, what: str) -> ApiError:
    return ApiError(400, f"{param}: {what}", param=param)


def _check_depth(body: dict[str, Any]) -> None:
    level: list[Any] = [body]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for parent in level
            for child in (parent.values() if type(parent) is dict else parent)
            if type(child) in CONTAINERS and child
        ]
        if not level:
            return
    raise _too_deep()


def _too_deep() -> ApiError:
    return ApiError(400, f"the body nests objects and arrays more than {MAX_DEPTH} levels deep")


def _json_type(value: object) -> str:
    if value is None:
        return "null"
    names = {str: "a string", list: "an array", bool: "a boolean"}
    return names.get(type(value), "a number")
