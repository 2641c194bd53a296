"""What clients' libraries make of a message before they send it back. None of it is an edit."""

import json
from collections.abc import Callable, Mapping
from typing import Any

Message = dict[str, Any]
Spell = Callable[[Message], Message]


def verbatim(message: Message) -> Message:
    return message


def as_parts(message: Message) -> Message:
    content = message.get("content")
    if not isinstance(content, str) or not content:
        return message
    return {**message, "content": [{"type": "text", "text": content}]}


def reordered(message: Message) -> Message:
    """Keys the other way round, at every level."""
    turned: Message = _turned(message)
    return turned


def arguments_rewritten(message: Message) -> Message:
    """Tool arguments with other blanks and key order; what is no JSON stays."""
    return _with_arguments(message, lambda value: json.dumps(value, indent=1, sort_keys=True))


def arguments_as_objects(message: Message) -> Message:
    """What is no JSON stays."""
    return _with_arguments(message, lambda value: value)


def without_reasoning(message: Message) -> Message:
    return {k: v for k, v in message.items() if k not in ("reasoning", "reasoning_content")}


def reasoning_renamed(message: Message) -> Message:
    if "reasoning" not in message:
        return message
    return {**without_reasoning(message), "reasoning_content": message["reasoning"]}


def with_more_fields(message: Message) -> Message:
    more: Message = {"refusal": None, "annotations": [], "audio": None, "function_call": None}
    return {"id": "msg_1", **message, **(more if message["role"] == "assistant" else {})}


def with_blanks(message: Message) -> Message:
    content = message.get("content")
    if not isinstance(content, str) or not content.strip():
        return message
    return {**message, "content": f"\n {content.strip()}\t\n"}


def empty_for_null(message: Message) -> Message:
    return {**message, "content": ""} if message.get("content") is None else message


def null_for_empty(message: Message) -> Message:
    is_empty = message["role"] == "assistant" and not message.get("content")
    return {**message, "content": None} if is_empty else message


def content_left_out(message: Message) -> Message:
    if message.get("content"):
        return message
    return {k: v for k, v in message.items() if k != "content"}


def with_other_call_ids(message: Message) -> Message:
    if message["role"] == "tool":
        return {**message, "tool_call_id": f"x-{message['tool_call_id']}"}
    return _with_calls(message, lambda call: {"id": f"x-{call['id']}"})


def bare(message: Message) -> Message:
    """Only what a conversation of text and tools needs: no reasoning, no names, no nulls."""
    kept = ("role", "content", "tool_calls", "tool_call_id")
    return {k: v for k, v in message.items() if k in kept and v is not None}


ROUND_TRIPS: dict[str, Spell] = {
    "content as parts": as_parts,
    "keys in another order": reordered,
    "arguments written anew": arguments_rewritten,
    "arguments as objects": arguments_as_objects,
    "reasoning dropped": without_reasoning,
    "reasoning renamed": reasoning_renamed,
    "fields added": with_more_fields,
    "outer blanks": with_blanks,
    "null content as empty text": empty_for_null,
    "empty content as null": null_for_empty,
    "no content left out": content_left_out,
    "other tool call ids": with_other_call_ids,
}


def all_at_once(message: Message) -> Message:
    """Every round trip, in an order in which each finds something to do."""
    last = (as_parts, reordered)
    for spell in [*(each for each in ROUND_TRIPS.values() if each not in last), *last]:
        message = spell(message)
    return message


def _with_calls(message: Message, change: Callable[[Message], Mapping[str, Any]]) -> Message:
    if not message.get("tool_calls"):
        return message
    return {**message, "tool_calls": [{**call, **change(call)} for call in message["tool_calls"]]}


def _with_arguments(message: Message, write: Callable[[Any], Any]) -> Message:
    def written(call: Message) -> Mapping[str, Any]:
        function = call["function"]
        value = function["arguments"]
        try:
            value = json.loads(value) if isinstance(value, str) else value
        except ValueError:
            return {}
        return {"function": {**function, "arguments": write(value)}}

    return _with_calls(message, written)


def _turned(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _turned(value[key]) for key in reversed(value)}
    return [_turned(each) for each in value] if isinstance(value, list) else value
