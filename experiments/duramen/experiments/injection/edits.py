"""Changes to calls, all of them copies: a message, a line at some place, a tool."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Literal

from duramen.experiments.trajectory import Call, Message, Session, Tool

Place = Literal[
    "system head",
    "system middle",
    "system tail",
    "user head",
    "user tail",
    "later user",
    "reply",
    "tool result",
    "tool description",
    "parameter description",
]
FALLBACK_SYSTEM = "You help with the task below, one step at a time, and say what you did."


def text_of(message: Message) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else ""


def with_messages(call: Call, messages: Sequence[Message]) -> Call:
    return replace(call, messages=tuple(messages))


def with_message(call: Call, index: int, **fields: Any) -> Call:
    """Message `index` with some fields changed; a field given as ... is taken out."""
    changed = {**call.messages[index], **fields}
    message = {key: value for key, value in changed.items() if value is not ...}
    return with_messages(call, [*call.messages[:index], message, *call.messages[index + 1 :]])


def find(call: Call, role: str, which: int = 0, *, longer_than: int = 0) -> int | None:
    """Index of the which-th message of `role` whose text is long enough; None if there is none."""
    found = [
        index
        for index, message in enumerate(call.messages)
        if message.get("role") == role and len(text_of(message)) > longer_than
    ]
    return found[which] if -len(found) <= which < len(found) else None


def with_system(call: Call) -> Call:
    """The call with a system message in front, its own or a plain one."""
    if call.messages and call.messages[0].get("role") == "system":
        return call
    return with_messages(call, [{"role": "system", "content": FALLBACK_SYSTEM}, *call.messages])


def place_of(call: Call, place: Place) -> int | None:
    """Index of the message that a place stands in. None: there is none, or it is in a tool."""
    if place.startswith("system"):
        return 0
    if place in ("user head", "user tail"):
        return find(call, "user")
    if place == "later user":
        return find(call, "user", 1)
    if place == "reply":
        return find(call, "assistant", longer_than=20)
    if place == "tool result":
        return find(call, "tool", longer_than=20)
    return None


def edited_text(call: Call, place: Place, edit: Callable[[str], str]) -> Call | None:
    """The text at a place through `edit`; None where there is no such place."""
    call = with_system(call) if place.startswith("system") else call
    index = place_of(call, place)
    return None if index is None else with_message(call, index, content=edit(_text(call, index)))


def _text(call: Call, index: int) -> str:
    return text_of(call.messages[index])


def with_line(call: Call, tools: Sequence[Tool], place: Place, line: str) -> Call | None:
    """`line` at a place of the call, its tools included; None where there is no such place."""
    if place in ("tool description", "parameter description"):
        edit = _describe if place == "tool description" else _describe_parameter
        changed = edit(tools, line)
        return None if changed is None else replace(call, tools=changed)
    return edited_text(call, place, lambda text: placed(text, place, line))


def placed(text: str, place: Place, line: str) -> str:
    if place.endswith("head"):
        return f"{line}\n{text}"
    if place.endswith("middle"):
        middle = text.find("\n", len(text) // 2)
        middle = len(text) if middle < 0 else middle
        return f"{text[:middle]}\n{line}{text[middle:]}"
    return f"{text}\n\n{line}"


def _describe(tools: Sequence[Tool], line: str) -> tuple[Tool, ...] | None:
    if not tools:
        return None
    described = copied(tools)
    function = described[len(tools) // 2]["function"]
    function["description"] = f"{function.get('description', '')} {line}".strip()
    return tuple(described)


def _describe_parameter(tools: Sequence[Tool], line: str) -> tuple[Tool, ...] | None:
    described = copied(tools)
    for tool in described:
        for parameter in tool["function"].get("parameters", {}).get("properties", {}).values():
            parameter["description"] = f"{parameter.get('description', '')} ({line})".strip()
            return tuple(described)
    return None


def copied(value: Any) -> Any:
    """A deep copy of JSON-like data, tuples as lists."""
    return json.loads(json.dumps(value))


def reordered(value: Any, order: Callable[[list[str]], list[str]], depth: int = 0) -> Any:
    """Keys of all objects at least `depth` levels down in another order."""
    if isinstance(value, Mapping):
        keys = order(list(value)) if depth <= 0 else list(value)
        return {key: reordered(value[key], order, depth - 1) for key in keys}
    if isinstance(value, list):
        return [reordered(item, order, depth - 1) for item in value]
    return value


def shuffled(rng: Random) -> Callable[[list[str]], list[str]]:
    """An order that is another one wherever there are two keys or more."""

    def order(keys: list[str]) -> list[str]:
        drawn = list(keys)
        while len(keys) > 1 and drawn == keys:
            rng.shuffle(drawn)
        return drawn

    return order


def of_tools(scene_tools: Sequence[Tool], call: Call) -> tuple[Tool, ...]:
    return Session("", (call,), tuple(scene_tools)).tools_of(call)
