"""OpenTelemetry GenAI spans, as OTLP JSON: a trace per session, a client span per call.

Names: those of opentelemetry-semantic-conventions 0.66b2; the form of messages:
open-telemetry/semantic-conventions-genai, docs/gen-ai/non-normative/models.py; both of status
Development. Messages, replies and tools are JSON text in attributes, which every receiver takes.
Encoding: opentelemetry-proto, docs/specification.md: ids in hexadecimal, 64-bit integers as text.

Spans want times. A call without a recorded one gets a second after the call before, from 2026 on
where the session's start is not known, and says so: duramen.time_is_assumed.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from importlib.metadata import version
from typing import Any

from duramen.experiments.exporters.exported import (
    Exported,
    File,
    Losses,
    call_name,
    json_text,
    offset_s,
    thinking_in,
)
from duramen.experiments.layouts.model import ASSUMED_START_S
from duramen.experiments.trajectory import Call, Message, Session, Tool
from duramen.layout.errors import TrajectoryError

CLIENT = 3  # opentelemetry.proto.trace.v1.Span.SPAN_KIND_CLIENT
UNKNOWN_PROVIDER = "unknown"
NS = 10**9


def to_otel(sessions: Sequence[Session]) -> Exported:
    """Raises TrajectoryError at a time that a span cannot bear."""
    losses = Losses()
    spans = [
        _span(session, call, index, losses)
        for session in sessions
        for index, call in enumerate(session.calls)
    ]
    scope = {"name": "duramen", "version": version("duramen")}
    resource = {"attributes": _attributes({"service.name": "duramen"})}
    scoped = [{"scope": scope, "spans": spans}]
    data = {"resourceSpans": [{"resource": resource, "scopeSpans": scoped}]}
    file = File("spans.json", json_text(data, "spans.json") + "\n")
    return Exported((file,), len(sessions), len(spans), losses.notes)


def _span(session: Session, call: Call, index: int, losses: Losses) -> dict[str, Any]:
    is_assumed = session.start_time_s is None or call.time_s is None
    if is_assumed:
        losses["spans without a recorded time: one second after the call before"] += 1
    for name in call.sending.options:
        losses[f"options {name} left out: no attribute holds them"] += 1
    first_s = ASSUMED_START_S if session.start_time_s is None else session.start_time_s
    start_s = first_s + offset_s(session, call, index)
    end_s = start_s + (call.sending.duration_s or 0.0)
    model = call.sending.model
    span_id = blake2b(f"{session.session_id}\n{index}".encode(errors="replace"), digest_size=8)
    return {
        "traceId": _trace_id(session),
        "spanId": span_id.hexdigest(),
        "name": f"chat {model}" if model else "chat",
        "kind": CLIENT,
        "startTimeUnixNano": _nanoseconds(start_s, session),
        "endTimeUnixNano": _nanoseconds(end_s, session),
        "attributes": _attributes(_values(session, call, index, is_assumed=is_assumed)),
        "status": {},
    }


def _nanoseconds(time_s: float, session: Session) -> str:
    """Raises TrajectoryError for what 64 bits without a sign do not hold."""
    time_ns = round(time_s * NS)
    if not 0 <= time_ns < 2**64:
        raise TrajectoryError(
            f"session {session.session_id!r}: time {time_s:.0f} s is before 1970 or after 2554: "
            "a span cannot bear it"
        )
    return str(time_ns)


def _trace_id(session: Session) -> str:
    return blake2b(session.session_id.encode(errors="replace"), digest_size=16).hexdigest()


def _values(session: Session, call: Call, index: int, *, is_assumed: bool) -> dict[str, Any]:
    """Attribute values; None where there is nothing to say."""
    sending, usage = call.sending, call.usage
    where = call_name(session, index)
    tools = [_tool(tool) for tool in session.tools_of(call)]
    output = None if call.reply is None else json_text([otel_message(call.reply)], where)
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": sending.provider or UNKNOWN_PROVIDER,
        "gen_ai.conversation.id": session.session_id,
        "gen_ai.request.model": sending.model,
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.output_tokens": usage.completion_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.written_tokens,
        "gen_ai.tool.definitions": json_text(tools, where) if tools else None,
        "gen_ai.input.messages": json_text([otel_message(m) for m in call.messages], where),
        "gen_ai.output.messages": output,
        "duramen.time_is_assumed": is_assumed or None,
    }


def otel_message(message: Message) -> dict[str, Any]:
    """A chat message as a role and parts: thinking, then content, then tool calls."""
    parts: list[dict[str, Any]] = []
    if thinking := thinking_in(message):
        parts.append({"type": "reasoning", "content": thinking})
    content = message.get("content")
    if message["role"] in ("tool", "function"):
        answer = {"id": message.get("tool_call_id"), "response": content}
        parts.append({"type": "tool_call_response", **answer})
    elif isinstance(content, str):
        parts.append({"type": "text", "content": content})
    else:
        parts += [_part(part) for part in content or ()]
    for call in message.get("tool_calls") or ():
        function = call["function"]
        named = {"id": call.get("id"), "name": function["name"]}
        parts.append({"type": "tool_call", **named, "arguments": function["arguments"]})
    named_message = {"role": message["role"], "parts": parts}
    return named_message | ({"name": message["name"]} if message.get("name") else {})


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    if part["type"] == "text" and isinstance(part.get("text"), str):
        rest = {key: value for key, value in part.items() if key not in ("type", "text")}
        return {"type": "text", "content": part["text"], **rest}
    return dict(part)  # a part of any type may stand as it is


def _tool(tool: Tool) -> dict[str, Any]:
    """Flat: the function's fields beside its type."""
    return {"type": tool.get("type", "function"), **tool["function"]}


def _attributes(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"key": key, "value": _any_value(value)}
        for key, value in values.items()
        if value is not None
    ]


def _any_value(value: object) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case _:
            return {"stringValue": str(value)}
