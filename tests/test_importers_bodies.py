"""Bodies and logs of Anthropic Messages and OpenAI Responses, and event streams of replies."""

import json

import pytest
from importer_files import read_lines

from duramen.experiments.importers.anthropic_body import (
    is_anthropic_body,
    read_anthropic_body,
    read_anthropic_reply,
)
from duramen.experiments.importers.responses_body import read_responses_body
from duramen.experiments.trajectory import Origin, Usage
from duramen.layout.errors import TrajectoryError

CACHED = {"cache_control": {"type": "ephemeral"}}
USER = {"role": "user", "content": "Hi"}


def anthropic(*messages, **rest):
    return {"model": "claude-x", "max_tokens": 9, "messages": [*messages], **rest}


def test_anthropic_body():
    image = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    body = anthropic(
        {"role": "user", "content": [{"type": "text", "text": "Look."}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "s"},
                {"type": "redacted_thinking", "data": "zz"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "c1", "name": "ls", "input": {"b": 1, "a": "é"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "no", "is_error": True},
                {"type": "tool_result", "tool_use_id": "c2", "content": []} | CACHED,
                {"type": "text", "text": "See"},
                {"type": "image", "source": image} | CACHED,
            ],
        },
        system=[{"type": "text", "text": "A"}, {"type": "text", "text": "B"} | CACHED],
        tools=[{"name": "ls", "input_schema": {"type": "object"}, "description": "d"} | CACHED],
        thinking={"type": "enabled", "budget_tokens": 5},
        tool_choice={"type": "auto"},
    )
    messages, tools, sending = read_anthropic_body(body, "log:1")
    assert messages == (
        {
            "role": "system",
            "content": [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}],
        },
        {"role": "user", "content": "Look."},
        {
            "role": "assistant",
            "content": "I look.",
            "reasoning_content": "Hm.",
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "ls", "arguments": '{"b": 1, "a": "é"}'},
                }
            ],
            "redacted_thinking": ["zz"],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "no", "is_error": True},
        {"role": "tool", "tool_call_id": "c2", "content": ""},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "See"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
            ],
        },
    )
    [tool] = tools
    assert tool["type"] == "function"
    assert list(tool["function"]) == ["name", "parameters", "description"]  # the order is kept
    assert (sending.provider, sending.model) == ("anthropic", "claude-x")
    assert sending.marks == (-1, 0, 4, 5)
    assert sending.ttl_s == 300.0
    assert sending.options == {
        "tool_choice": {"type": "auto"},
        "thinking": {"type": "enabled", "budget_tokens": 5},
    }
    assert sending.keys == tuple(body)


def test_what_anthropic_defines_as_the_same_is_the_same():
    """A string is short for one block of text, and a mark is no part of the prompt."""
    parts = [{"type": "text", "text": "Hi"} | CACHED]
    [string] = read_anthropic_body(anthropic(USER), "log:1").messages
    [block] = read_anthropic_body(anthropic(USER | {"content": parts}), "log:1").messages
    assert string == block == USER


def test_anthropic_marks_and_their_time_to_live():
    hour = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    whole = read_anthropic_body(anthropic(USER, **hour), "log:1").sending
    assert (whole.marks, whole.ttl_s) == ((0,), 3600.0)
    none = read_anthropic_body(anthropic(USER), "log:1").sending
    assert (none.marks, none.ttl_s) == ((), None)


def test_a_tool_of_the_server_keeps_its_type():
    body = anthropic(USER, tools=[{"type": "web_search_20250305", "name": "web_search"}])
    assert read_anthropic_body(body, "log:1").tools == (
        {"type": "web_search_20250305", "function": {"name": "web_search"}},
    )


