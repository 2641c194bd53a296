"""OpenAI Responses: bodies and replies as OpenAI chat messages.

Form: https://platform.openai.com/docs/api-reference/responses. `instructions` become a system
message. What the model made in a row (reasoning, messages, calls) becomes one assistant message, an
output of a call a tool message. Reasoning is known by its text or else its summary; where only
`encrypted_content` is given nothing is left of it. A call of a tool of OpenAI's own
(local_shell_call, computer_call, ...) becomes a tool call of that name with its `action` as
arguments; a custom tool's free text is its arguments as it is.

With `previous_response_id` or `conversation` the history is kept by the server: such a body is less
than the prompt. The importer puts the rest in front where the log has it.
"""

import json
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

OPTIONS = ("tool_choice", "reasoning", "text", "truncation", "prompt")
KEPT_S = {"24h": 86_400.0}  # prompt_cache_retention
ROLES = ("system", "developer", "user", "assistant")
TEXT_PARTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text")
SERVED = {  # calls that the provider itself answers: no output item follows
    "web_search_call",
    "file_search_call",
    "code_interpreter_call",
    "image_generation_call",
    "mcp_call",
}
OUTPUTS = {"function_call_output", "custom_tool_call_output"}


def is_responses_body(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and "messages" not in value
        and isinstance(value.get("input"), str | list)
        and ("model" in value or "instructions" in value or "previous_response_id" in value)
    )


def is_responses_reply(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("output"), list)
        and (value.get("object") == "response" or "choices" not in value)
    )


def read_responses_body(value: Any, where: str) -> Body:
    """Raises TrajectoryError, with `where` and the field, at what cannot be such a body."""
    body = check_object(value, where, "the body")
    messages: list[dict[str, Any]] = []
    if body.get("instructions") is not None:
        messages += _instructions(body["instructions"], where)
    given = body.get("input")
    if isinstance(given, str):
        messages.append({"role": "user", "content": given})
    elif given is not None:
        messages += messages_of_items(check_list(given, where, "input"), where, "input")
    given = body.get("tools")
    tools = [] if given is None else check_list(given, where, "tools")
    kept = body.get("prompt_cache_retention")
    sending = Sending(
        provider="openai",
        model=text_in(body, "model"),
        options=options_in(body, OPTIONS),
        keys=tuple(body),
        ttl_s=KEPT_S.get(kept) if isinstance(kept, str) else None,
    )
    return Body(
        check_messages(messages, where),
        check_tools([tool_in(tool, where, f"tools[{i}]") for i, tool in enumerate(tools)], where),
        sending,
    )


def read_responses_reply(value: Any, where: str, field: str) -> Message | None:
    """The assistant's message of a response; None where it holds none."""
    response = check_object(value, where, field)
    output = check_list(response.get("output"), where, f"{field}.output")
    made = messages_of_items(output, where, f"{field}.output")
    replies = [message for message in made if message["role"] == "assistant"]
    return check_reply(replies[0], where, field) if replies else None


def messages_of_items(items: list[Any], where: str, field: str) -> list[dict[str, Any]]:
    """The chat messages of input or output items."""
    made = Items(where)
    for index, item in enumerate(items):
        made.add(check_object(item, where, f"{field}[{index}]"), f"{field}[{index}]")
    return made.finish()


