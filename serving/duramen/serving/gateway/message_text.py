"""The text of a message, whether its content is a string or a list of parts.

What is no text (null, images, anything of a wrong type) is never touched: vLLM answers for it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

Message = Mapping[str, Any]
SEPARATOR = "\n"  # between the text parts of a message, as vLLM joins them


def role_of(message: Any) -> Any:
    return message.get("role") if isinstance(message, Mapping) else None


def num_system(messages: Sequence[Message]) -> int:
    """How many messages the conversation opens with that are the system's or the developer's."""
    first = (i for i, each in enumerate(messages) if role_of(each) not in ("system", "developer"))
    return next(first, len(messages))


def texts(message: Message) -> list[str]:
    """The texts of its content, in order."""
    content = message.get("content")
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        return []
    return [text for part in content if (text := _text(part)) is not None]


def with_texts(message: Message, new: Sequence[str]) -> Message:
    """The message with its texts replaced one by one; itself where they are the same."""
    if list(new) == texts(message):
        return message
    content = message.get("content")
    if isinstance(content, str):
        return {**message, "content": new[0]}
    rest = iter(new)
    parts = [
        part if _text(part) is None else _with_text(part, next(rest)) for part in content or ()
    ]
    return {**message, "content": parts}


def _text(part: Any) -> str | None:
    if isinstance(part, str):
        return part
    is_text = isinstance(part, Mapping) and part.get("type") == "text"
    return part["text"] if is_text and isinstance(part.get("text"), str) else None


def _with_text(part: Any, text: str) -> Any:
    return text if isinstance(part, str) else {**part, "text": text}
