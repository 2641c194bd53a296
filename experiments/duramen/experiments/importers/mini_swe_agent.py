"""mini-swe-agent trajectories (.traj.json): messages with what the agent noted in `extra`.

{"trajectory_format": "mini-swe-agent-1" or "-1.1", "info": {...}, "messages": [...]}
(SWE-agent/mini-swe-agent: run/utils/save.py in version 1, agents/default.py in version 2). The
oldest files are a bare list of messages, which importers.chat reads.

Every assistant message is a call, with all before it as derived prompt. So is a reply that the
agent refused for its form and noted with the answer to it (`extra.model_response`, or
`extra.response`): no later prompt has it. `extra`, `timestamp`, `provider_specific_fields` and null
values are left out of messages, and so is the last message of role `exit`, which no model saw.
Messages of the Responses API become chat messages, their reasoning left out, and count as derived.

Usage is that of the recorded response. A call's time is when the message before it was written: a
message bears the time of its end. Where none before the first call bears one, its own end stands
for it, and the start counts as assumed. The tools that were sent are not in the file.
"""

from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Any, NamedTuple

from duramen.experiments.importers.bodies import with_answer
from duramen.experiments.importers.documents import Document
from duramen.experiments.importers.messages import (
    check_list,
    check_message,
    check_object,
    check_reply,
    check_usage,
    fail,
)
from duramen.experiments.trajectory import Call, Message, Origin, Sending, Session, Usage

BOOKKEEPING = {"extra", "timestamp", "provider_specific_fields"}
MAX_TIME_S = 1e11  # beyond it no Unix seconds are meant


def is_mini_swe_agent(value: Mapping[str, Any]) -> bool:
    if "messages" not in value:
        return False
    info = value.get("info")
    return str(value.get("trajectory_format")).startswith("mini-swe-agent") or (
        isinstance(info, dict) and bool({"mini_version", "model_stats"} & info.keys())
    )


def read_mini_swe_agent(documents: Iterator[Document], name: str) -> Iterator[Session]:
    for where, value in documents:
        run = check_object(value, where, "the document")
        instance_id = run.get("instance_id")
        session_id = instance_id if isinstance(instance_id, str) and instance_id else name
        yield _session(_Run(where), run, session_id.removesuffix(".traj"))


class _Made(NamedTuple):
    """A call, and when the message before its reply and the reply were written."""

    messages: tuple[Message, ...]
    reply: Message
    usage: Usage
    sending: Sending
    asked_s: float | None
    replied_s: float | None


def _session(run: "_Run", value: dict[str, Any], session_id: str) -> Session:
    for index, item in enumerate(check_list(value.get("messages"), run.where, "messages")):
        field = f"messages[{index}]"
        run.add(check_object(item, run.where, field), field)
    made = run.made
    origins = {"messages": Origin.DERIVED, "reply": run.reply_origin}
    if any(call.usage != Usage() for call in made):
        origins["usage"] = Origin.RECORDED
    times = [call.replied_s if call.asked_s is None else call.asked_s for call in made[:1]]
    times += [call.asked_s for call in made[1:]]
    known = [time_s for time_s in times if time_s is not None]
    start_s = None
    offsets: list[float | None] = [None] * len(made)
    if made and len(known) == len(made):
        start_s = known[0]
        offsets = [time_s - start_s for time_s in accumulate(known, max)]
        origins["time_s"] = Origin.DERIVED
        origins["start_time_s"] = Origin.ASSUMED if made[0].asked_s is None else Origin.DERIVED
    calls = tuple(
        Call(call.messages, call.reply, time_s, call.usage, sending=call.sending)
        for call, time_s in zip(made, offsets, strict=True)
    )
    return Session(session_id, calls, start_time_s=start_s, origins=origins)


