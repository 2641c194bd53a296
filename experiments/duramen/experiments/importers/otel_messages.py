"""Messages as OpenTelemetry's conventions for generative AI write them, as OpenAI chat messages."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from duramen.experiments.importers.body import content_of, reply_of, text_in, tool_call
from duramen.experiments.importers.messages import (
    check_list,
    check_message,
    check_object,
    fail,
)
from duramen.experiments.importers.otlp import Event, decoded
from duramen.experiments.trajectory import Message

EVENT_ROLES = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}
NUMBERED = re.compile(r"(?:gen_ai\.prompt|gen_ai\.completion)\.(\d{1,6})\.(.+)")
NUMBERED_CALL = re.compile(r"tool_calls\.(\d{1,4})\.(id|name|arguments)")


def message_of(value: Any, where: str, field: str) -> list[Message]:
    """The messages that one message of the log is: each result of a tool becomes one of its own."""
    item = check_object(decoded(value), where, field)
    if "parts" not in item:
        kept = {key: inner for key, inner in item.items() if key != "finish_reason"}
        return [check_message(kept, where, field)]
    made = _Parts(where)
    for index, part in enumerate(check_list(item["parts"], where, f"{field}.parts")):
        made.add(part, f"{field}.parts[{index}]")
    return [check_message(message, where, field) for message in made.finish(item.get("role"))]


def system_message(value: Any, where: str, field: str) -> list[Message]:
    """Of system instructions: parts, or text."""
    if value is None:
        return []
    if isinstance(value, str):
        return [{"role": "system", "content": value}]
    return message_of({"role": "system", "parts": value}, where, field)


def event_messages(events: Sequence[Event], where: str) -> tuple[list[Message], Message | None]:
    """The prompt and the first choice that the events of a span tell."""
    messages: list[Message] = []
    reply: Message | None = None
    for event in events:
        values = {**event.attributes}
        values = {key.removeprefix("gen_ai.event."): value for key, value in values.items()}
        if event.name in EVENT_ROLES:
            messages.append(_event_message(values, EVENT_ROLES[event.name], where, event.name))
        elif event.name == "gen_ai.choice" and reply is None:
            inner = decoded(values.get("message", values))
            said = inner if isinstance(inner, dict) else {"content": inner}
            reply = _event_message(said, "assistant", where, event.name)
        elif event.name == "gen_ai.content.prompt":
            given = decoded(values.get("gen_ai.prompt"))
            for index, item in enumerate(given if isinstance(given, list) else []):
                messages += message_of(item, where, f"gen_ai.prompt[{index}]")
        elif event.name == "gen_ai.content.completion" and reply is None:
            given = decoded(values.get("gen_ai.completion"))
            if isinstance(given, list) and given:
                reply = message_of(given[0], where, "gen_ai.completion[0]")[0]
    return messages, reply


def numbered_messages(
    attributes: Mapping[str, Any], where: str
) -> tuple[list[Message], Message | None]:
    """Of gen_ai.prompt.N.role and its like."""
    prompt = _numbered(attributes, "gen_ai.prompt.", "user", where)
    completion = _numbered(attributes, "gen_ai.completion.", "assistant", where)
    return prompt, completion[0] if completion else None


def _numbered(attributes: Mapping[str, Any], prefix: str, role: str, where: str) -> list[Message]:
    found: dict[int, dict[str, Any]] = {}
    for key, value in attributes.items():
        if key.startswith(prefix) and (match := NUMBERED.fullmatch(key)):
            found.setdefault(int(match[1]), {})[match[2]] = value
    messages = []
    for number in sorted(found):
        values = found[number]
        calls: dict[int, dict[str, Any]] = {}
        for key, value in values.items():
            if match := NUMBERED_CALL.fullmatch(key):
                calls.setdefault(int(match[1]), {})[match[2]] = value
        values["tool_calls"] = [calls[index] for index in sorted(calls)] or None
        messages.append(_event_message(values, role, where, f"{prefix}{number}"))
    return messages


def _event_message(values: Mapping[str, Any], role: str, where: str, field: str) -> Message:
    given = text_in(values, "role") or role
    message: dict[str, Any] = {"role": given, "content": _content(values.get("content"))}
    calls = decoded(values.get("tool_calls"))
    if isinstance(calls, list) and calls:
        message["tool_calls"] = [_call(decoded(c), where, f"{field}.tool_calls") for c in calls]
    if given == "tool":
        message["tool_call_id"] = values.get("id", values.get("tool_call_id"))
    return check_message(message, where, field)


def _content(value: Any) -> Any:
    """Text, or what is no list of parts as its JSON text."""
    if value is None or isinstance(value, str):
        return value
    is_parts = isinstance(value, list) and all(
        isinstance(part, dict) and isinstance(part.get("type"), str) for part in value
    )
    return value if is_parts else json.dumps(value, ensure_ascii=False)


def _call(value: Any, where: str, field: str) -> dict[str, Any]:
    call = check_object(value, where, field)
    inner = call.get("function")
    function = inner if isinstance(inner, dict) else call
    return tool_call(call.get("id"), function.get("name"), function.get("arguments", ""))


class _Parts:
    def __init__(self, where: str) -> None:
        self._where = where
        self._parts: list[Mapping[str, Any]] = []
        self._calls: list[dict[str, Any]] = []
        self._thoughts: list[str] = []
        self._results: list[dict[str, Any]] = []

    def add(self, value: Any, field: str) -> None:
        part = check_object(decoded(value), self._where, field)
        match part.get("type"):
            case "text":
                text = part.get("content", part.get("text"))
                if not isinstance(text, str):
                    raise fail(self._where, f"{field}.content", text, "text")
                self._parts.append({"type": "text", "text": text})
            case "reasoning" | "thinking":
                self._thoughts.append(text_in(part, "content", "text") or "")
            case "tool_call":
                arguments = part.get("arguments")
                arguments = "" if arguments is None else arguments
                self._calls.append(tool_call(part.get("id"), part.get("name"), arguments))
            case "tool_call_response":
                content = _content(part.get("response", part.get("result")))
                result = {"role": "tool", "tool_call_id": part.get("id"), "content": content or ""}
                self._results.append(result)
            case "uri" if isinstance(part.get("uri"), str):
                self._parts.append({"type": "image_url", "image_url": {"url": part["uri"]}})
            case _:
                self._parts.append(part)

    def finish(self, role: Any) -> list[dict[str, Any]]:
        if role == "assistant" or (role == "model"):
            return [*self._results, reply_of(self._parts, self._calls, self._thoughts)]
        if self._results and not self._parts:
            return self._results
        content = content_of(self._parts)
        return [*self._results, {"role": role, "content": "" if content is None else content}]
