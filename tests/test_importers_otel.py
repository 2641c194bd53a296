"""OpenTelemetry spans of model calls, in the forms of several years."""

import json

import pytest
from importer_files import read_document, read_lines

from duramen.experiments.trajectory import Origin, Usage
from duramen.layout.errors import TrajectoryError

USER = {"role": "user", "content": "What is here?"}
ANSWER = {"role": "assistant", "content": "One file."}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"path": "."}'}}
    ],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "a.py"}


def span(number, attributes, operation="chat", **rest):
    return {
        "trace_id": "t1",
        "span_id": f"s{number}",
        "name": "chat m",
        "start_time": f"2026-01-01T00:00:0{number}Z",
        "end_time": f"2026-01-01T00:00:0{number}.5Z",
        "attributes": {
            "gen_ai.operation.name": operation,
            "gen_ai.request.model": "m",
            "gen_ai.provider.name": "openai",
            **attributes,
        },
        **rest,
    }


def part(kind, **values):
    return {"type": kind, **values}


def of_parts(role, *parts):
    return {"role": role, "parts": [*parts]}


MODERN = {
    "gen_ai.conversation.id": "conv",
    "gen_ai.system_instructions": [part("text", content="Be brief.")],
    "gen_ai.input.messages": [
        of_parts("user", part("text", content="What is here?")),
        of_parts("assistant", part("tool_call", id="c1", name="ls", arguments={"path": "."})),
        of_parts("tool", part("tool_call_response", id="c1", response="a.py")),
    ],
    "gen_ai.output.messages": [
        {
            **of_parts(
                "assistant",
                part("reasoning", content="Easy."),
                part("text", content="One file."),
            ),
            "finish_reason": "stop",
        }
    ],
    "gen_ai.tool.definitions": [{"type": "function", "name": "ls", "parameters": {}}],
    "gen_ai.usage.input_tokens": 20,
    "gen_ai.usage.cache_read.input_tokens": 16,
    "gen_ai.usage.output_tokens": 3,
    "openai.response.system_fingerprint": "fp1",
}


@pytest.mark.parametrize("form", ["values", "text", "event"])
def test_messages_of_parts(tmp_path, form):
    attributes = dict(MODERN)
    events = []
    if form == "text":
        attributes = {
            key: value if isinstance(value, str) else json.dumps(value)
            for key, value in MODERN.items()
        }
    if form == "event":
        moved = {
            k: attributes.pop(k) for k in list(attributes) if "messages" in k or "system_" in k
        }
        name = "gen_ai.client.inference.operation.details"
        events = [{"name": name, "attributes": moved}]
    attributes["gen_ai.conversation.id"] = "conv"
    [session] = read_document(tmp_path, {"spans": [span(1, attributes, events=events)]})
    [call] = session.calls
    assert session.session_id == "conv"
    assert call.messages == ({"role": "system", "content": "Be brief."}, USER, CALL, RESULT)
    assert call.reply == ANSWER | {"reasoning_content": "Easy."}
    assert call.usage == Usage(20, 16, 3)
    assert (call.sending.model, call.sending.provider) == ("m", "openai")
    assert (call.sending.replica, call.sending.duration_s) == ("fp1", 0.5)
    assert session.tools == ({"type": "function", "function": {"name": "ls", "parameters": {}}},)
    assert session.origins == dict.fromkeys(
        ["messages", "tools", "reply", "time_s", "start_time_s", "usage"], Origin.RECORDED
    )


def test_calls_of_a_trace_in_the_order_of_time_and_other_spans_are_none(tmp_path):
    first = {"gen_ai.input.messages": json.dumps([USER]), "gen_ai.output.text": "One file."}
    second = {"gen_ai.input.messages": json.dumps([USER, ANSWER, USER])}
    spans = [
        span(5, second),
        span(1, first),
        span(2, {}, operation="execute_tool"),
        span(0, second, operation="invoke_agent"),
        span(3, {}),
    ]
    [session] = read_document(tmp_path, spans)
    assert [(c.time_s, len(c.messages), c.reply) for c in session.calls] == [
        (0.0, 1, ANSWER),
        (4.0, 3, None),
    ]
    assert session.calls[0].messages[0] is session.calls[1].messages[0]
    assert session.notes == ("1 spans of model calls bear no messages and were left out",)


