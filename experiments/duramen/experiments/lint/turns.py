"""Rules on the messages of one body: system messages, forms of content, arguments of tool calls."""

import ast
import json
from collections.abc import Iterator, Mapping
from typing import Any

from duramen.experiments.importers.anthropic_body import is_anthropic_body
from duramen.experiments.importers.body import MARK
from duramen.experiments.lint.json_places import Path

SYSTEM_ROLES = ("system", "developer")
MAX_ARGUMENT_CHARS = 100_000
Placed = tuple[str, Path, str]  # rule, path, message


def seen_in_messages(body: Mapping[str, Any]) -> Iterator[Placed]:
    given = body.get("messages")
    if not isinstance(given, list):
        return
    messages = [(("messages", i), m) for i, m in enumerate(given) if isinstance(m, dict)]
    yield from _system(messages)
    if not is_anthropic_body(body):  # there a string is defined as short for one block of text
        yield from _forms(messages)
        yield from _arguments(messages)


def _system(messages: list[tuple[tuple[str, int], dict[str, Any]]]) -> Iterator[Placed]:
    roles = [message.get("role") for _, message in messages]
    num_leading = next((i for i, r in enumerate(roles) if r not in SYSTEM_ROLES), len(roles))
    if num_leading > 1:
        what = f"{num_leading} system messages begin the conversation"
        yield "system-several", messages[1][0], what
    late = [i for i, role in enumerate(roles) if i > num_leading and role in SYSTEM_ROLES]
    if late:
        what = f"message {late[0]} of {len(roles)} is a {roles[late[0]]} message"
        yield "system-late", messages[late[0]][0], what


def _forms(messages: list[tuple[tuple[str, int], dict[str, Any]]]) -> Iterator[Placed]:
    """The first message of a role whose one text is in the other form than one before it."""
    first: dict[str, tuple[str, int]] = {}
    told: set[str] = set()
    for (_, index), message in messages:
        form, role = _form(message.get("content")), str(message.get("role"))
        if form is None or role in told:
            continue
        was, at = first.setdefault(role, (form, index))
        if was != form:
            told.add(role)
            what = f"the {role}'s content is {form}, and {was} in message {at}"
            yield "content-forms-mixed", ("messages", index, "content"), what


def _form(content: Any) -> str | None:
    """None where no other form could have been chosen."""
    if isinstance(content, str):
        return "text" if content else None
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], dict):
        plain = content[0].get("type") == "text" and MARK not in content[0]
        return "a list of one text" if plain else None
    return None


def _arguments(messages: list[tuple[tuple[str, int], dict[str, Any]]]) -> Iterator[Placed]:
    for path, message in messages:
        calls = message.get("tool_calls")
        for index, call in enumerate(calls if isinstance(calls, list) else []):
            function = call.get("function") if isinstance(call, dict) else None
            if not isinstance(function, dict) or "arguments" not in function:
                continue
            what = _rewritten(function["arguments"])
            if what is not None:
                place = (*path, "tool_calls", index, "function", "arguments")
                yield "arguments-rewritten", place, what


def _rewritten(arguments: Any) -> str | None:
    if not isinstance(arguments, str):
        return "the arguments are an object; the API sends and takes the text that the model wrote"
    if not arguments.strip() or len(arguments) > MAX_ARGUMENT_CHARS:
        return None
    try:
        json.loads(arguments)
        return None
    except (ValueError, RecursionError):
        pass
    try:
        value = ast.literal_eval(arguments)
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return None
    spelled = isinstance(value, dict | list)
    return "the arguments are Python's spelling of an object, not JSON" if spelled else None