class _Run:
    """The prompt as it grows message by message, and the calls found on the way."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.made: list[_Made] = []
        self.reply_origin = Origin.RECORDED
        self._messages: list[Message] = []
        self._time_s: float | None = None

    def add(self, item: dict[str, Any], field: str) -> None:
        if item.get("role") == "exit":
            return
        extra = item.get("extra")
        extra = {} if extra is None else check_object(extra, self.where, f"{field}.extra")
        time_s = self._time(extra.get("timestamp", item.get("timestamp")), field)
        message = self._message(item, field)
        is_reply = message["role"] == "assistant"
        if reply := message if is_reply else self._refused(extra, field):
            usage, sending = self._facts(item, extra, field)
            made = _Made(tuple(self._messages), reply, usage, sending, self._time_s, time_s)
            self.made.append(made)
        self._messages.append(message)
        self._time_s = self._time_s if time_s is None else time_s

    def _message(self, item: dict[str, Any], field: str) -> Message:
        if item.get("object") == "response" or item.get("type") == "function_call_output":
            self.reply_origin = Origin.DERIVED
            return check_message(_from_responses(item, self.where, field), self.where, field)
        message = {
            key: value
            for key, value in item.items()
            if key not in BOOKKEEPING and (value is not None or key == "content")
        }
        if message.get("type") == "message":  # a message to the Responses API
            message = {"role": message.get("role"), "content": _text(message.get("content"))}
        return check_message(message, self.where, field)

    def _refused(self, extra: dict[str, Any], field: str) -> Message | None:
        """The reply that the message with this `extra` answers, where it was refused and noted."""
        if extra.get("interrupt_type") != "FormatError":
            return None
        response = extra.get("response")
        if isinstance(response, dict) and response.get("object") == "response":
            self.reply_origin = Origin.DERIVED
            message = _from_responses(response, self.where, f"{field}.extra.response")
            return check_reply(message, self.where, f"{field}.extra.response")
        if isinstance(response, dict) and response.get("choices"):
            choice = check_list(response["choices"], self.where, f"{field}.extra.response.choices")[
                0
            ]
            reply = choice.get("message") if isinstance(choice, dict) else None
            place = f"{field}.extra.response.choices[0].message"
            message = self._message(check_object(reply, self.where, place), place)
            return check_reply(message, self.where, place)
        text = extra.get("model_response")
        return {"role": "assistant", "content": text} if isinstance(text, str) else None

    def _facts(
        self, item: dict[str, Any], extra: dict[str, Any], field: str
    ) -> tuple[Usage, Sending]:
        is_response = item.get("object") == "response"
        response: Any = item if is_response else extra.get("response")
        if not isinstance(response, dict):
            return Usage(), Sending()
        place = field if is_response else f"{field}.extra.response"
        usage = check_usage(response.get("usage"), self.where, f"{place}.usage")
        return usage, with_answer(Sending(), response)

    def _time(self, value: Any, field: str) -> float | None:
        if value is None:
            return None
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 <= value < MAX_TIME_S:
            raise fail(self.where, f"{field}.extra.timestamp", value, "Unix seconds")
        return float(value)


def _from_responses(item: dict[str, Any], where: str, field: str) -> Message:
    """The chat message that says the same as a response, or as a tool's result, of that API."""
    if item.get("type") == "function_call_output":
        return {
            "role": "tool",
            "tool_call_id": item.get("call_id"),
            "content": _text(item.get("output")),
        }
    texts: list[Any] = []
    calls: list[dict[str, Any]] = []
    for index, part in enumerate(check_list(item.get("output"), where, f"{field}.output")):
        part = check_object(part, where, f"{field}.output[{index}]")
        if part.get("type") == "message":
            texts.append(_text(part.get("content")))
        if part.get("type") == "function_call":
            function = {"name": part.get("name"), "arguments": part.get("arguments")}
            call_id = part.get("call_id") or part.get("id")
            calls.append({"id": call_id, "type": "function", "function": function})
    content = "".join(text for text in texts if isinstance(text, str)) or None
    message: dict[str, Any] = {"role": "assistant", "content": content}
    return message | ({"tool_calls": calls} if calls else {})


def _text(content: Any) -> Any:
    """The text of parts that are nothing but text; other content as it is."""
    parts = content if isinstance(content, list) else []
    found = [part.get("text") for part in parts if isinstance(part, dict)]
    texts = [text for text in found if isinstance(text, str)]
    return "".join(texts) if texts and len(texts) == len(parts) else content
