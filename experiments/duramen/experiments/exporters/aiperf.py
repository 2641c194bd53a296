"""AIPerf's raw payloads: request bodies that are sent as they stand.

Two of its inputs (AIPerf 0.13, docs/tutorials: raw-payload-replay.md, inputs-json-replay.md): a
folder with a JSONL file per session, a body per line (`raw_payload`), and one JSON file with
{"data": [{"session_id", "payloads"}]} (`inputs_json`). Bodies ask for a stream with usage, or
AIPerf could not tell the time to the first token; `max_tokens` is the recorded reply's length.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from duramen.experiments.exporters.exported import (
    Exported,
    File,
    Losses,
    arguments_text,
    json_lines,
    json_text,
)
from duramen.experiments.trajectory import Call, Message, Session

MAX_NAME_BYTES = 80  # a file's name may have 255, number and ending included
# Of Sending.options, what the chat endpoints of OpenAI and vLLM take.
CHAT_OPTIONS = frozenset(
    {
        "chat_template_kwargs",
        "parallel_tool_calls",
        "reasoning_effort",
        "response_format",
        "tool_choice",
        "verbosity",
    }
)


def to_raw_payloads(sessions: Sequence[Session]) -> Exported:
    """A JSONL file for each session that has calls; their names sort in the order of sessions.

    Raises TrajectoryError if no call is left.
    """
    losses = Losses()
    files, num_calls = [], 0
    for number, session in enumerate(sessions):
        if bodies := payloads(session, losses):
            name = f"{number:06d}-{plain_name(session.session_id)}.jsonl"
            files.append(File(name, json_lines(bodies, f"session {session.session_id!r}")))
            num_calls += len(bodies)
    losses.check(num_calls)
    return Exported(tuple(files), len(files), num_calls, losses.notes)


def to_inputs_json(sessions: Sequence[Session]) -> Exported:
    """One file. Raises TrajectoryError if no call is left."""
    losses = Losses()
    made = ((session.session_id, payloads(session, losses)) for session in sessions)
    data = [{"session_id": name, "payloads": bodies} for name, bodies in made if bodies]
    file = File("inputs.json", json_text({"data": data}, "inputs.json") + "\n")
    num_calls = sum(len(each["payloads"]) for each in data)
    losses.check(num_calls)
    return Exported((file,), len(data), num_calls, losses.notes)


def payloads(session: Session, losses: Losses) -> list[dict[str, Any]]:
    if empty := sum(not call.messages for call in session.calls):
        losses["calls without messages left out: endpoints refuse them"] += empty
    return [_payload(session, call, losses) for call in session.calls if call.messages]


def _payload(session: Session, call: Call, losses: Losses) -> dict[str, Any]:
    sending = call.sending
    body: dict[str, Any] = {} if sending.model is None else {"model": sending.model}
    body["messages"] = [_with_text_arguments(message) for message in call.messages]
    if tools := session.tools_of(call):
        body["tools"] = list(tools)
    for name, value in sending.options.items():
        if name in CHAT_OPTIONS:
            body[name] = value
        else:
            losses[f"options {name} left out: chat endpoints do not take it"] += 1
    if sending.salt:
        body["cache_salt"] = sending.salt
    if call.usage.completion_tokens:
        body["max_tokens"] = call.usage.completion_tokens
    else:
        losses["calls without a recorded reply length: the server decides"] += 1
    return body | {"stream": True, "stream_options": {"include_usage": True}}


def _with_text_arguments(message: Message) -> Message:
    """Some logs bear tool arguments as objects, which no endpoint takes."""
    calls = message.get("tool_calls")
    if not calls or all(isinstance(c["function"].get("arguments"), str) for c in calls):
        return message
    return {**message, "tool_calls": [_text_call(call) for call in calls]}


def _text_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    return {**call, "function": {**function, "arguments": arguments_text(function["arguments"])}}


def plain_name(session_id: str) -> str:
    """The id as far as it can be part of a file's name."""
    plain = re.sub(r"[^\w.-]+", "_", session_id).encode()[:MAX_NAME_BYTES]
    return plain.decode(errors="ignore").strip("._") or "session"
