"""What clients' libraries do to a conversation before they send it back. None of it is an edit."""

import json
from collections.abc import Callable, Mapping
from typing import Any

Message = dict[str, Any]


def as_parts(messages: list[Message]) -> list[Message]:
    return [
        {**m, "content": [{"type": "text", "text": m["content"]}]}
        if isinstance(m.get("content"), str) and m["content"]
        else m
        for m in messages
    ]


def reordered(value: Any) -> Any:
    if isinstance(value, list):
        return [reordered(each) for each in value]
    if isinstance(value, dict):
        return {key: reordered(value[key]) for key in reversed(value)}
    return value


def _with_calls(
    messages: list[Message], change: Callable[[Message], Mapping[str, Any]]
) -> list[Message]:
    return [
        {**m, "tool_calls": [{**call, **change(call)} for call in m["tool_calls"]]}
        if m.get("tool_calls")
        else m
        for m in messages
    ]


def arguments_rewritten(messages: list[Message]) -> list[Message]:
    def rewritten(call: Message) -> Mapping[str, Any]:
        function = call["function"]
        value = _parsed(function["arguments"])
        return {"function": {**function, "arguments": json.dumps(value, indent=1, sort_keys=True)}}

    return _with_calls(messages, rewritten)


def arguments_as_objects(messages: list[Message]) -> list[Message]:
    def parsed(call: Message) -> Mapping[str, Any]:
        function = call["function"]
        return {"function": {**function, "arguments": _parsed(function["arguments"])}}

    return _with_calls(messages, parsed)


def _parsed(arguments: Any) -> Any:
    return json.loads(arguments) if isinstance(arguments, str) else arguments


def without_reasoning(messages: list[Message]) -> list[Message]:
    dropped = ("reasoning", "reasoning_content")
    return [{k: v for k, v in m.items() if k not in dropped} for m in messages]


def reasoning_renamed(messages: list[Message]) -> list[Message]:
    return [
        {**{k: v for k, v in m.items() if k != "reasoning"}, "reasoning_content": m["reasoning"]}
        if "reasoning" in m
        else m
        for m in messages
    ]


def with_more_fields(messages: list[Message]) -> list[Message]:
    more = {"refusal": None, "annotations": [], "audio": None, "function_call": None}
    return [
        {"id": f"msg_{i}", **m, **(more if m["role"] == "assistant" else {})}
        for i, m in enumerate(messages)
    ]


def with_blanks(messages: list[Message]) -> list[Message]:
    return [
        {**m, "content": f"\n {m['content'].strip()}\t\n"}
        if isinstance(m.get("content"), str) and m["content"].strip()
        else m
        for m in messages
    ]


def empty_for_null(messages: list[Message]) -> list[Message]:
    return [{**m, "content": ""} if m.get("content") is None else m for m in messages]


def null_for_empty(messages: list[Message]) -> list[Message]:
    return [
        {**m, "content": None} if m["role"] == "assistant" and not m.get("content") else m
        for m in messages
    ]


def content_left_out(messages: list[Message]) -> list[Message]:
    return [
        {k: v for k, v in m.items() if k != "content"} if not m.get("content") else m
        for m in messages
    ]


def with_other_call_ids(messages: list[Message]) -> list[Message]:
    done = _with_calls(messages, lambda call: {"id": f"x-{call['id']}"})
    return [
        {**m, "tool_call_id": f"x-{m['tool_call_id']}"} if m["role"] == "tool" else m for m in done
    ]


ROUND_TRIPS: dict[str, Callable[[list[Message]], list[Message]]] = {
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


def all_at_once(messages: list[Message]) -> list[Message]:
    """Every one of them, in an order in which each finds something to do."""
    last = ("content as parts", "keys in another order")
    for name in [*(name for name in ROUND_TRIPS if name not in last), *last]:
        messages = ROUND_TRIPS[name](messages)
    return messages