@pytest.mark.parametrize(
    ("body", "is_its"),
    [
        (anthropic(USER), False),
        (anthropic(USER, system="Be brief."), True),
        (anthropic(USER, tools=[{"name": "f", "input_schema": {}}]), True),
        (anthropic({"role": "user", "content": [{"type": "text", "text": "x"} | CACHED]}), True),
        (anthropic({"role": "user", "content": [{"type": "text", "text": "x"}]}), False),
        ({"messages": 5, "system": "x"}, False),
        ([], False),
    ],
)
def test_which_bodies_say_that_they_are_anthropics(body, is_its):
    assert is_anthropic_body(body) is is_its


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (anthropic({"role": "tool", "content": "x"}), r"messages\[0\].role is 'tool'; expected"),
        (anthropic({"role": "user", "content": 5}), r"messages\[0\].content is a number"),
        (anthropic({"role": "user", "content": ["x"]}), r"messages\[0\].content\[0\] is 'x'"),
        (anthropic({"role": "user", "content": [{}]}), r"messages\[0\].content\[0\].type is null"),
        (
            anthropic({"role": "user", "content": [{"type": "text"}]}),
            r"messages\[0\].content\[0\].text",
        ),
        (
            anthropic({"role": "assistant", "content": [{"type": "tool_use", "input": "x"}]}),
            r"messages\[0\].content\[0\].input is 'x'; expected an object",
        ),
        (anthropic(USER, tools={}), "tools is an object; expected a list"),
        (anthropic(USER, tools=[{"input_schema": {}}]), r"tools\[0\].function.name is null"),
        ({"messages": None}, "messages is null or missing"),
    ],
)
def test_a_broken_anthropic_body_is_refused(body, error):
    with pytest.raises(TrajectoryError, match=f"^log:1: {error}"):
        read_anthropic_body(body, "log:1")


def test_anthropic_reply_without_text():
    reply = {"type": "message", "content": []}
    assert read_anthropic_reply(reply, "log:1", "response") == {
        "role": "assistant",
        "content": None,
    }


def responses(given, **rest):
    return {"model": "gpt-x", "input": given, **rest}


def test_responses_body():
    body = responses(
        [
            {"role": "user", "content": [{"type": "input_text", "text": "Look."}]},
            {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "Hm."}]},
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "I look."}],
            },
            {"type": "function_call", "call_id": "c1", "name": "ls", "arguments": '{"a":1}'},
            {"type": "function_call_output", "call_id": "c1", "output": "a.py"},
        ],
        instructions="Be brief.",
        tools=[
            {"type": "function", "name": "ls", "parameters": {}, "strict": True},
            {"type": "web_search"},
        ],
        reasoning={"effort": "low"},
        prompt_cache_retention="24h",
    )
    messages, tools, sending = read_responses_body(body, "log:1")
    assert messages == (
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Look."},
        {
            "role": "assistant",
            "content": "I look.",
            "reasoning_content": "Hm.",
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "ls", "arguments": '{"a":1}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "a.py"},
    )
    assert tools == (
        {"type": "function", "function": {"name": "ls", "parameters": {}, "strict": True}},
        {"type": "web_search", "function": {"name": "web_search"}},
    )
    assert (sending.provider, sending.options) == ("openai", {"reasoning": {"effort": "low"}})
    assert (sending.keys, sending.ttl_s) == (tuple(body), 86_400.0)


def test_anthropic_log_of_pairs(tmp_path):
    user_id = {"metadata": {"user_id": "user_1_account_2_session_abc"}}
    reply = {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "Yes."}]}
    usage = {
        "input_tokens": 1,
        "cache_read_input_tokens": 2,
        "cache_creation_input_tokens": 3,
        "output_tokens": 4,
    }
    first = anthropic(USER, system="Be brief.", **user_id)
    second = anthropic(
        USER,
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": "And?"},
        system="Be brief.",
        **user_id,
    )
    [session] = read_lines(
        tmp_path,
        [
            {"timestamp": 100, "request": first, "response": reply | {"usage": usage}},
            {
                "request": {"timestamp": 107.5, "body": second, "headers": {}},
                "response": {
                    "timestamp": 109.5,
                    "headers": {"X-Served-By": "b7"},
                    "body": json.dumps(reply),
                },
            },
        ],
    )
    assert session.session_id == "abc"
    assert [call.time_s for call in session.calls] == [0.0, 7.5]
    assert session.calls[0].usage == Usage(6, 2, 4, 3)
    assert session.calls[0].reply == {"role": "assistant", "content": "Yes."}
    assert session.calls[1].sending.replica == "b7"
    assert session.calls[1].sending.duration_s == 2.0
    assert session.calls[1].messages[1] is session.calls[0].messages[1]
    assert session.origins["messages"] is Origin.RECORDED


