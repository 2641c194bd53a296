"""One line of OpenAI chat JSONL, checked."""

from dataclasses import dataclass, replace
from typing import Any

from duramen.experiments.importers.bodies import (
    chat_sending,
    choice_in,
    read_reply,
    with_answer,
)
from duramen.experiments.importers.body import unmarked, without_log
from duramen.experiments.importers.grouping import Logged
from duramen.experiments.importers.messages import (
    check_messages,
    check_object,
    check_tools,
    check_usage,
    fail,
)
from duramen.experiments.importers.times import check_time
from duramen.experiments.trajectory import Message, Origin, Sending
from duramen.layout.errors import TrajectoryError

SESSION_KEYS = ("session_id", "conversation_id")
REPLY_KEYS = ("response", "choices", "error")


@dataclass(frozen=True)
class ChatLine:
    """A conversation is finished; anything else is one request."""

    logged: Logged
    is_conversation: bool


def parse_line(where: str, value: Any) -> ChatLine:
    if isinstance(value, list):
        value = {"messages": value}
    line = check_object(value, where, "the line")
    messages = check_messages(line.get("messages"), where)
    if not messages:
        raise fail(where, "messages", [], "at least one message")
    if "functions" in line:
        raise TrajectoryError(f"{where}: functions is the form before tools; expected tools")
    response = line.get("response")
    completion = response if isinstance(response, dict) else line
    given = line.get("tools")
    tools = None if given is None else check_tools(given, where)
    messages, sent_tools, marks = unmarked(messages, tools or ())
    logged = Logged(
        messages=messages,
        session_id=_session_id(line, where),
        tools=None if tools is None else sent_tools,
        reply=_reply(line, where),
        time_s=check_time(line.get("timestamp"), where, "timestamp"),
        usage=check_usage(line.get("usage", completion.get("usage")), where),
        sending=replace(_sending(line, completion), marks=marks),
        origins=_origins(line.get("origins", {}), where),
    )
    return ChatLine(logged, _is_conversation(line, messages))


def _sending(line: dict[str, Any], completion: dict[str, Any]) -> Sending:
    """A line without a model is a log's own form: the order of its keys says nothing of a body."""
    sending = chat_sending(without_log(line))
    keys = sending.keys if sending.model is not None else ()
    return with_answer(replace(sending, keys=keys), completion)


def _is_conversation(line: dict[str, Any], messages: tuple[Message, ...]) -> bool:
    if any(key in line for key in REPLY_KEYS):
        return False
    roles = [message["role"] for message in messages]
    return roles[-1] == "assistant" or (
        "assistant" in roles and line.keys() <= {"messages", "tools"}
    )


def _origins(value: Any, where: str) -> dict[str, Origin]:
    origins = check_object(value, where, "origins")
    known = [origin.value for origin in Origin]
    for key, origin in origins.items():
        if origin not in known:
            raise fail(where, f"origins.{key}", origin, "one of " + ", ".join(known))
    return {key: Origin(origin) for key, origin in origins.items()}


def _session_id(line: dict[str, Any], where: str) -> str | None:
    for key in SESSION_KEYS:
        value = line.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
            raise fail(where, key, value, "text or a number")
        return str(value)
    return None


def _reply(line: dict[str, Any], where: str) -> Message | None:
    response = line.get("response")
    if response is None and line.get("choices") is not None:
        return choice_in(line["choices"], where, "choices")
    return read_reply(response, where, "response")
