"""What a prompt could show of a message, and whether two show the same."""

from collections.abc import Mapping, Sequence
from typing import Any

from duramen.layout.diagnose.message_fields import (
    calls_of,
    content_of,
    role_of,
    text_of,
    thought_of,
)

SYSTEM = ("system", "developer")


def same(old: Any, new: Any) -> bool:
    return bool(old == new) or key_of(old) == key_of(new)


def key_of(message: Any) -> str:
    """What a prompt could show of a message."""
    if not isinstance(message, Mapping):
        return repr(message)
    content = message.get("content")
    if isinstance(content, Sequence) and not isinstance(content, str):
        content = [_bare(part) for part in content]
    calls = list(calls_of(message))
    rest = (message.get("tool_call_id"), message.get("name"))
    return repr((role_of(message), content or "", thought_of(message) or "", calls, rest))


def _bare(part: Any) -> Any:
    if not isinstance(part, Mapping):
        return part
    return {key: value for key, value in part.items() if key != "cache_control"}


def text_in(message: Any) -> str:
    """The text of its content."""
    return text_of(content_of(message))


def aligned(old: Sequence[Any], new: Sequence[Any], index: int) -> bool:
    """Whether what follows is the same at the same place."""
    rest = range(index + 1, min(len(old), len(new)))
    return any(same(old[i], new[i]) for i in rest[:8])
