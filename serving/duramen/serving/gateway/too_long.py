"""Messages that cannot fit, refused before they hold up everybody.

Prompts are laid out on the event loop, where other calls wait meanwhile: a second for each megabyte
of text or 3,000 messages. What is far beyond the model's context is found out here, in a thread.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from duramen.layout.tokenizer import Tokenizer
from duramen.serving.gateway.errors import ApiError

MAX_PIECES = 8192  # messages, and parts, tool calls and tools
FAR_CHARACTERS = 16  # for each token of the context: hardly any text that fits has more
FAR = 2  # contexts; a template may leave out some of the messages' text, thinking above all
SLICE = 2**16  # characters that are counted at once

Body = Mapping[str, Any]


async def check_length(body: Body, max_model_len: int, tokenizer: Tokenizer) -> None:
    """Raises ApiError 400 for messages and tools that are far too long."""
    if (num_pieces := _num_pieces(body)) > MAX_PIECES:
        raise ApiError(
            400,
            f"messages, their parts and tool calls, and tools are {num_pieces}: at most "
            f"{MAX_PIECES} are taken",
            param="messages",
        )
    texts = list(_texts(body))
    if sum(map(len, texts)) <= FAR_CHARACTERS * max_model_len:
        return
    if await asyncio.to_thread(_is_over, texts, FAR * max_model_len, tokenizer):
        raise too_long(max_model_len, f"more than {FAR * max_model_len}")


def too_long(max_model_len: int, num_tokens: object) -> ApiError:
    return ApiError(
        400,
        f"This model's maximum context length is {max_model_len} tokens. However, your messages "
        f"resulted in {num_tokens} tokens. Please reduce the length of the messages.",
        param="messages",
        code="context_length_exceeded",
    )


def _num_pieces(body: Body) -> int:
    num_pieces = len(body["messages"]) + len(body.get("tools") or ())
    for message in body["messages"]:
        content = message.get("content")
        num_pieces += len(content) if isinstance(content, list) else 0
        num_pieces += len(message.get("tool_calls") or ())
    return num_pieces


def _texts(body: Body) -> Iterator[str]:
    for message in body["messages"]:
        content = message.get("content")
        for part in content if isinstance(content, list) else [content]:
            if isinstance(part, str):
                yield part
            elif isinstance(part, dict) and isinstance(part.get("text"), str) and len(part) <= 2:
                yield part["text"]
            else:
                yield _json(part)
        yield _json({name: value for name, value in message.items() if name != "content"})
    yield _json([body.get("tools"), body.get("chat_template_kwargs")])


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _is_over(texts: Sequence[str], limit_tokens: int, tokenizer: Tokenizer) -> bool:
    num_tokens = 0  # encode_batch_fast lets other threads run, encode does not
    for text in texts:
        for start in range(0, len(text), SLICE):
            part = text[start : start + SLICE]
            [encoding] = tokenizer.full.encode_batch_fast([part], add_special_tokens=False)
            num_tokens += len(encoding.ids)
            if num_tokens > limit_tokens:
                return True
    return False
