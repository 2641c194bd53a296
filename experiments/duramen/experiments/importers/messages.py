"""Checks that every importer shares: what an OpenAI chat message, reply, tool or usage must be.

Values pass through unchanged, unknown keys included. Errors name the place, the field, what was
found and what was expected.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from duramen.experiments.importers.usage import normalised
from duramen.experiments.trajectory import Call, Message, Tool, Usage
from duramen.layout.errors import TrajectoryError

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
MAX_DEPTH = 64  # of nested lists and objects in one message or tool


def fail(where: str, field: str, found: Any, expected: str) -> TrajectoryError:
    return TrajectoryError(f"{where}: {field} is {name_of(found)}; expected {expected}")


def name_of(value: Any) -> str:
    match value:
        case None:
            return "null or missing"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return f"{value!r}" if len(value) <= 40 else f"text of {len(value)} characters"
        case list():
            return "a list" if value else "an empty list"
        case _:
            return "an object"


def check_object(value: Any, where: str, field: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise fail(where, field, value, "an object")
    return value


def check_list(value: Any, where: str, field: str) -> list[Any]:
    if not isinstance(value, list):
        raise fail(where, field, value, "a list")
    return value


def check_message(value: Any, where: str, field: str) -> Message:
    message = check_object(value, where, field)
    if message.get("role") not in ROLES:
        raise fail(where, f"{field}.role", message.get("role"), "one of " + ", ".join(ROLES))
    _check_content(message.get("content"), where, f"{field}.content")
    if message.get("tool_calls") is not None:
        calls = check_list(message["tool_calls"], where, f"{field}.tool_calls")
        for index, call in enumerate(calls):
            _check_tool_call(call, where, f"{field}.tool_calls[{index}]")
    _check_depth(message, where, field)
    return message


def check_messages(value: Any, where: str, field: str = "messages") -> tuple[Message, ...]:
    items = check_list(value, where, field)
    return tuple(check_message(m, where, f"{field}[{i}]") for i, m in enumerate(items))


def check_reply(value: Any, where: str, field: str) -> Message:
    reply = check_message(value, where, field)
    if reply["role"] != "assistant":
        raise fail(where, f"{field}.role", reply["role"], "'assistant'")
    return reply


def check_tools(value: Any, where: str, field: str = "tools") -> tuple[Tool, ...]:
    tools = check_list(value, where, field)
    for index, item in enumerate(tools):
        name = f"{field}[{index}]"
        tool = check_object(item, where, name)
        function = check_object(tool.get("function"), where, f"{name}.function")
        if not isinstance(function.get("name"), str):
            raise fail(where, f"{name}.function.name", function.get("name"), "text")
        _check_depth(tool, where, name)
    return tuple(tools)


def check_options(options: Mapping[str, Any], where: str) -> None:
    """A chat template gets them as they are."""
    for name, value in options.items():
        _check_depth(value, where, name)


def check_usage(value: Any, where: str, field: str = "usage") -> Usage:
    """A usage object of any provider (importers.usage); a missing or null count stays None."""
    if value is None:
        return Usage()
    usage = check_object(value, where, field)

    def count(path: tuple[str, ...]) -> int | None:
        found: Any = usage
        place = field
        for key in path:
            found = check_object(found, where, place).get(key)
            place = f"{place}.{key}"
            if found is None:
                return None
        return _check_count(found, where, place)

    return normalised(count)


def check_iso_time(value: Any, where: str, field: str) -> float:
    """Unix time of an ISO date and time, which is UTC where it names no zone."""
    try:
        time = datetime.fromisoformat(value)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    except (TypeError, ValueError, OverflowError) as error:
        raise fail(where, field, value, "an ISO date and time") from error


def conversation_calls(messages: Sequence[Message]) -> tuple[Call, ...]:
    """One call per assistant message of a finished conversation: all before it was its prompt."""
    return tuple(
        Call(messages=tuple(messages[:index]), reply=message)
        for index, message in enumerate(messages)
        if message["role"] == "assistant"
    )


def _check_content(content: Any, where: str, field: str) -> None:
    if content is None or isinstance(content, str):
        return
    if not isinstance(content, list):
        raise fail(where, field, content, "text, a list of parts or null")
    for index, part in enumerate(content):
        if not isinstance(part, dict) or not isinstance(part.get("type"), str):
            raise fail(where, f"{field}[{index}]", part, "a part with a type")


def _check_tool_call(call: Any, where: str, field: str) -> None:
    function = check_object(check_object(call, where, field).get("function"), where, field)
    if not isinstance(function.get("name"), str):
        raise fail(where, f"{field}.function.name", function.get("name"), "text")
    arguments = function.get("arguments")
    if not isinstance(arguments, str | dict):
        raise fail(where, f"{field}.function.arguments", arguments, "text or an object")


def _check_count(value: Any, where: str, field: str) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**53:
        raise fail(where, field, value, "a count of tokens")
    return value


def _check_depth(value: Any, where: str, field: str, depth: int = 0) -> None:
    if not isinstance(value, dict | list):
        return
    children = value.values() if isinstance(value, dict) else value
    if depth == MAX_DEPTH:
        raise TrajectoryError(f"{where}: {field} is nested deeper than {MAX_DEPTH} levels")
    for child in children:
        _check_depth(child, where, field, depth + 1)
