"""ShareGPT: conversations as turns of {"from", "value"}, in a list, in lines or one at a time.

{"id": ..., "conversations": [...]}, with `items` or `conversation` for `conversations` and role and
content for from and value where a file has those. A record may give its `system` prompt and its
`tools` (definitions, or JSON text of them, with or without the wrapper {"type": "function"}).

Each turn of the model is a call, with all turns before it as derived prompt. Turns of one speaker
in a row stay apart. What the model says before the first turn of a human or a tool is history and
no call. Calls and results of tools stay the text that they are.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from duramen.experiments.importers.documents import Document
from duramen.experiments.importers.messages import (
    check_list,
    check_messages,
    check_object,
    check_tools,
    conversation_calls,
    fail,
)
from duramen.experiments.trajectory import Message, Origin, Session, Tool
from duramen.layout.errors import TrajectoryError

TURNS = ("conversations", "conversation", "items")
ROLES = {
    "system": "system",
    **dict.fromkeys(("human", "user"), "user"),
    **dict.fromkeys(
        ("gpt", "assistant", "chatgpt", "bing", "bard", "model", "function_call"), "assistant"
    ),
    **dict.fromkeys(("tool", "observation", "function_response"), "tool"),
}


def is_sharegpt(value: Any) -> bool:
    """Whether a record, or an object that holds a list of them, looks like ShareGPT."""
    turns = value.get(_key_of(value)) if isinstance(value, dict) else None
    if not isinstance(turns, list):
        return False
    if not turns:
        return "conversations" in value
    first = turns[0]
    return is_sharegpt(first) or (
        isinstance(first, dict) and bool({"from", "value", "role"} & first.keys())
    )


def read_sharegpt(documents: Iterator[Document], name: str) -> Iterator[Session]:
    number = 0
    for where, value in documents:
        for field, record in _records(value, where):
            number += 1
            yield _session(check_object(record, where, field), where, field, f"{name}:{number}")


def _records(value: Any, where: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list):
        yield from ((f"[{index}]", item) for index, item in enumerate(value))
        return
    key = _key_of(check_object(value, where, "the document"))
    turns = value.get(key)
    if isinstance(turns, list) and turns and is_sharegpt(turns[0]):
        yield from ((f"{key}[{index}]", item) for index, item in enumerate(turns))
        return
    yield "the line", value


def _session(record: dict[str, Any], where: str, field: str, session_id: str) -> Session:
    key = _key_of(record)
    place = f"{field}.{key}"
    turns = check_list(record.get(key), where, place)
    messages = [_message(turn, where, f"{place}[{index}]") for index, turn in enumerate(turns)]
    if system := record.get("system"):
        if not isinstance(system, str):
            raise fail(where, f"{field}.system", system, "text")
        messages.insert(0, {"role": "system", "content": system})
    asked = next(
        (i for i, m in enumerate(messages) if m["role"] in ("user", "tool")), len(messages)
    )
    calls = conversation_calls(check_messages(messages, where, place))
    origins = {"messages": Origin.DERIVED, "reply": Origin.RECORDED}
    tools = _tools(record.get("tools"), where, f"{field}.tools")
    if tools:
        origins["tools"] = Origin.RECORDED
    return Session(
        session_id=_session_id(record, where, field) or session_id,
        calls=tuple(call for call in calls if len(call.messages) > asked),
        tools=tools,
        origins=origins,
    )


def _message(value: Any, where: str, field: str) -> Message:
    turn = check_object(value, where, field)
    speaker = turn.get("from", turn.get("role"))
    if not isinstance(speaker, str) or speaker.lower() not in ROLES:
        raise fail(where, f"{field}.from", speaker, "one of " + ", ".join(ROLES))
    text = turn.get("value", turn.get("content"))
    if not isinstance(text, str):
        raise fail(where, f"{field}.value", text, "text")
    return {"role": ROLES[speaker.lower()], "content": text}


def _tools(value: Any, where: str, field: str) -> tuple[Tool, ...]:
    if isinstance(value, str) and value.strip():
        try:
            value = msgspec.json.decode(value)
        except (ValueError, RecursionError) as error:
            raise TrajectoryError(f"{where}: {field} is text, but no JSON: {error}") from error
    if not value:
        return ()
    wrapped = [
        {"type": "function", "function": tool}
        if isinstance(tool, dict) and "function" not in tool
        else tool
        for tool in check_list(value, where, field)
    ]
    return check_tools(wrapped, where, field)


def _session_id(record: dict[str, Any], where: str, field: str) -> str | None:
    value = record.get("id")
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise fail(where, f"{field}.id", value, "text or a number")
    return str(value)


def _key_of(record: dict[str, Any]) -> str:
    return next((key for key in TURNS if key in record), TURNS[0])
