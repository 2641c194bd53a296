"""One choice of a streamed answer, put together from its deltas."""

from collections.abc import Mapping
from typing import Any


class Gathered:
    """`finish_reason` and `stop_reason` are None until they came."""

    def __init__(self) -> None:
        self.finish_reason: str | None = None
        self.stop_reason: str | int | None = None
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._tool_calls: list[dict[str, Any]] = []

    def add(self, choice: Mapping[str, Any]) -> str:
        """Take one delta; returns the content that it added."""
        delta = choice.get("delta") or {}
        content: str = delta.get("content") or ""
        self.add_text(content, delta.get("reasoning"))
        for part in delta.get("tool_calls") or ():
            self._add_tool_call(part)
        self.finish_reason = choice.get("finish_reason") or self.finish_reason
        if choice.get("stop_reason") is not None:
            self.stop_reason = choice["stop_reason"]
        return content

    def add_text(self, content: str, reasoning: str | None) -> None:
        self._content.append(content)
        if reasoning:
            self._reasoning.append(reasoning)

    @property
    def message(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._content) or None}
        if self._tool_calls:
            message["tool_calls"] = self._tool_calls
        if self._reasoning:
            message["reasoning"] = "".join(self._reasoning)
        return message

    def _add_tool_call(self, part: Mapping[str, Any]) -> None:
        while len(self._tool_calls) <= part["index"]:
            function = {"name": "", "arguments": ""}
            self._tool_calls.append({"id": None, "type": "function", "function": function})
        call = self._tool_calls[part["index"]]
        call["id"] = part.get("id") or call["id"]
        for key, value in (part.get("function") or {}).items():
            call["function"][key] += value or ""
