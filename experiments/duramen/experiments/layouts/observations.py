"""Which messages are tool outputs, and which call each of them answers.

Two forms: structured `tool_calls`, answered by messages of role tool, and agents without tool
calling, whose text holds a fenced command (or a call between tags) that the next user message
answers. A user message counts as an answer only in a conversation whose assistant writes commands
in most of its messages so far and has no structured calls, so that a person who was shown a command
keeps their words. A chat whose very first reply ends in a command is taken for such an agent until
most of its replies are none.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec

from duramen.experiments.trajectory import Message

_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})([^`\n]*)$")
_SHELL_WORDS = {"bash", "sh", "shell", "zsh", "console", "terminal", "cmd", "command"}
_CLOSING_TAG = re.compile(
    r"</(command|tool_call|function_call|tool_use|action|bash|execute_bash|execute)\s*>\Z", re.I
)


@dataclass(frozen=True)
class Use:
    """One call and its answer. Either `name` and `arguments` are known, or `command`, the text of
    an agent that writes its commands. `result`: index of the answering message, None if there is
    none yet."""

    caller: int
    result: int | None
    name: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    command: str | None = None


def tool_outputs(messages: Sequence[Message]) -> list[int]:
    """Indices of the messages that are tool outputs, ascending."""
    answers = {use.result for use in uses(messages)}
    return [
        i for i, message in enumerate(messages) if message.get("role") == "tool" or i in answers
    ]


def uses(messages: Sequence[Message], start: int = 0) -> Iterator[Use]:
    """The calls of assistant messages from `start` on, in order."""
    num_assistant = num_commands = 0
    structured = False
    for i, message in enumerate(messages):
        if message.get("role") != "assistant":
            continue
        calls = message.get("tool_calls")
        structured = structured or bool(calls)
        num_assistant += 1
        command = written_command(message_text(message) or "")
        num_commands += command is not None
        if i < start:
            continue
        if calls:
            yield from _structured(messages, i, calls)
        elif command is not None and not structured and 2 * num_commands > num_assistant:
            answered = i + 1 < len(messages) and messages[i + 1].get("role") == "user"
            yield _written(i, i + 1 if answered else None, command)


@lru_cache(4096)
def written_command(text: str) -> str | None:
    """The command that an assistant's text ends with; None if it is no command."""
    text = text.rstrip()
    if closing := _CLOSING_TAG.search(text, max(len(text) - 40, 0)):
        opening = text.lower().rfind(f"<{closing[1].lower()}", 0, closing.start())
        inside = text[opening : closing.start()].partition(">")[2]
        return inside.strip() if opening >= 0 else None
    lines = text.split("\n")
    last = _FENCE.match(lines[-1])
    if last is None or last[2].strip():
        return None
    for i in range(len(lines) - 2, -1, -1):
        found = _FENCE.match(lines[i])
        if found and found[1] == last[1]:
            language = found[2].strip().lower()
            if language and not _SHELL_WORDS.intersection(re.split(r"[^a-z]+", language)):
                return None
            return "\n".join(lines[i + 1 : -1]).strip()
    return None


def message_text(message: Message) -> str | None:
    """The text of a message; None if it has none or holds something else beside it."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence) or not content:
        return None
    parts = [
        part if isinstance(part, str) else part.get("text")
        for part in content
        if isinstance(part, str) or (isinstance(part, Mapping) and part.get("type") == "text")
    ]
    texts = [part for part in parts if isinstance(part, str)]
    return "\n".join(texts) if len(texts) == len(content) else None


def _written(caller: int, result: int | None, command: str) -> Use:
    """A call that an assistant wrote as text: a JSON object with its name, else a command."""
    call = _arguments(command)
    if isinstance(call.get("name"), str):
        given = call.get("arguments", call.get("parameters"))
        return Use(caller, result, call["name"], _arguments(given))
    return Use(caller, result, command=command)


def _structured(messages: Sequence[Message], caller: int, calls: Any) -> Iterator[Use]:
    """Answers by their id where it names exactly one answer, else in order."""
    if not isinstance(calls, Sequence) or isinstance(calls, str):
        return
    results = []
    for index in range(caller + 1, len(messages)):
        if messages[index].get("role") == "assistant":
            break
        if messages[index].get("role") == "tool":
            results.append(index)
    ids = [messages[index].get("tool_call_id") for index in results]
    call_ids = [call.get("id") if isinstance(call, Mapping) else None for call in calls]
    for position, call in enumerate(calls):
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping):
            continue
        call_id = call_ids[position]
        result = None
        if call_id is not None and ids.count(call_id) == call_ids.count(call_id) == 1:
            result = results[ids.index(call_id)]
        elif position < len(results) and ids[position] in (None, call_id):
            result = results[position]
        yield Use(caller, result, str(function.get("name")), _arguments(function.get("arguments")))


def _arguments(value: Any) -> Mapping[str, Any]:
    """The arguments as an object, an empty one if they are none."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError):
            return {}
    return value if isinstance(value, Mapping) else {}