def test_anthropic_bodies_alone_continue_what_they_extend(tmp_path):
    lines = [
        anthropic(USER, system="Be brief."),
        anthropic(USER, {"role": "assistant", "content": "Yes."}, USER, system="Be brief."),
    ]
    [session] = read_lines(tmp_path, lines)
    assert [call.reply for call in session.calls] == [
        {"role": "assistant", "content": "Yes."},
        None,
    ]


def test_a_conversation_with_a_system_prompt_beside_it_is_no_request(tmp_path):
    conversation = [USER, {"role": "assistant", "content": "Yes."}] * 2
    [session] = read_lines(tmp_path, [{"system": "Be brief.", "messages": conversation}])
    assert len(session.calls) == 2


def test_responses_log_puts_what_the_server_kept_in_front(tmp_path):
    def response(response_id, text):
        part = {"type": "output_text", "text": text}
        output = [{"type": "message", "role": "assistant", "content": [part]}]
        return {"id": response_id, "object": "response", "output": output}

    lines = [
        {"request": responses("Hi", instructions="A."), "response": response("r1", "Yes.")},
        {
            "request": responses("And?", instructions="B.", previous_response_id="r1"),
            "response": response("r2", "No."),
        },
        {"request": responses("Lost", previous_response_id="r0"), "response": None},
    ]
    first, second, lost = [s for session in [read_lines(tmp_path, lines)] for s in session]
    assert [m["content"] for m in first.calls[0].messages] == ["A.", "Hi"]
    assert [m["content"] for m in second.calls[0].messages] == ["B.", "Hi", "Yes.", "And?"]
    assert second.origins["messages"] is Origin.DERIVED
    assert [m["content"] for m in lost.calls[0].messages] == ["Lost"]
    assert lost.origins["messages"] is Origin.ASSUMED


def stream(*events):
    lines = (f"event: x\ndata: {json.dumps(event)}\n" for event in events)
    return "\n".join([*lines, "data: [DONE]"])


def test_event_streams_are_put_together(tmp_path):
    anthropic_events = stream(
        {"type": "message_start", "message": {"model": "m", "usage": {"input_tokens": 5}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Ye"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "s."}},
        {
            "type": "content_block_start",
            "index": 1,
            "content_block": {"type": "tool_use", "id": "c1", "name": "ls", "input": {}},
        },
        {
            "type": "content_block_delta",
            "index": 1,
            "delta": {"type": "input_json_delta", "partial_json": '{"a": 1}'},
        },
        {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 7}},
    )
    chat_events = stream(
        {"choices": [{"delta": {"role": "assistant", "content": "Ye"}}]},
        {"choices": [{"delta": {"content": "s."}}]},
        {"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "c1"}]}}]},
        {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"name": "ls"}}]}}]},
        {
            "choices": [
                {"delta": {"tool_calls": [{"index": 0, "function": {"arguments": '{"a": 1}'}}]}}
            ]
        },
        {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 7}},
    )
    answer = {"output": [{"type": "message", "role": "assistant", "content": "Yes."}]}
    responses_events = stream({"type": "response.completed", "response": answer})
    called = {
        "role": "assistant",
        "content": "Yes.",
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "ls", "arguments": '{"a": 1}'},
            }
        ],
    }
    sessions = read_lines(
        tmp_path,
        [
            {"request": {"body": anthropic(USER)}, "response": {"body_raw": anthropic_events}},
            {"request": {"messages": [USER]}, "response": chat_events},
            {"request": responses("Hi"), "response": responses_events},
        ],
    )
    assert [session.calls[0].reply for session in sessions] == [
        called,
        called,
        {"role": "assistant", "content": "Yes."},
    ]
    assert [s.calls[0].usage for s in sessions] == [Usage(5, None, 7), Usage(5, None, 7), Usage()]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ({"request": {"messages": []}}, "messages is an empty list; expected at least one message"),
        ({"request": responses([])}, "messages is an empty list"),
        ({"request": {"messages": [USER]}, "response": 5}, "response is a number; expected a chat"),
        ({"request": responses([{"type": 5}])}, r"input\[0\].type is a number"),
        ({"request": responses([{"role": "x"}])}, r"input\[0\].role is 'x'"),
    ],
)
def test_a_broken_log_is_refused(tmp_path, line, error):
    with pytest.raises(TrajectoryError, match=f"log.jsonl:1: {error}"):
        read_lines(tmp_path, [line])
