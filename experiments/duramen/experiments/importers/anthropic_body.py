"""Anthropic Messages: bodies and replies as OpenAI chat messages.

Form: https://docs.anthropic.com/en/api/messages and .../build-with-claude/prompt-caching. `system`
becomes the first message. A user message whose blocks are results of tools becomes one tool message
for each, and a user message for each run of other blocks. Of an assistant message, text becomes
content, tool_use tool_calls (`input` as JSON text: the log does not show how the model spelled it),
thinking reasoning_content; the order among these three kinds is lost. Signatures of thinking are
left out; redacted thinking stays under `redacted_thinking`. cache_control is left out of messages
and tools and is found in `Sending.marks`.
"""

from collections.abc import Mapping
from typing import Any

from duramen.experiments.importers.body import (
    Body,
    content_of,
    options_in,
    reply_of,
    text_in,
    tool_call,
)
from duramen.experiments.importers.messages import (
    check_list,
    check_messages,
    check_object,
    check_reply,
    check_tools,
    fail,
)
from duramen.experiments.trajectory import Message, Sending, Tool

# What, beside messages and tools, makes another prompt or drops cached messages; see the table
# "What invalidates the cache" of the page on prompt caching.
OPTIONS = (
    "tool_choice",
    "thinking",
    "output_config",
    "speed",
    "context_management",
    "mcp_servers",
    "container",
)
BLOCKS = {"tool_use", "tool_result", "redacted_thinking"}
TTLS_S = {"5m": 300.0, "1h": 3600.0}
TOOLS_MARK = -1


def is_anthropic_body(value: Any) -> bool:
    """Whether a body with `messages` says somewhere that it is Anthropic's and not OpenAI's."""
    if not (isinstance(value, dict) and isinstance(value.get("messages"), list)):
        return False
    if "anthropic_version" in value or isinstance(value.get("system"), str | list):
        return True
    if any("input_schema" in item for item in _objects(value.get("tools"))):
        return True
    messages = _objects(value["messages"])
    if any(m.get("role") not in ("user", "assistant") or "tool_calls" in m for m in messages):
        return False
    return any(_is_its(block) for m in messages for block in _objects(m.get("content")))


def _is_its(block: Mapping[str, Any]) -> bool:
    return (
        str(block.get("type")) in BLOCKS
        or "cache_control" in block
        or isinstance(block.get("thinking"), str)
        or isinstance(block.get("source"), dict)
    )


def is_anthropic_reply(value: Any) -> bool:
    return isinstance(value, dict) and value.get("type") == "message" and "content" in value


def read_anthropic_body(value: Any, where: str) -> Body:
    """Raises TrajectoryError, with `where` and the field, at what cannot be such a body."""
    body = check_object(value, where, "the body")
    made = _Messages(where)
    if body.get("system") is not None:
        made.add("system", body["system"], "system")
    for index, item in enumerate(check_list(body.get("messages"), where, "messages")):
        field = f"messages[{index}]"
        message = check_object(item, where, field)
        if message.get("role") not in ("user", "assistant", "system"):
            raise fail(where, f"{field}.role", message.get("role"), "'user' or 'assistant'")
        made.add(message["role"], message.get("content"), f"{field}.content")
    if "cache_control" in body:  # asks for a mark on the last block
        made.mark(body["cache_control"])
    tools = _tools(body, made, where)
    sending = Sending(
        provider="anthropic",
        model=text_in(body, "model"),
        options=options_in(body, OPTIONS),
        keys=tuple(body),
        marks=tuple(sorted(made.marks)),
        ttl_s=max(made.ttls_s, default=None),
    )
    return Body(check_messages(made.messages, where), check_tools(tools, where), sending)


def read_anthropic_reply(value: Any, where: str, field: str) -> Message:
    """The assistant's message of a response, or of anything with such a `content`."""
    response = check_object(value, where, field)
    made = _Messages(where)
    made.add("assistant", response.get("content"), f"{field}.content")
    return check_reply(made.messages[0], where, field)


def anthropic_messages(role: str, content: Any, where: str, field: str) -> list[dict[str, Any]]:
    """The messages that one message of `role` with this content becomes."""
    made = _Messages(where)
    made.add(role, content, field)
    return made.messages


