"""Codex rollouts of several schema versions."""

import pytest
from importer_files import read_lines

from duramen.experiments.trajectory import Origin, Usage
from duramen.layout.errors import TrajectoryError

SYSTEM = {"role": "system", "content": "You are an agent."}
META = {"id": "r-1", "base_instructions": {"text": SYSTEM["content"]}, "model_provider": "openai"}


def line(second, kind, **payload):
    return {"timestamp": f"2026-01-01T00:00:{second:02}Z", "type": kind, "payload": payload}


def item(second, kind, **payload):
    return line(second, "response_item", type=kind, **payload)


def said(second, role, text):
    kind = "output_text" if role == "assistant" else "input_text"
    return item(second, "message", role=role, content=[{"type": kind, "text": text}])


def tokens(second, total, last=None):
    names = ("input_tokens", "cached_input_tokens", "output_tokens")
    info = {"total_token_usage": dict(zip(names, total, strict=True))}
    if last is not None:
        info["last_token_usage"] = dict(zip(names, last, strict=True))
    return line(second, "event_msg", type="token_count", info=info)


def contents(call):
    return [message["content"] for message in call.messages]


def test_items_and_token_counts_are_calls(tmp_path):
    call = {"name": "shell", "arguments": '{"command": ["ls"]}', "call_id": "c1"}
    [session] = read_lines(
        tmp_path,
        [
            line(0, "session_meta", **META),
            line(0, "turn_context", model="gpt-x", effort="high", cwd="/x"),
            line(1, "event_msg", type="user_message", message="What is here?"),
            said(1, "user", "What is here?"),
            item(3, "reasoning", summary=[{"type": "summary_text", "text": "Look."}]),
            item(4, "function_call", **call),
            tokens(5, (100, 0, 9), (100, 0, 9)),
            tokens(5, (100, 0, 9), (100, 0, 9)),  # again, with new rate limits
            item(6, "function_call_output", call_id="c1", output="a.py"),
            said(8, "assistant", "One file."),
            tokens(9, (230, 96, 12), (130, 96, 3)),
        ],
    )
    first, second = session.calls
    assert session.session_id == "r-1"
    assert first.messages == (SYSTEM, {"role": "user", "content": "What is here?"})
    assert first.reply == {
        "role": "assistant",
        "content": None,
        "reasoning_content": "Look.",
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "shell", "arguments": '{"command": ["ls"]}'},
            }
        ],
    }
    assert second.messages[2] is first.reply
    assert second.messages[3] == {"role": "tool", "tool_call_id": "c1", "content": "a.py"}
    assert [c.usage for c in session.calls] == [Usage(100, 0, 9), Usage(130, 96, 3)]
    assert [c.time_s for c in session.calls] == [0.0, 5.0]
    assert [c.sending.duration_s for c in session.calls] == [3.0, 2.0]
    assert first.sending.model == "gpt-x"
    assert first.sending.options == {"effort": "high"}
    assert session.origins["messages"] is Origin.DERIVED
    assert "tools" not in session.origins


def test_a_total_alone_counts_by_its_difference(tmp_path):
    [session] = read_lines(
        tmp_path,
        [
            said(1, "user", "Hi"),
            said(2, "assistant", "Hello"),
            tokens(3, (100, 0, 9)),
            said(4, "user", "More"),
            said(5, "assistant", "Well"),
            tokens(6, (230, 96, 12)),
        ],
    )
    assert [call.usage for call in session.calls] == [Usage(100, 0, 9), Usage(130, 96, 3)]
    assert session.origins["messages"] is Origin.ASSUMED
    assert "no system prompt" in session.notes[0]


def test_a_token_count_parts_two_replies_in_a_row(tmp_path):
    [session] = read_lines(
        tmp_path,
        [
            said(1, "user", "Hi"),
            item(2, "reasoning", summary=[], content=[{"type": "reasoning_text", "text": "A"}]),
            tokens(3, (10, 0, 1), (10, 0, 1)),
            said(4, "assistant", "Hello"),
            tokens(5, (30, 10, 2), (20, 10, 1)),
            tokens(6, (60, 30, 3), (30, 20, 1)),
        ],
    )
    assert [call.usage.prompt_tokens for call in session.calls] == [10, 20]
    assert session.notes[-1] == "1 reports of usage belong to no reply of the log"


@pytest.mark.parametrize("form", ["summary", "replacement"])
def test_compaction_begins_the_history_anew(tmp_path, form):
    kept = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Kept"}]}
    compacted = {"message": "So far: nothing."}
    if form == "replacement":
        compacted["replacement_history"] = [kept]
    [session] = read_lines(
        tmp_path,
        [
            line(0, "session_meta", **META),
            said(1, "user", "Long"),
            said(2, "assistant", "Story"),
            line(3, "compacted", **compacted),
            line(3, "event_msg", type="context_compacted"),
            said(4, "user", "Go on"),
            said(5, "assistant", "Yes"),
        ],
    )
    head = "Kept" if form == "replacement" else "So far: nothing."
    assert contents(session.calls[1]) == [SYSTEM["content"], head, "Go on"]
    is_known = form == "replacement"
    assert session.origins["messages"] is (Origin.DERIVED if is_known else Origin.ASSUMED)