def otlp(value):
    match value:
        case bool():
            return {"boolValue": value}
        case str():
            return {"stringValue": value}
        case int():
            return {"intValue": str(value)}
        case list():
            return {"arrayValue": {"values": [otlp(item) for item in value]}}
        case dict():
            return {"kvlistValue": {"values": pairs(value)}}


def pairs(values):
    return [{"key": key, "value": otlp(value)} for key, value in values.items()]


@pytest.mark.parametrize("write", [read_document, lambda folder, v: read_lines(folder, [v, v])])
def test_otlp_json(tmp_path, write):
    plain = span(1, MODERN)
    wrapped = {
        "traceId": "t1",
        "spanId": "s1",
        "name": "chat m",
        "startTimeUnixNano": "1767225601000000000",
        "endTimeUnixNano": "1767225601500000000",
        "attributes": pairs(plain["attributes"]),
    }
    resource = {"attributes": pairs({"service.name": "x"})}
    document = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [wrapped]}]}]}
    [session] = write(tmp_path, document)
    [expected] = read_document(tmp_path, [plain], "plain.json")
    assert session.start_time_s == expected.start_time_s == 1767225601.0
    assert session.calls[0] == expected.calls[0]


def test_events_of_older_conventions(tmp_path):
    tool_calls = [
        {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"path": "."}'}}
    ]
    events = [
        {"name": "gen_ai.system.message", "attributes": {"content": "Be brief."}},
        {"name": "gen_ai.user.message", "attributes": {"content": "What is here?"}},
        {"name": "gen_ai.assistant.message", "attributes": {"tool_calls": json.dumps(tool_calls)}},
        {"name": "gen_ai.tool.message", "attributes": {"content": "a.py", "id": "c1"}},
        {
            "name": "gen_ai.choice",
            "attributes": {"index": 0, "message": json.dumps({"content": "One file."})},
        },
    ]
    [session] = read_document(tmp_path, [span(1, {}, events=events)])
    [call] = session.calls
    assert call.messages == ({"role": "system", "content": "Be brief."}, USER, CALL, RESULT)
    assert call.reply == ANSWER


def test_numbered_attributes(tmp_path):
    attributes = {
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": "What is here?",
        "gen_ai.prompt.1.role": "assistant",
        "gen_ai.prompt.1.tool_calls.0.id": "c1",
        "gen_ai.prompt.1.tool_calls.0.name": "ls",
        "gen_ai.prompt.1.tool_calls.0.arguments": '{"path": "."}',
        "gen_ai.prompt.2.role": "tool",
        "gen_ai.prompt.2.content": "a.py",
        "gen_ai.prompt.2.tool_call_id": "c1",
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": "One file.",
    }
    [session] = read_document(tmp_path, [span(1, attributes)])
    [call] = session.calls
    assert call.messages == (USER, CALL, RESULT)
    assert call.reply == ANSWER


@pytest.mark.parametrize(
    ("attributes", "error"),
    [
        ({}, "1 spans of model calls, none with messages; expected gen_ai.input.messages"),
        ({"gen_ai.input.messages": 5}, "gen_ai.input.messages is a number; expected a list"),
        ({"gen_ai.input.messages": [5]}, r"gen_ai.input.messages\[0\] is a number"),
        ({"gen_ai.input.messages": [{"role": "x", "content": "y"}]}, r"\[0\].role is 'x'"),
        ({"gen_ai.input.messages": [of_parts("user", 5)]}, r"\[0\].parts\[0\] is a number"),
        (
            {"gen_ai.input.messages": [USER], "gen_ai.usage.input_tokens": "x"},
            "usage.gen_ai.usage.input_tokens is 'x'",
        ),
    ],
)
def test_what_is_broken_is_refused(tmp_path, attributes, error):
    with pytest.raises(TrajectoryError, match=rf"log.json:1: \[0\]: .*{error}|{error}") as raised:
        read_document(tmp_path, [span(1, attributes)])
    assert "\n" not in str(raised.value)
