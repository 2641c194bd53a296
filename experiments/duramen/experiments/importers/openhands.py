"""OpenHands: output.jsonl of an evaluation (one run per line, `history` of events) and event lists.

Each model response is recorded whole in the events it caused (`tool_call_metadata`), so replies and
usage are recorded; an agent's plain message without one is a reply derived from its text. Prompts
are derived: system event, user messages, replies, and tool results as the event's content between
the prefix and suffix of its metadata. What OpenHands adds by templates of its own (workspace
context of a recall event, working directory and exit code lines) is not in the recording and is
left out. Without a system event the system prompt and the tools are unknown, and the messages count
as assumed. Times are derived: a call starts when the event before its reply was written; these
clock times bear no zone, so the Unix time of the first call assumes UTC.

History may be a list of events or of (action, observation) pairs. Null values that OpenHands adds
to a recorded reply (`function_call`) are left out.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from duramen.experiments.importers.bodies import with_answer
from duramen.experiments.importers.documents import Document
from duramen.experiments.importers.messages import (
    check_iso_time,
    check_list,
    check_message,
    check_object,
    check_reply,
    check_tools,
    check_usage,
    fail,
)
from duramen.experiments.trajectory import Call, Message, Origin, Sending, Session, Tool, Usage
from duramen.layout.errors import TrajectoryError

NO_PROMPT_TEXT = {"recall", "change_agent_state", "agent_state_changed", "null", "pause", "resume"}
EVENT_KEYS = {"action", "observation"}


def is_event(value: Any) -> bool:
    """Whether a JSON value looks like an OpenHands event, or a pair of them."""
    if isinstance(value, list):
        return bool(value) and all(is_event(item) for item in value)
    return isinstance(value, dict) and "source" in value and bool(EVENT_KEYS & value.keys())


def read_openhands(documents: Iterator[Document], name: str) -> Iterator[Session]:
    for where, value in documents:
        if isinstance(value, list):
            yield _session(value, where, name)
            continue
        run = check_object(value, where, "the document")
        if not isinstance(run.get("instance_id"), str):
            raise fail(where, "instance_id", run.get("instance_id"), "text")
        history = run.get("history")
        events = [] if history is None else check_list(history, where, "history")
        yield _session(events, where, run["instance_id"])


def _session(events: list[Any], where: str, session_id: str) -> Session:
    run = _Run(where)
    for index, item in enumerate(events):
        for event in item if isinstance(item, list) else [item]:
            run.add(check_object(event, where, f"history[{index}]"), f"history[{index}]")
    return run.session(session_id)


class _Run:
    """The prompt as it grows event by event, and the calls found on the way."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._messages: list[Message] = []
        self._calls: list[Call] = []
        self._asked_s: list[float | None] = []
        self._tools: tuple[Tool, ...] | None = None
        self._response_ids: set[str] = set()
        self._time_s: float | None = None
        self._origins = {"messages": Origin.ASSUMED, "reply": Origin.RECORDED}

    def add(self, event: dict[str, Any], field: str) -> None:
        kind = event.get("action") or event.get("observation")
        if not isinstance(kind, str):
            raise fail(self._where, f"{field}.action", kind, "the name of an action or observation")
        if kind not in NO_PROMPT_TEXT:
            if "observation" in event:
                self._add_observation(event, field)
            elif kind == "system":
                self._add_system(event, field)
            elif event.get("source") == "agent":
                self._add_reply(event, kind, field)
            else:
                self._append({"role": "user", "content": self._user_content(event, field)}, field)
        self._time_s = check_iso_time(event.get("timestamp"), self._where, f"{field}.timestamp")

    def _add_system(self, event: dict[str, Any], field: str) -> None:
        self._append({"role": "system", "content": self._content(event, field)}, field)
        tools = event["args"].get("tools")
        if tools is not None:
            self._tools = check_tools(tools, self._where, f"{field}.args.tools")
            self._origins["tools"] = Origin.RECORDED
        self._origins["messages"] = Origin.DERIVED

    def _add_reply(self, event: dict[str, Any], kind: str, field: str) -> None:
        metadata = event.get("tool_call_metadata")
        if metadata is None:
            if kind != "message":
                raise TrajectoryError(
                    f"{self._where}: {field} is the agent's action {kind!r} without "
                    "tool_call_metadata; expected the model's response there"
                )
            self._origins["reply"] = Origin.DERIVED
            reply = {"role": "assistant", "content": self._content(event, field)}
            self._call(reply, {}, field)
            return
        name = f"{field}.tool_call_metadata.model_response"
        response = check_object(metadata, self._where, field).get("model_response")
        response = check_object(response, self._where, name)
        response_id = response.get("id")
        if not isinstance(response_id, str):
            raise fail(self._where, f"{name}.id", response_id, "text")
        if response_id in self._response_ids:
            return  # one response with several tool calls makes several events
        self._response_ids.add(response_id)
        choices = check_list(response.get("choices"), self._where, f"{name}.choices")
        if not choices:
            raise fail(self._where, f"{name}.choices", choices, "one choice")
        choice = check_object(choices[0], self._where, f"{name}.choices[0]")
        message = check_object(choice.get("message"), self._where, f"{name}.choices[0].message")
        reply = {k: v for k, v in message.items() if v is not None or k == "content"}
        self._call(reply, response, field)

    def _add_observation(self, event: dict[str, Any], field: str) -> None:
        content = event.get("content")
        if not isinstance(content, str):
            raise fail(self._where, f"{field}.content", content, "text")
        if event.get("tool_call_metadata") is None:
            self._append({"role": "user", "content": content}, field)
            return
        call = check_object(event["tool_call_metadata"], self._where, f"{field}.tool_call_metadata")
        extras = check_object(event.get("extras", {}), self._where, f"{field}.extras")
        shell = check_object(extras.get("metadata") or {}, self._where, f"{field}.extras.metadata")
        content = f"{shell.get('prefix') or ''}{content}{shell.get('suffix') or ''}"
        name, call_id = call.get("function_name"), call.get("tool_call_id")
        result = {"role": "tool", "tool_call_id": call_id, "name": name, "content": content}
        self._append(result, field)

    def _call(self, reply: dict[str, Any], response: dict[str, Any], field: str) -> None:
        message = check_reply(reply, self._where, field)
        place = f"{field}.tool_call_metadata.model_response.usage"
        usage = check_usage(response.get("usage"), self._where, place)
        sending = with_answer(Sending(), response)
        call = Call(tuple(self._messages), message, usage=usage, sending=sending)
        self._calls.append(call)
        self._asked_s.append(self._time_s)
        self._messages.append(message)

    def _append(self, message: Message, field: str) -> None:
        self._messages.append(check_message(message, self._where, field))

    def _content(self, event: dict[str, Any], field: str) -> str:
        args = check_object(event.get("args"), self._where, f"{field}.args")
        if not isinstance(args.get("content"), str):
            raise fail(self._where, f"{field}.args.content", args.get("content"), "text")
        return str(args["content"])

    def _user_content(self, event: dict[str, Any], field: str) -> str | list[dict[str, Any]]:
        text = self._content(event, field)
        urls = check_list(event["args"].get("image_urls") or [], self._where, f"{field}.image_urls")
        images = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
        return [{"type": "text", "text": text}, *images] if images else text

    def session(self, session_id: str) -> Session:
        start = next((time for time in self._asked_s if time is not None), None)
        if start is not None:
            self._origins |= {"time_s": Origin.DERIVED, "start_time_s": Origin.ASSUMED}
        if any(call.usage != Usage() for call in self._calls):
            self._origins["usage"] = Origin.RECORDED
        calls = tuple(
            replace(call, time_s=None if time is None or start is None else time - start)
            for call, time in zip(self._calls, self._asked_s, strict=True)
        )
        return Session(session_id, calls, self._tools or (), start, self._origins)