def test_turns_that_are_rolled_back_leave_the_history(tmp_path):
    [session] = read_lines(
        tmp_path,
        [
            said(1, "user", "One"),
            said(2, "assistant", "1"),
            said(3, "user", "Two"),
            said(4, "assistant", "2"),
            line(5, "event_msg", type="thread_rolled_back", num_turns=1),
            said(6, "user", "Three"),
            said(7, "assistant", "3"),
        ],
    )
    assert contents(session.calls[2]) == ["One", "1", "Three"]


def test_every_kind_of_tool_call(tmp_path):
    action = {"type": "exec", "command": ["ls"]}
    [session] = read_lines(
        tmp_path,
        [
            said(1, "user", "Go"),
            item(2, "local_shell_call", call_id="c1", status="completed", action=action),
            item(2, "custom_tool_call", call_id="c2", name="apply_patch", input="*** Begin"),
            item(2, "web_search_call", id="w1", action={"type": "search", "query": "x"}),
            item(2, "function_call", call_id="c3", name="f", arguments="{}"),
            item(3, "function_call_output", call_id="c1", output="a.py"),
            item(3, "custom_tool_call_output", call_id="c2", output="Done"),
            item(
                3,
                "function_call_output",
                call_id="c3",
                output={"content": "failed", "success": False},
            ),
            said(4, "assistant", "Ready"),
        ],
    )
    first, second = session.calls
    assert [(c["id"], c["function"]) for c in first.reply["tool_calls"]] == [
        (
            "c1",
            {"name": "local_shell", "arguments": '{"type": "exec", "command": ["ls"]}'},
        ),
        ("c2", {"name": "apply_patch", "arguments": "*** Begin"}),
        ("c3", {"name": "f", "arguments": "{}"}),
    ]
    assert first.reply["content"][0]["type"] == "web_search_call"
    assert [m["content"] for m in second.messages[2:]] == ["a.py", "Done", "failed"]


def test_bare_items_of_old_versions(tmp_path):
    meta = {"id": "old", "timestamp": "2025-07-01T00:00:00Z", "instructions": "My own."}
    bare = [
        meta,
        {"record_type": "state"},
        said(1, "user", "Hi")["payload"],
        said(2, "assistant", "Hello")["payload"],
    ]
    [session] = read_lines(tmp_path, bare)
    assert session.session_id == "old"
    assert contents(session.calls[0]) == ["Hi"]  # instructions are the user's, not the system's
    assert session.calls[0].time_s is None


def test_roles_and_tool_calls_of_the_oldest_version(tmp_path):
    [session] = read_lines(
        tmp_path,
        [
            {"timestamp": "2025-01-01T00:00:00Z", "role": "user", "content": "Hi", "model": "m"},
            {
                "timestamp": "2025-01-01T00:00:01Z",
                "type": "tool_call",
                "function": {"name": "git"},
                "arguments": {"a": 1},
            },
            {"timestamp": "2025-01-01T00:00:01Z", "type": "tool_result", "result": "main"},
            {"timestamp": "2025-01-01T00:00:02Z", "role": "assistant", "content": "On main."},
        ],
    )
    first, second = session.calls
    [call] = first.reply["tool_calls"]
    assert call["function"] == {"name": "git", "arguments": '{"a": 1}'}
    assert second.messages[2] == {
        "role": "tool",
        "tool_call_id": call["id"],
        "content": "main",
    }
    assert second.reply == {"role": "assistant", "content": "On main."}
    assert second.sending.model == "m"


def test_events_speak_where_there_are_no_items_and_unknown_ones_are_counted(tmp_path):
    [session] = read_lines(
        tmp_path,
        [
            line(0, "session_meta", **META),
            line(1, "event_msg", type="user_message", message="Hi"),
            line(2, "event_msg", type="mystery", foo=1),
            line(3, "event_msg", type="agent_message", message="Hello"),
            line(4, "response_later", type="thing"),
        ],
    )
    assert session.calls[0].reply == {"role": "assistant", "content": "Hello"}
    assert session.notes[1] == "2 lines of unknown kinds were left out: mystery (1), thing (1)"


def test_usage_without_text_is_refused(tmp_path):
    lines = [line(0, "session_meta", **META), tokens(1, (10, 0, 1), (10, 0, 1))]
    with pytest.raises(TrajectoryError, match=r"log.jsonl:1: a Codex rollout without any text"):
        read_lines(tmp_path, lines)


def test_a_broken_item_is_refused_with_its_line(tmp_path):
    lines = [said(1, "user", "Hi"), item(2, "message", role="assistant", content=5)]
    with pytest.raises(TrajectoryError, match=r"log.jsonl:2: payload.content is a number"):
        read_lines(tmp_path, lines)
