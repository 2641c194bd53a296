"""Where in a conversation a text stands: what is guessed from a value depends on it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """`is_root`: system messages, tools, and text of which nothing else is known. `is_first_user`:
    the first user message, where clients put environment blocks and people their task."""

    name: str = ""
    is_root: bool = False
    is_first_user: bool = False
    is_tool_output: bool = False


ROOT = Place(is_root=True)