class _Messages:
    """The messages as they grow, and which of them bear a cache mark."""

    def __init__(self, where: str) -> None:
        self.messages: list[dict[str, Any]] = []
        self.marks: set[int] = set()
        self.ttls_s: list[float] = []
        self._where = where

    def mark(self, cache_control: Any, index: int | None = None) -> None:
        if not isinstance(cache_control, dict) or (index is None and not self.messages):
            return
        self.marks.add(len(self.messages) - 1 if index is None else index)
        ttl = cache_control.get("ttl", "5m")
        self.ttls_s += [TTLS_S[ttl]] if isinstance(ttl, str) and ttl in TTLS_S else []

    def add(self, role: str, content: Any, field: str) -> None:
        if isinstance(content, str):
            self.messages.append({"role": role, "content": content})
            return
        blocks = [
            self._block(item, f"{field}[{index}]")
            for index, item in enumerate(check_list(content, self._where, field))
        ]
        if role == "assistant":
            self._add_assistant(blocks, field)
        else:
            self._add_runs(role, blocks, field)

    def _block(self, item: Any, field: str) -> dict[str, Any]:
        block = check_object(item, self._where, field)
        if not isinstance(block.get("type"), str):
            raise fail(self._where, f"{field}.type", block.get("type"), "the type of a block")
        if block["type"] == "text" and not isinstance(block.get("text"), str):
            raise fail(self._where, f"{field}.text", block.get("text"), "text")
        return block

    def _add_runs(self, role: str, blocks: list[dict[str, Any]], field: str) -> None:
        """One message for each result of a tool and for each run of other blocks between them."""
        run: list[dict[str, Any]] = []
        for index, block in enumerate(blocks):
            if block["type"] != "tool_result":
                run.append(block)
                continue
            if run:
                self._add_run(role, run)
            run = []
            self.messages.append(self._result(block, f"{field}[{index}]"))
            self.mark(block.get("cache_control"))
        if run or not blocks:
            self._add_run(role, run)

    def _add_run(self, role: str, blocks: list[dict[str, Any]]) -> None:
        content = content_of([_part(block) for block in blocks])
        self.messages.append({"role": role, "content": "" if content is None else content})
        for block in blocks:
            self.mark(block.get("cache_control"))

    def _result(self, block: dict[str, Any], field: str) -> dict[str, Any]:
        content = block.get("content")
        if isinstance(content, list):
            items = enumerate(content)
            content = content_of([_part(self._block(b, f"{field}.content[{i}]")) for i, b in items])
        message = {
            "role": "tool",
            "tool_call_id": block.get("tool_use_id"),
            "content": "" if content is None else content,
        }
        return message | ({"is_error": True} if block.get("is_error") is True else {})

    def _add_assistant(self, blocks: list[dict[str, Any]], field: str) -> None:
        parts: list[Mapping[str, Any]] = []
        calls, thoughts, redacted = [], [], []
        for index, block in enumerate(blocks):
            match block["type"]:
                case "tool_use":
                    place = f"{field}[{index}].input"
                    arguments = check_object(block.get("input"), self._where, place)
                    calls.append(tool_call(block.get("id"), block.get("name"), arguments))
                case "thinking":
                    if not isinstance(block.get("thinking"), str):
                        place = f"{field}[{index}].thinking"
                        raise fail(self._where, place, block.get("thinking"), "text")
                    thoughts.append(block["thinking"])
                case "redacted_thinking":
                    redacted.append(block.get("data"))
                case _:
                    parts.append(_part(block))
        message = reply_of(parts, calls, thoughts)
        self.messages.append(message | ({"redacted_thinking": redacted} if redacted else {}))
        for block in blocks:
            self.mark(block.get("cache_control"))


def _part(block: Mapping[str, Any]) -> dict[str, Any]:
    """The content part that a block is; text keeps nothing but its text."""
    if block["type"] == "text":
        return {"type": "text", "text": block["text"]}
    source = block.get("source")
    if block["type"] == "image" and isinstance(source, dict):
        url = text_in(source, "url") or f"data:{source.get('media_type')};base64,"
        return {"type": "image_url", "image_url": {"url": url + (text_in(source, "data") or "")}}
    return {key: value for key, value in block.items() if key != "cache_control"}


def _tools(body: Mapping[str, Any], made: _Messages, where: str) -> list[Tool]:
    """The definitions with their keys in the order they had; a tool of the server keeps its type"""
    tools: list[Tool] = []
    given = body.get("tools")
    for index, item in enumerate([] if given is None else check_list(given, where, "tools")):
        tool = check_object(item, where, f"tools[{index}]")
        made.mark(tool.get("cache_control"), TOOLS_MARK)
        function = {
            "parameters" if key == "input_schema" else key: value
            for key, value in tool.items()
            if key not in ("cache_control", "type")
        }
        kind = tool.get("type")
        own_kind = isinstance(kind, str) and kind != "custom"
        tools.append({"type": kind if own_kind else "function", "function": function})
    return tools


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
