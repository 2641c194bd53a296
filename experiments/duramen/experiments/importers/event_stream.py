"""A response that was logged as the text of its event stream, put together again.

Events: docs.anthropic.com/en/api/messages-streaming; platform.openai.com/docs/api-reference, chat
streaming (chunks with a delta) and responses-streaming (response.completed holds the response).
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from duramen.experiments.importers.otlp import decoded

DELTAS = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}


def answer_of(value: Any) -> Any:
    """The response; anything that is no text of events as it is."""
    if not isinstance(value, str) or not value.lstrip().startswith(("event:", "data:")):
        return value
    events = [*_events(value)]
    kinds = {event.get("type") for event in events}
    if "message_start" in kinds:
        return _anthropic(events)
    for event in reversed(events):
        if isinstance(event.get("response"), dict):
            return event["response"]
    return _chat(events)


def _events(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        if line.startswith("data:"):
            try:
                event = msgspec.json.decode(line.removeprefix("data:").strip())
            except (ValueError, RecursionError):
                continue  # [DONE], or cut off
            if isinstance(event, dict):
                yield event


def _anthropic(events: list[dict[str, Any]]) -> dict[str, Any]:
    message: dict[str, Any] = {}
    usage: dict[str, Any] = {}
    blocks: dict[int, dict[str, Any]] = {}
    for event in events:
        index = event.get("index")
        delta = event.get("delta")
        if event.get("type") == "message_start" and isinstance(event.get("message"), dict):
            message = event["message"]
        elif event.get("type") == "content_block_start" and isinstance(index, int):
            block = event.get("content_block")
            blocks[index] = {**block} if isinstance(block, dict) else {}
        elif isinstance(delta, dict) and isinstance(index, int) and index in blocks:
            key = DELTAS.get(str(delta.get("type")))
            if key is not None:
                so_far = blocks[index].get(key)
                blocks[index][key] = f"{so_far or ''}{delta.get(key) or ''}"
        for given in (message.get("usage"), event.get("usage")):
            if isinstance(given, dict):
                usage |= {k: v for k, v in given.items() if v is not None}
    content = []
    for _, block in sorted(blocks.items()):
        text = block.pop("partial_json", None)
        if text:
            block["input"] = decoded(text)
        content.append(block)
    return {**message, "type": "message", "role": "assistant", "content": content, "usage": usage}


def _chat(events: list[dict[str, Any]]) -> dict[str, Any] | None:
    """A chat completion of the chunks' first choice; None where no chunk has one."""
    message: dict[str, Any] = {"role": "assistant", "content": None}
    calls: dict[int, dict[str, Any]] = {}
    whole: dict[str, Any] = {}
    for event in events:
        whole |= {k: v for k, v in event.items() if k not in ("choices", "object")}
        choices = event.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        delta = choice.get("delta") if isinstance(choice, dict) else None
        if not isinstance(delta, dict):
            continue
        for key in ("content", "reasoning_content", "reasoning"):
            if isinstance(delta.get(key), str):
                message[key] = (message.get(key) or "") + delta[key]
        items = delta.get("tool_calls")
        for item in items if isinstance(items, list) else []:
            if isinstance(item, dict):
                _add_call(calls, item)
    if calls:
        message["tool_calls"] = [call for _, call in sorted(calls.items())]
    has_any = calls or len(message) > 2 or message["content"] is not None
    return {**whole, "choices": [{"message": message}]} if has_any else None


def _add_call(calls: dict[int, dict[str, Any]], item: dict[str, Any]) -> None:
    index = item.get("index")
    call = calls.setdefault(
        index if isinstance(index, int) else 0,
        {"id": None, "type": "function", "function": {"name": "", "arguments": ""}},
    )
    call["id"] = item.get("id") or call["id"]
    function = item.get("function")
    if isinstance(function, dict):
        for key in ("name", "arguments"):
            if isinstance(function.get(key), str):
                call["function"][key] += function[key]
