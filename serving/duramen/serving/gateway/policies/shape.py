"""What the operator's policies make of a request. All of them off: nothing at all."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from duramen.layout.frame import frame, frame_lines
from duramen.serving.gateway.message_text import num_system, role_of, texts
from duramen.serving.gateway.policies.reminder import reminder
from duramen.serving.gateway.policies.tools import freeze
from duramen.serving.gateway.policies.volatile import Moved, move_fields
from duramen.serving.gateway.settings import PolicySettings

Message = Mapping[str, Any]
Tool = Mapping[str, Any]

ToolsOfSession = Callable[[Sequence[Message]], Sequence[Tool] | None]

VALUES_HEADER = "Values of the fields that the system message refers to:"


@dataclass(frozen=True)
class Shaped:
    """`suffix`: text that goes directly behind the content of the last message, in this call only;
    it opens with an empty line. `acted`: a line for each policy that acted or could not, without
    content of the prompt.
    """

    messages: list[Message]
    tools: list[Tool]
    suffix: str = ""
    acted: tuple[str, ...] = ()


def shape(
    messages: list[Message],
    tools: list[Tool],
    settings: PolicySettings,
    *,
    tools_of_session: ToolsOfSession,
    count: Callable[[str], int],
) -> Shaped:
    """Nothing that is handed in changes; a message or list that no policy touches stays the same
    object. A message becomes the same text in each call of its conversation, so that the recorded
    ids are found again.

    `tools_of_session`: given the shaped messages, the tools that their session's first call ended
    up with, None if there is no session. `count`: tokens of a text.
    Where the last message is neither a user's nor a tool's there is no place for a suffix: no
    reminder then, and volatile fields stay in the root, since their values would be lost.
    """
    acted: list[str] = []
    has_place = bool(messages) and _takes_suffix(messages[-1])
    moved = Moved(messages)
    if settings.volatile == "leaf":
        moved = move_fields(messages)
        acted += _said(f"volatile fields moved to the end: {moved.kinds}", moved.lines, has_place)
        moved = moved if has_place else Moved(messages)
    shaped = moved.messages
    if settings.frame_tool_results:
        framed = [_framed(message) for message in shaped]
        if num_framed := sum(new is not old for new, old in zip(framed, shaped, strict=True)):
            acted.append(f"tool results framed as untrusted data: {num_framed}")
            shaped = framed
    if settings.freeze_tools:
        tools, line = freeze(tools, tools_of_session(shaped))
        acted += [line] if line else []
    parts = []
    if settings.reminder_tokens > 0:
        root = [text for message in shaped[: num_system(shaped)] for text in texts(message)]
        reminded = reminder(root, settings.reminder_tokens, lambda text: count("\n\n" + text))
        acted += _said("reminder of the root's rules", reminded, has_place)
        parts += [reminded] if reminded and has_place else []
    parts += ["\n".join([VALUES_HEADER, *moved.lines])] if moved.lines else []
    suffix = "".join(f"\n\n{part}" for part in parts)
    return Shaped(shaped, tools, suffix, tuple(acted))


def _said(line: str, done: object, has_place: bool) -> list[str]:
    if not done:
        return []
    return [line if has_place else f"not done ({line}): the last message is no user's or tool's"]


def _takes_suffix(message: Any) -> bool:
    if role_of(message) not in ("user", "tool"):
        return False
    return isinstance(message.get("content"), str | list)


def _framed(message: Message) -> Message:
    """A tool's result between two lines that it cannot forge; empty ones stay empty."""
    if role_of(message) not in ("tool", "function") or not any(texts(message)):
        return message
    content = message["content"]
    if isinstance(content, str):
        return {**message, "content": frame(content)}
    parts = [part if isinstance(part, Mapping) else {"text": part} for part in content]
    written = [each for part in parts for each in part.values() if isinstance(each, str)]
    opening, closing = ({"type": "text", "text": line} for line in frame_lines(written))
    return {**message, "content": [opening, *content, closing]}
