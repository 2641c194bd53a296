"""LiteLLM logs and Langfuse exports."""

import json

import pytest
from importer_files import read_document, read_lines

from duramen.experiments.trajectory import Origin, Usage
from duramen.layout.errors import TrajectoryError

USER = {"role": "user", "content": "What is here?"}
ANSWER = {"role": "assistant", "content": "One file."}
LS = {"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}
COMPLETION = {
    "choices": [{"message": ANSWER}],
    "usage": {
        "prompt_tokens": 20,
        "completion_tokens": 3,
        "prompt_tokens_details": {"cached_tokens": 16},
    },
}


def payload(second, **rest):
    return {
        "id": f"r{second}",
        "trace_id": f"t{second}",
        "call_type": "acompletion",
        "model": "m",
        "custom_llm_provider": "openai",
        "model_id": "deployment-1",
        "messages": [USER],
        "model_parameters": {"tools": [LS], "tool_choice": "auto", "temperature": 0},
        "response": COMPLETION,
        "startTime": 100.0 + second,
        "endTime": 100.5 + second,
        "metadata": {},
        "status": "success",
        "cache_hit": None,
        **rest,
    }


@pytest.mark.parametrize("wrap", [lambda p: p, lambda p: {"standard_logging_object": p}])
def test_litellm(tmp_path, wrap):
    longer = [USER, ANSWER, USER]
    lines = [payload(0), payload(9, cache_hit=True), payload(4, messages=longer)]
    [session] = read_lines(tmp_path, [wrap(line) for line in lines])
    first, second = session.calls
    assert first.messages == (USER,)
    assert first.reply == ANSWER
    assert first.usage == Usage(20, 16, 3)
    assert session.tools == (LS,)
    assert second.messages[0] is first.messages[0]
    assert second.time_s == 4.0
    sending = first.sending
    assert (sending.model, sending.provider, sending.replica) == ("m", "openai", "deployment-1")
    assert (sending.options, sending.keys) == ({"tool_choice": "auto"}, ())
    assert sending.duration_s == 0.5
    assert session.notes == ("1 lines were answered from LiteLLM's own cache",)
    assert session.origins["messages"] is Origin.RECORDED


@pytest.mark.parametrize(
    ("change", "session_ids"),
    [
        ({}, ["log:1", "log:2"]),  # a trace id of its own says nothing, and neither extends
        ({"trace_id": "one"}, ["one"]),
        ({"session_id": "row"}, ["row"]),
        ({"metadata": {"requester_metadata": {"session_id": "client"}}}, ["client"]),
        ({"metadata": json.dumps({"session_id": "text"})}, ["text"]),
    ],
)
def test_sessions_of_litellm(tmp_path, change, session_ids):
    lines = [payload(0, **change), payload(4, messages=[ANSWER, USER], **change)]
    assert [session.session_id for session in read_lines(tmp_path, lines)] == session_ids


def test_other_apis_through_litellm(tmp_path):
    blocks = [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1"}]}]
    spent = {
        "request_id": "r",
        "call_type": "acompletion",
        "startTime": "2026-01-01T00:00:00Z",
        "messages": "{}",
        "proxy_server_request": json.dumps({"model": "m", "messages": [USER]}),
        "response": "{}",
    }
    lines = [
        payload(0, call_type="anthropic_messages", messages=blocks, model_parameters={}),
        payload(1, call_type="aresponses", messages="Hi", model_parameters={}, response={}),
        spent,
    ]
    anthropic, responses, row = read_lines(tmp_path, lines)
    assert anthropic.calls[0].messages == ({"role": "tool", "tool_call_id": "c1", "content": ""},)
    assert responses.calls[0].messages == ({"role": "user", "content": "Hi"},)
    assert (row.calls[0].messages, row.calls[0].reply) == ((USER,), None)


def test_a_call_that_failed_reports_nothing(tmp_path):
    failed = payload(0, status="failure", response=None, prompt_tokens=0, completion_tokens=0)
    [session] = read_lines(tmp_path, [failed])
    assert (session.calls[0].reply, session.calls[0].usage) == (None, Usage())


def test_litellm_without_messages_is_refused(tmp_path):
    with pytest.raises(TrajectoryError, match="LiteLLM logs without messages; expected logs with"):
        read_lines(tmp_path, [payload(0, messages=None)])


def observation(second, **rest):
    return {
        "id": f"o{second}",
        "traceId": "t1",
        "type": "GENERATION",
        "startTime": f"2026-01-01T00:00:0{second}.000Z",
        "endTime": f"2026-01-01T00:00:0{second}.500Z",
        "model": "m",
        "modelParameters": {"tool_choice": "auto", "temperature": 0},
        "input": {"messages": [USER], "tools": [LS]},
        "output": ANSWER,
        "usageDetails": {"input": 4, "input_cached_tokens": 16, "output": 3, "total": 23},
        **rest,
    }


@pytest.mark.parametrize(
    ("form", "session_id"),
    [("list", "t1"), ("lines", "t1"), ("data", "t1"), ("trace", "s9"), ("beside", "s9")],
)
def test_langfuse(tmp_path, form, session_id):
    items = [
        observation(4, input={"messages": [USER, ANSWER, USER], "tools": [LS]}),
        observation(0),
        observation(2, type="SPAN", input="x"),
    ]
    trace = {"id": "t1", "sessionId": "s9"}
    match form:
        case "list":
            [session] = read_document(tmp_path, items)
        case "lines":
            [session] = read_lines(tmp_path, items)
        case "data":
            [session] = read_document(tmp_path, {"data": items, "meta": {"page": 1}})
        case "trace":
            [session] = read_document(tmp_path, {**trace, "observations": items})
        case _:
            [session] = read_document(tmp_path, {"trace": trace, "observations": items})
    first, second = session.calls
    assert session.session_id == session_id
    assert (first.messages, first.reply) == ((USER,), ANSWER)
    assert first.usage == Usage(20, 16, 3)
    assert (second.time_s, second.sending.duration_s) == (4.0, 0.5)
    assert second.messages[0] is first.messages[0]
    assert session.tools == (LS,)
    assert first.sending.model == "m"
    assert first.sending.options == {"tool_choice": "auto"}


@pytest.mark.parametrize(
    ("given", "output", "messages", "reply"),
    [
        ("What is here?", "One file.", (USER,), ANSWER),
        ([USER], [ANSWER], (USER,), ANSWER),
        (USER, {"content": "One file."}, (USER,), ANSWER),
        (json.dumps([USER]), json.dumps(COMPLETION), (USER,), ANSWER),
        (
            [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1"}]}],
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c2", "input": {}}]},
            ({"role": "tool", "tool_call_id": "c1", "content": ""},),
            None,
        ),
    ],
)
def test_what_clients_log_as_input_and_output(tmp_path, given, output, messages, reply):
    if reply is None:
        output["content"][0]["name"] = "ls"
    [session] = read_document(tmp_path, [observation(0, input=given, output=output)])
    [call] = session.calls
    assert call.messages == messages
    if reply is None:
        assert call.reply["tool_calls"][0]["function"] == {"name": "ls", "arguments": "{}"}
    else:
        assert call.reply == reply


def test_a_langfuse_export_without_calls_is_refused(tmp_path):
    with pytest.raises(TrajectoryError, match="a Langfuse export of 1 observations, none of them"):
        read_document(tmp_path, [observation(0, type="SPAN")])
