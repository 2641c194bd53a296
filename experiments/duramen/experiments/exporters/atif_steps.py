"""The steps of one ATIF trajectory, put together from chat messages."""

from collections.abc import Mapping
from typing import Any

import msgspec

from duramen.experiments.exporters.exported import Losses, thinking_in
from duramen.experiments.trajectory import Call, Message

SOURCES = {"system": "system", "developer": "system", "user": "user", "assistant": "agent"}


class Steps:
    """`steps` are numbered from 1. A tool's result goes into the step that called it where that is
    the last one, as the format has it; else it is a user's step that says what it was."""

    def __init__(self, losses: Losses) -> None:
        self.steps: list[dict[str, Any]] = []
        self._losses = losses

    def add(self, message: Message) -> None:
        """A message that was sent. An assistant's is context here: its call is not on record."""
        role = message["role"]
        if role in ("tool", "function"):
            self._add_result(message)
            return
        step = self._begin(SOURCES[role], message)
        if role == "assistant":
            self._add_said(step, message)
            step["is_copied_context"] = True
        if role == "developer":
            step["extra"] = {"role": role}

    def add_call(self, call: Call, reply: Message, timestamp: str | None) -> None:
        step = self._begin("agent", reply)
        self._add_said(step, reply)
        if timestamp is not None:
            step["timestamp"] = timestamp
        if call.sending.model is not None:
            step["model_name"] = call.sending.model
        effort = call.sending.options.get("reasoning_effort")
        if isinstance(effort, str):
            step["reasoning_effort"] = effort
        if metrics := _metrics(call):
            step["metrics"] = metrics

    def _begin(self, source: str, message: Message) -> dict[str, Any]:
        step = {"step_id": len(self.steps) + 1, "source": source, "message": self._text(message)}
        self.steps.append(step)
        return step

    def _text(self, message: Message) -> str | list[dict[str, Any]]:
        content = message.get("content")
        if content is None or isinstance(content, str):
            return content or ""
        parts = []
        for part in content:
            text = part.get("text")
            if part["type"] != "text" or not isinstance(text, str):
                self._losses[f"content parts of type {part['type']} named, not held"] += 1
                text = f"[{part['type']}]"
            parts.append({"type": "text", "text": text})
        return parts

    def _add_said(self, step: dict[str, Any], message: Message) -> None:
        if thinking := thinking_in(message):
            step["reasoning_content"] = thinking
        if calls := message.get("tool_calls"):
            step["tool_calls"] = [
                self._tool_call(call, f"{step['step_id']}-{index}")
                for index, call in enumerate(calls)
            ]

    def _tool_call(self, call: Mapping[str, Any], usual_id: str) -> dict[str, Any]:
        function = call["function"]
        arguments = arguments_object(function.get("arguments"))
        if arguments is None:
            self._losses["tool calls whose arguments are no JSON object: kept as text"] += 1
            arguments = {"arguments": function.get("arguments")}
        return {
            "tool_call_id": str(call.get("id") or usual_id),
            "function_name": function["name"],
            "arguments": arguments,
        }

    def _add_result(self, message: Message) -> None:
        call_id = message.get("tool_call_id")
        last = self.steps[-1] if self.steps else {}
        called = {call["tool_call_id"] for call in last.get("tool_calls", ())}
        if call_id is not None and str(call_id) in called:
            observation = last.setdefault("observation", {"results": []})
            result = {"source_call_id": str(call_id), "content": self._text(message)}
            observation["results"].append(result)
            return
        self._losses["tool results away from their calls: as steps of the user"] += 1
        extra = {"role": message["role"], "tool_call_id": call_id}
        self._begin("user", message)["extra"] = extra


def arguments_object(arguments: object) -> Mapping[str, Any] | None:
    """A tool call's arguments as an object; None where they are none."""
    if isinstance(arguments, Mapping):
        return arguments
    try:
        value = msgspec.json.decode(str(arguments))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _metrics(call: Call) -> dict[str, Any]:
    usage, sending = call.usage, call.sending
    written = usage.written_tokens
    given = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "cached_tokens": usage.cached_tokens,
        "prompt_token_ids": None if sending.token_ids is None else list(sending.token_ids),
        "completion_token_ids": None if sending.reply_ids is None else list(sending.reply_ids),
        "extra": None if written is None else {"cache_creation_input_tokens": written},
    }
    return {name: value for name, value in given.items() if value is not None}
