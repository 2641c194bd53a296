"""What a request body of another API becomes: OpenAI chat messages and tools, and how it was sent.

Text, order and keys stay what they were. What has no OpenAI form (a document, a server's own tool
call) stays as it is: a content part with its own type.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from duramen.experiments.trajectory import Message, Sending, Tool

MARK = "cache_control"
LOG_KEYS = {  # of a line that is a body and has the log's own beside it
    "response",
    "choices",
    "error",
    "timestamp",
    "session_id",
    "conversation_id",
    "usage",
    "origins",
}


class Body(NamedTuple):
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    sending: Sending


def content_of(parts: Sequence[Mapping[str, Any]]) -> str | list[Mapping[str, Any]] | None:
    """None without parts. One part that is nothing but text becomes its text: Anthropic and
    Responses define the plain string as short for that."""
    if not parts:
        return None
    if len(parts) == 1 and parts[0].keys() == {"type", "text"} and parts[0]["type"] == "text":
        return str(parts[0]["text"])
    return list(parts)


def tool_call(call_id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    """`arguments` that are no text become JSON text, their keys in the order they have."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}


def reply_of(
    parts: Sequence[Mapping[str, Any]], calls: Sequence[Any], thoughts: Sequence[str]
) -> dict[str, Any]:
    """The assistant's message of what a model said, called and thought."""
    message: dict[str, Any] = {"role": "assistant", "content": content_of(parts)}
    if thoughts:
        message["reasoning_content"] = "\n".join(thoughts)
    return message | ({"tool_calls": list(calls)} if calls else {})


def without_log(line: Mapping[str, Any]) -> dict[str, Any]:
    """The body that a line of a log is, its keys in their order."""
    return {key: value for key, value in line.items() if key not in LOG_KEYS}


def options_in(body: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: body[name] for name in names if body.get(name) is not None}


def text_in(body: Mapping[str, Any], *names: str) -> str | None:
    """The first of the named values that is text and not empty."""
    found = (body.get(name) for name in names)
    return next((value for value in found if isinstance(value, str) and value), None)


def unmarked(
    messages: tuple[Message, ...], tools: tuple[Tool, ...]
) -> tuple[tuple[Message, ...], tuple[Tool, ...], tuple[int, ...] | None]:
    """OpenAI messages and tools without the cache_control that gateways to Anthropic take on them,
    and where it stood, as in Sending.marks; None where it stood nowhere."""
    marks = [-1] if any(MARK in tool for tool in tools) else []
    marks += [index for index, message in enumerate(messages) if _is_marked(message)]
    if not marks:
        return messages, tools, None
    return (
        tuple(_unmarked(m) if _is_marked(m) else m for m in messages),
        tuple({k: v for k, v in tool.items() if k != MARK} for tool in tools),
        tuple(marks),
    )


def _is_marked(message: Message) -> bool:
    content = message.get("content")
    return MARK in message or (isinstance(content, list) and any(MARK in p for p in content))


def _unmarked(message: Message) -> Message:
    content = message.get("content")
    if isinstance(content, list):
        content = [{k: v for k, v in part.items() if k != MARK} for part in content]
    return {k: content if k == "content" else v for k, v in message.items() if k != MARK}