class Items:
    """Messages as they grow item by item; what the model made in a row is gathered."""

    def __init__(self, where: str) -> None:
        self.messages: list[dict[str, Any]] = []
        self._where = where
        self._parts: list[Mapping[str, Any]] = []
        self._calls: list[dict[str, Any]] = []
        self._thoughts: list[str] = []

    @property
    def is_gathering(self) -> bool:
        return bool(self._parts or self._calls or self._thoughts)

    def add(self, item: Mapping[str, Any], field: str) -> bool:
        """Whether the item is of a kind that stands in a prompt."""
        kind = item.get("type", "message" if "role" in item else None)
        if not isinstance(kind, str):
            raise fail(self._where, f"{field}.type", kind, "the type of an item")
        if kind == "message":
            self._add_message(item, field)
        elif kind == "reasoning":
            self._thoughts += _texts(item.get("content")) or _texts(item.get("summary"))
        elif kind.endswith("_output") and (kind in OUTPUTS or "call_id" in item):
            self.end_reply()
            self.messages.append(_result(item))
        elif kind in SERVED:
            self._parts.append(dict(item))
        elif kind.endswith("_call"):
            self._calls.append(_call(item, kind))
        else:
            return False
        return True

    def end_reply(self) -> None:
        """What was gathered becomes a message."""
        if self.is_gathering:
            self.messages.append(reply_of(self._parts, self._calls, self._thoughts))
        self._parts, self._calls, self._thoughts = [], [], []

    def finish(self) -> list[dict[str, Any]]:
        self.end_reply()
        return self.messages

    def _add_message(self, item: Mapping[str, Any], field: str) -> None:
        role, content = item.get("role"), item.get("content")
        if role not in ROLES:
            raise fail(self._where, f"{field}.role", role, "one of " + ", ".join(ROLES))
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else None
        if parts is None:
            given = check_list(content, self._where, f"{field}.content")
            parts = [_part(p, self._where, f"{field}.content[{i}]") for i, p in enumerate(given)]
        if role == "assistant":
            if self._parts or self._calls:  # two messages in a row are two replies
                self.end_reply()
            self._parts += parts
            return
        self.end_reply()
        made = content_of(parts)
        self.messages.append({"role": role, "content": "" if made is None else made})


def _call(item: Mapping[str, Any], kind: str) -> dict[str, Any]:
    call_id = item.get("call_id") or item.get("id")
    name = item.get("name") or kind.removesuffix("_call")
    arguments = item.get("arguments", item.get("input", item.get("action")))
    return tool_call(call_id, name, "" if arguments is None else arguments)


def _result(item: Mapping[str, Any]) -> dict[str, Any]:
    output = item.get("output")
    if isinstance(output, dict) and isinstance(output.get("content"), str):
        output = output["content"]  # as Codex once wrote what failed
    texts = _texts(output)
    if isinstance(output, list) and len(texts) == len(output):
        parts = [{"type": "text", "text": text} for text in texts]
        output = content_of(parts) or ""
    elif not isinstance(output, str):
        output = "" if output is None else json.dumps(output, ensure_ascii=False)
    return {"role": "tool", "tool_call_id": item.get("call_id"), "content": output}


def _part(value: Any, where: str, field: str) -> dict[str, Any]:
    part = check_object(value, where, field)
    if part.get("type") in TEXT_PARTS:
        if not isinstance(part.get("text"), str):
            raise fail(where, f"{field}.text", part.get("text"), "text")
        return {"type": "text", "text": part["text"]}
    if part.get("type") == "input_image" and isinstance(part.get("image_url"), str):
        return {"type": "image_url", "image_url": {"url": part["image_url"]}}
    return part


def _texts(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    parts = content if isinstance(content, list) else []
    found = [part.get("text") for part in parts if isinstance(part, dict)]
    return [text for text in found if isinstance(text, str)]


def _instructions(value: Any, where: str) -> list[dict[str, Any]]:
    if isinstance(value, str):
        return [{"role": "system", "content": value}]
    return messages_of_items(check_list(value, where, "instructions"), where, "instructions")


def tool_in(value: Any, where: str, field: str) -> Tool:
    """{"type": "function", "name", ...} with the name and all else one level deeper."""
    tool = check_object(value, where, field)
    if isinstance(tool.get("function"), dict):
        return tool
    kind = tool.get("type", "function")
    function = {key: item for key, item in tool.items() if key != "type"}
    return {"type": kind, "function": function if "name" in function else {"name": kind} | function}
