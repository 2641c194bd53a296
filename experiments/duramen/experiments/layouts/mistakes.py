"""What clients do to their messages that breaks a prefix. Each makes a rewrite of whole calls, and
gives a turn back as it is where there is nothing to do.

Whatever is random is drawn from the session's id and the call's index: equal runs are equal.
"""

import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from duramen.experiments.history import Turn
from duramen.experiments.layouts.catalogue import Layout, LayoutName
from duramen.experiments.layouts.model import utc
from duramen.experiments.layouts.observations import tool_outputs
from duramen.experiments.layouts.whole import Moment, Rewrite
from duramen.experiments.trajectory import Message

PRUNED_TEXT = "[old tool output removed]"
THINKING_FIELDS = ("reasoning_content", "reasoning", "thinking")


def clock(turn: Turn, moment: Moment) -> Turn:
    return _with_first_line(
        turn, utc(moment.time_s).strftime("Current time: %Y-%m-%d %H:%M:%S UTC\n")
    )


def request_id(turn: Turn, moment: Moment) -> Turn:
    drawn = uuid.UUID(int=_random(moment).getrandbits(128), version=4)
    return _with_first_line(turn, f"Request id: {drawn}\n")


def counter(turn: Turn, moment: Moment) -> Turn:
    return _with_last_line(turn, f"\nStep {moment.call + 1} of this task.")


def shuffled_tools(turn: Turn, moment: Moment) -> Turn:
    if len(turn.tools) < 2:
        return turn
    tools = list(turn.tools)
    _random(moment).shuffle(tools)
    return replace(turn, tools=tools)


def unsorted_json(turn: Turn, moment: Moment) -> Turn:
    """Keys of tool definitions and of tool arguments, at every depth."""
    if not turn.tools and not any(message.get("tool_calls") for message in turn.messages):
        return turn
    draw = _random(moment)
    tools = [_shuffled(tool, draw) for tool in turn.tools]
    messages = [_with_shuffled_arguments(message, draw) for message in turn.messages]
    return replace(turn, tools=tools, messages=messages)


def thinking_stripped(turn: Turn, moment: Moment) -> Turn:
    """As the templates of reasoning models do: only turns after the last user message keep it."""
    if not _thinks(turn):
        return turn
    users = [i for i, message in enumerate(turn.messages) if message.get("role") == "user"]
    last_user = users[-1] if users else 0
    messages = [
        _without(message, THINKING_FIELDS) if i < last_user else message
        for i, message in enumerate(turn.messages)
    ]
    return replace(turn, messages=messages)


def thinking_kept(turn: Turn, moment: Moment) -> Turn:
    """The messages as they are: the template's options do it."""
    return replace(turn) if _thinks(turn) else turn


def pruned(num_kept: int) -> Rewrite:
    def rewrite(turn: Turn, moment: Moment) -> Turn:
        old = set(tool_outputs(turn.messages)[:-num_kept])
        if not old:
            return turn
        messages = [
            {**message, "content": PRUNED_TEXT} if i in old else message
            for i, message in enumerate(turn.messages)
        ]
        return replace(turn, messages=messages)

    return rewrite


def _with_first_line(turn: Turn, line: str) -> Turn:
    return _with_system_text(turn, lambda text: line + text)


def _with_last_line(turn: Turn, line: str) -> Turn:
    return _with_system_text(turn, lambda text: text + line)


def _with_system_text(turn: Turn, change: Callable[[str], str]) -> Turn:
    """The turn with its system prompt changed, which is added if need be. Of parts the outermost
    one changes."""
    messages = turn.messages
    if not messages or messages[0].get("role") not in ("system", "developer"):
        return replace(turn, messages=[{"role": "system", "content": change("")}, *messages])
    content = messages[0].get("content")
    if isinstance(content, list):
        added = change("")
        part = {"type": "text", "text": added}
        content = [part, *content] if change("x").startswith(added) else [*content, part]
    else:
        content = change(content or "")
    return replace(turn, messages=[{**messages[0], "content": content}, *messages[1:]])


def _with_shuffled_arguments(message: Message, draw: random.Random) -> Message:
    calls = message.get("tool_calls")
    if not isinstance(calls, Sequence):
        return message
    return {**message, "tool_calls": [_with_shuffled_call(call, draw) for call in calls]}


def _with_shuffled_call(call: Any, draw: random.Random) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return call
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            parsed = msgspec.json.decode(arguments)
        except msgspec.DecodeError:  # what is no JSON has no keys
            return call
        arguments = msgspec.json.encode(_shuffled(parsed, draw)).decode()
    else:
        arguments = _shuffled(arguments, draw)
    return {**call, "function": {**function, "arguments": arguments}}


def _shuffled(value: Any, draw: random.Random) -> Any:
    if isinstance(value, Mapping):
        items = [(key, _shuffled(item, draw)) for key, item in value.items()]
        draw.shuffle(items)
        return dict(items)
    if isinstance(value, list):
        return [_shuffled(item, draw) for item in value]
    return value


def _without(message: Message, fields: Sequence[str]) -> Message:
    return {key: value for key, value in message.items() if key not in fields}


def _thinks(turn: Turn) -> bool:
    return any(message.get(name) for message in turn.messages for name in THINKING_FIELDS)


def _random(moment: Moment) -> random.Random:
    return random.Random(f"{moment.session_id}/{moment.call}")


FIXED = {
    LayoutName.CLOCK: clock,
    LayoutName.UUID: request_id,
    LayoutName.COUNTER: counter,
    LayoutName.SHUFFLED_TOOLS: shuffled_tools,
    LayoutName.UNSORTED_JSON: unsorted_json,
    LayoutName.THINKING_STRIPPED: thinking_stripped,
    LayoutName.THINKING_KEPT: thinking_kept,
}


def rewrite_of(layout: Layout) -> Rewrite:
    """How a client of this layout changes what it sends."""
    if layout.name is LayoutName.PRUNED:
        assert layout.k is not None
        return pruned(layout.k)
    return FIXED[layout.name]
