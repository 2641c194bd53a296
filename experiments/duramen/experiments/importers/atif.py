"""ATIF, the Agent Trajectory Interchange Format of Harbor, versions 1.0 to 1.7: JSON, or JSONL.

{"schema_version": "ATIF-v1.x", "session_id", "agent": {"name", "version", "model_name"?,
"tool_definitions"?}, "steps": [...]} (harbor, docs/rfcs/0001-trajectory-format.md). Steps of source
system and user are messages; one of source agent is a call, with all before it as derived prompt,
and its observation is what came of its tool calls: a tool message for each result that names one,
a user message for one that does not. A step of `is_copied_context` stands in an earlier file, and
one of `llm_call_count` 0 asked no model: both are history and no call.

Usage is the step's `metrics`; their prompt_token_ids and completion_token_ids are kept. A step
bears one time; a call's is derived as that of the step before it. A list in `subagent_trajectories`
holds sessions of their own.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from duramen.experiments.importers.body import content_of, text_in, tool_call
from duramen.experiments.importers.documents import Document
from duramen.experiments.importers.messages import (
    check_list,
    check_message,
    check_object,
    check_tools,
    check_usage,
    fail,
)
from duramen.experiments.importers.times import check_time, offsets_of
from duramen.experiments.trajectory import Call, Message, Origin, Sending, Session, Tool, Usage

MAX_TOKEN_ID = 2**32


def is_atif(value: Mapping[str, Any]) -> bool:
    version = value.get("schema_version")
    return isinstance(version, str) and version.startswith("ATIF") and "steps" in value


def read_atif(documents: Iterator[Document], name: str) -> Iterator[Session]:
    for where, value in documents:
        yield from _sessions(check_object(value, where, "the document"), where, name, "")


def _sessions(value: dict[str, Any], where: str, name: str, prefix: str) -> Iterator[Session]:
    run = _Run(value, where, prefix)
    steps = check_list(value.get("steps"), where, f"{prefix}steps")
    for index, item in enumerate(steps):
        field = f"{prefix}steps[{index}]"
        run.add(check_object(item, where, field), field)
    yield run.session(text_in(value, "session_id", "trajectory_id") or name)
    children = value.get("subagent_trajectories")
    if children is None:
        return
    for index, child in enumerate(check_list(children, where, f"{prefix}subagent_trajectories")):
        field = f"{prefix}subagent_trajectories[{index}]"
        yield from _sessions(check_object(child, where, field), where, name, f"{field}.")


class _Run:
    """The prompt as it grows step by step, and the calls found on the way."""

    def __init__(self, value: Mapping[str, Any], where: str, prefix: str) -> None:
        self._where = where
        agent = value.get("agent")
        field = f"{prefix}agent"
        self._agent = {} if agent is None else check_object(agent, where, field)
        tools = self._agent.get("tool_definitions")
        place = f"{field}.tool_definitions"
        self._tools: tuple[Tool, ...] | None = None
        if tools is not None:
            self._tools = check_tools(check_list(tools, where, place), where, place)
        self._messages: list[Message] = []
        self._calls: list[Call] = []
        self._asked_s: list[float | None] = []
        self._time_s: float | None = None

    def add(self, step: dict[str, Any], field: str) -> None:
        source = step.get("source")
        time_s = check_time(step.get("timestamp"), self._where, f"{field}.timestamp")
        if source == "agent":
            self._add_reply(step, field, time_s)
        elif source in ("system", "user"):
            content = self._content(step.get("message"), f"{field}.message")
            self._append({"role": source, "content": content}, field)
        else:
            raise fail(self._where, f"{field}.source", source, "'system', 'user' or 'agent'")
        self._add_observation(step.get("observation"), f"{field}.observation")
        self._time_s = self._time_s if time_s is None else time_s

    def _add_reply(self, step: dict[str, Any], field: str, time_s: float | None) -> None:
        given = step.get("tool_calls")
        items = [] if given is None else check_list(given, self._where, f"{field}.tool_calls")
        content = step.get("message")  # some write null where the format wants ""
        if content is not None:
            content = self._content(content, f"{field}.message")
        reply: dict[str, Any] = {"role": "assistant", "content": content}
        if isinstance(step.get("reasoning_content"), str):
            reply["reasoning_content"] = step["reasoning_content"]
        if items:
            reply["tool_calls"] = [
                self._tool_call(item, f"{field}.tool_calls[{index}]")
                for index, item in enumerate(items)
            ]
            reply["content"] = reply["content"] or None
        prompt = tuple(self._messages)
        message = self._append(reply, field)
        if step.get("is_copied_context") is True or step.get("llm_call_count") == 0:
            return
        metrics = step.get("metrics")
        metrics = {} if metrics is None else check_object(metrics, self._where, f"{field}.metrics")
        self._asked_s.append(time_s if self._time_s is None else self._time_s)
        effort = step.get("reasoning_effort")
        self._calls.append(
            Call(
                prompt,
                message,
                usage=check_usage(metrics, self._where, f"{field}.metrics"),
                sending=Sending(
                    model=text_in(step, "model_name") or text_in(self._agent, "model_name"),
                    options={} if effort is None else {"reasoning_effort": effort},
                    token_ids=self._ids(metrics, "prompt_token_ids", field),
                    reply_ids=self._ids(metrics, "completion_token_ids", field),
                ),
            )
        )

    def _tool_call(self, value: Any, field: str) -> dict[str, Any]:
        call = check_object(value, self._where, field)
        arguments = call.get("arguments")
        if not isinstance(arguments, dict | str):
            raise fail(self._where, f"{field}.arguments", arguments, "an object")
        return tool_call(call.get("tool_call_id"), call.get("function_name"), arguments)

    def _add_observation(self, value: Any, field: str) -> None:
        if value is None:
            return
        results = check_object(value, self._where, field).get("results")
        if results is None:
            return
        for index, item in enumerate(check_list(results, self._where, f"{field}.results")):
            place = f"{field}.results[{index}]"
            result = check_object(item, self._where, place)
            if result.get("content") is None:
                content: Any = ""  # what it refers to (a subagent's trajectory) is not here
            else:
                content = self._content(result["content"], f"{place}.content")
            call_id = result.get("source_call_id")
            if call_id is not None:
                self._append({"role": "tool", "tool_call_id": call_id, "content": content}, place)
            elif content:
                self._append({"role": "user", "content": content}, place)

    def _content(self, value: Any, field: str) -> Any:
        """Text, or since 1.6 a list of parts, where an image names its file."""
        if isinstance(value, str):
            return value
        parts = []
        for index, item in enumerate(check_list(value, self._where, field)):
            part = check_object(item, self._where, f"{field}[{index}]")
            source = part.get("source")
            if part.get("type") == "image" and isinstance(source, dict):
                url = {"url": text_in(source, "path", "url") or ""}
                parts.append({"type": "image_url", "image_url": url})
            else:
                parts.append(part)
        content = content_of(parts)
        return "" if content is None else content

    def _append(self, message: dict[str, Any], field: str) -> Message:
        checked = check_message(message, self._where, field)
        self._messages.append(checked)
        return checked

    def _ids(self, metrics: Mapping[str, Any], key: str, field: str) -> tuple[int, ...] | None:
        value = metrics.get(key)
        if value is None:
            return None
        ids = check_list(value, self._where, f"{field}.metrics.{key}")
        for item in ids:
            if isinstance(item, bool) or not isinstance(item, int) or not 0 <= item < MAX_TOKEN_ID:
                raise fail(self._where, f"{field}.metrics.{key}", item, "token ids")
        return tuple(ids)

    def session(self, session_id: str) -> Session:
        start_s, offsets = offsets_of(self._asked_s)
        calls = tuple(
            replace(call, time_s=time_s) for call, time_s in zip(self._calls, offsets, strict=True)
        )
        has_system = any(m["role"] == "system" for call in calls[:1] for m in call.messages)
        origins = {
            "messages": Origin.DERIVED if has_system else Origin.ASSUMED,
            "reply": Origin.RECORDED,
        }
        if self._tools is not None:
            origins["tools"] = Origin.RECORDED
        if start_s is not None:
            origins |= {"time_s": Origin.DERIVED, "start_time_s": Origin.DERIVED}
        if any(call.usage != Usage() for call in calls):
            origins["usage"] = Origin.RECORDED
        return Session(session_id, calls, self._tools or (), start_s, origins)
