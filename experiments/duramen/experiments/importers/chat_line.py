"""One line of OpenAI chat JSONL, checked."""

from dataclasses import dataclass, replace
from typing import Any

from duramen.experiments.importers.messages import (
    check_iso_time,
    check_list,
    check_messages,
    check_object,
    check_reply,
    check_tools,
    check_usage,
    fail,
)
from duramen.experiments.trajectory import Message, Origin, Tool, Usage
from duramen.layout.errors import TrajectoryError

SESSION_KEYS = ("session_id", "conversation_id")
REPLY_KEYS = ("response", "choices", "error")
SECONDS_END = 1e11  # a larger timestamp is in milliseconds
MILLISECONDS_END = 1e14


@dataclass(frozen=True)
class ChatLine:
    """`time_s` is Unix time. A conversation is finished; anything else is one request."""

    messages: tuple[Message, ...]
    is_conversation: bool
    session_id: str | None
    tools: tuple[Tool, ...] | None
    reply: Message | None
    time_s: float | None
    usage: Usage
    origins: dict[str, Origin]

    def with_messages(self, messages: tuple[Message, ...]) -> "ChatLine":
        return replace(self, messages=messages)


def parse_line(where: str, value: Any) -> ChatLine:
    if isinstance(value, list):
        value = {"messages": value}
    line = check_object(value, where, "the line")
    messages = check_messages(line.get("messages"), where)
    if not messages:
        raise fail(where, "messages", [], "at least one message")
    if "functions" in line:
        raise TrajectoryError(f"{where}: functions is the form before tools; expected tools")
    response = line.get("response")
    completion = response if isinstance(response, dict) else {}
    tools = line.get("tools")
    return ChatLine(
        messages=messages,
        is_conversation=_is_conversation(line, messages),
        session_id=_session_id(line, where),
        tools=None if tools is None else check_tools(tools, where),
        reply=_reply(line, where),
        time_s=_unix_time(line.get("timestamp"), where),
        usage=check_usage(line.get("usage", completion.get("usage")), where),
        origins=_origins(line.get("origins", {}), where),
    )


def _is_conversation(line: dict[str, Any], messages: tuple[Message, ...]) -> bool:
    if any(key in line for key in REPLY_KEYS):
        return False
    roles = [message["role"] for message in messages]
    return roles[-1] == "assistant" or (
        "assistant" in roles and line.keys() <= {"messages", "tools"}
    )


def _origins(value: Any, where: str) -> dict[str, Origin]:
    origins = check_object(value, where, "origins")
    known = [origin.value for origin in Origin]
    for key, origin in origins.items():
        if origin not in known:
            raise fail(where, f"origins.{key}", origin, "one of " + ", ".join(known))
    return {key: Origin(origin) for key, origin in origins.items()}


def _session_id(line: dict[str, Any], where: str) -> str | None:
    for key in SESSION_KEYS:
        value = line.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
            raise fail(where, key, value, "text or a number")
        return str(value)
    return None


def _reply(line: dict[str, Any], where: str) -> Message | None:
    response = line.get("response")
    if response is None and line.get("choices") is not None:
        return _choice({"choices": line["choices"]}, where, "")
    match response:
        case None:
            return None
        case str():
            return {"role": "assistant", "content": response}
        case {"choices": _}:
            return _choice(response, where, "response.")
        case {"message": message}:
            return check_reply(message, where, "response.message")
        case {"role": _}:
            return check_reply(response, where, "response")
        case {"error": _}:
            return None
        case _:
            raise fail(where, "response", response, "a chat completion, a message, text or null")


def _choice(completion: dict[str, Any], where: str, prefix: str) -> Message:
    """The first of several choices: it is the one that agents go on with."""
    choices = check_list(completion["choices"], where, f"{prefix}choices")
    if not choices:
        raise fail(where, f"{prefix}choices", choices, "at least one choice")
    choice = check_object(choices[0], where, f"{prefix}choices[0]")
    return check_reply(choice.get("message"), where, f"{prefix}choices[0].message")


def _unix_time(value: Any, where: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, str):
        return check_iso_time(value, where, "timestamp")
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value < MILLISECONDS_END:
        raise fail(where, "timestamp", value, "Unix seconds or milliseconds, or an ISO time")
    return float(value) if value < SECONDS_END else value / 1000
