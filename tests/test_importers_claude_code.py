"""Claude Code sessions: several lines a call, side chains, branches, compaction."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from importer_files import read_lines

from duramen.experiments.trajectory import Origin, Usage
from duramen.layout.errors import TrajectoryError


def user(uuid, parent, content, **rest):
    message = {"role": "user", "content": content}
    return _line("user", uuid, parent, message) | rest


def block(uuid, parent, message_id, *blocks, usage=None, **rest):
    message = {"id": message_id, "role": "assistant", "model": "claude-x", "content": [*blocks]}
    return _line("assistant", uuid, parent, message | {"usage": usage or {}}) | rest


def _line(kind, uuid, parent, message):
    second = int(uuid[1:]) if uuid[1:].isdecimal() else 0
    return {
        "type": kind,
        "uuid": uuid,
        "parentUuid": parent,
        "sessionId": "s",
        "isSidechain": False,
        "timestamp": f"2026-01-01T00:00:{second:02}Z",
        "message": message,
    }


def text(value):
    return {"type": "text", "text": value}


def use(call_id, **arguments):
    return {"type": "tool_use", "id": call_id, "name": "ls", "input": arguments}


def result(call_id, content):
    return [{"type": "tool_result", "tool_use_id": call_id, "content": content}]


def usage(output, read=0):
    return {
        "input_tokens": 5,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": 10,
        "output_tokens": output,
    }


def contents(call):
    return [message["content"] for message in call.messages]


def test_lines_of_one_message_are_one_call_and_usage_counts_once(tmp_path):
    [session] = read_lines(
        tmp_path,
        [
            {"type": "summary", "summary": "Old", "leafUuid": "x"},
            user("u1", None, "What is here?"),
            block("a2", "u1", "m1", {"type": "thinking", "thinking": "Hm."}, usage=usage(1)),
            block("a3", "a2", "m1", text("I look."), usage=usage(1)),
            block("a4", "a3", "m1", use("c1", path="."), usage=usage(9)),
            user("u6", "a4", result("c1", "a.py")),
            block("a8", "u6", "m2", text("One file."), usage=usage(3, read=15)),
        ],
    )
    first, second = session.calls
    assert session.session_id == "s"
    assert first.messages == ({"role": "user", "content": "What is here?"},)
    assert first.reply == {
        "role": "assistant",
        "content": "I look.",
        "reasoning_content": "Hm.",
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "ls", "arguments": '{"path": "."}'},
            }
        ],
    }
    assert first.usage == Usage(15, 0, 9, 10)
    assert second.messages[:2] == (*first.messages, first.reply)
    assert second.messages[0] is first.messages[0]
    assert second.messages[1] is first.reply
    assert second.messages[2] == {"role": "tool", "tool_call_id": "c1", "content": "a.py"}
    assert second.usage == Usage(30, 15, 3, 10)
    assert (first.time_s, second.time_s) == (0.0, 5.0)
    assert (first.sending.duration_s, second.sending.duration_s) == (3.0, 2.0)
    assert (first.sending.provider, first.sending.model) == ("anthropic", "claude-x")
    assert session.origins == {
        "messages": Origin.ASSUMED,
        "reply": Origin.RECORDED,
        "usage": Origin.RECORDED,
        "time_s": Origin.DERIVED,
        "start_time_s": Origin.DERIVED,
    }
    assert "neither system prompt nor tools" in session.notes[0]


@pytest.mark.parametrize("parent", ["u3", "u5"])
def test_results_of_parallel_calls_stand_behind_the_call_in_file_order(tmp_path, parent):
    """The second call's line has the first one's as its parent: one result is on a side branch."""
    [session] = read_lines(
        tmp_path,
        [
            user("u1", None, "Look."),
            block("a2", "u1", "m1", use("c1")),
            user("u3", "a2", result("c1", "one")),
            block("a4", "a2", "m1", use("c2")),
            user("u5", "a4", result("c2", "two")),
            block("a6", parent, "m2", text("Done.")),
        ],
    )
    assert len(session.calls) == 2
    last = session.calls[1].messages
    assert [message["role"] for message in last] == ["user", "assistant", "tool", "tool"]
    assert [m["content"] for m in last[2:]] == ["one", "two"]
    assert len(last[1]["tool_calls"]) == 2


def test_a_branch_holds_only_its_ancestors(tmp_path):
    [session] = read_lines(
        tmp_path,
        [
            user("u1", None, "Hi"),
            block("a2", "u1", "m1", text("Hello")),
            user("u3", "a2", "First try"),
            block("a4", "u3", "m2", text("One")),
            user("u5", "a2", "Second try"),
            block("a6", "u5", "m3", text("Two")),
        ],
    )
    assert [contents(call) for call in session.calls] == [
        ["Hi"],
        ["Hi", "Hello", "First try"],
        ["Hi", "Hello", "Second try"],
    ]


def test_side_chains_are_sessions_of_their_own(tmp_path):
    sessions = read_lines(
        tmp_path,
        [
            user("u1", None, "Main"),
            user("u2", "u1", "Side", isSidechain=True),
            block("a3", "u2", "m1", text("Side reply"), isSidechain=True),
            user("u4", None, "Agent", isSidechain=True, agentId="a77"),
            block("a5", "u4", "m2", text("Agent reply"), isSidechain=True, agentId="a77"),
            block("a6", "u1", "m3", text("Main reply")),
        ],
    )
    assert {s.session_id: [contents(c) for c in s.calls] for s in sessions} == {
        "s": [["Main"]],
        "s:u2": [["Side"]],
        "s:a77": [["Agent"]],
    }


@pytest.mark.parametrize("form", ["boundary", "summary"])
def test_compaction_begins_the_history_anew(tmp_path, form):
    boundary = {
        "type": "system",
        "subtype": "compact_boundary",
        "uuid": "b3",
        "parentUuid": "a2",
        "sessionId": "s",
    }
    lines = [
        user("u1", None, "Long story"),
        block("a2", "u1", "m1", text("Go on")),
        *([boundary] if form == "boundary" else []),
        user(
            "u4",
            "b3" if form == "boundary" else "a2",
            "So far: a story",
            isCompactSummary=form == "summary",
        ),
        block("a5", "u4", "m2", text("I see")),
    ]
    [session] = read_lines(tmp_path, lines)
    assert [contents(call) for call in session.calls] == [["Long story"], ["So far: a story"]]


def test_a_file_without_parents_is_one_chain(tmp_path):
    lines = [
        user("u1", None, "Hi"),
        block("a2", None, "m1", text("Hello")),
        user("u3", None, "More"),
        block("a4", None, "m2", text("Well")),
    ]
    for line in lines:
        del line["parentUuid"]
    [session] = read_lines(tmp_path, lines)
    assert [contents(call) for call in session.calls] == [["Hi"], ["Hi", "Hello", "More"]]


def test_broken_lines_and_replies_of_its_own_are_left_out(tmp_path):
    [session] = read_lines(
        tmp_path,
        [
            user("u1", None, "Hi"),
            42,
            ["x"],
            user("u2", "u1", [5]),
            user("u3", "u1", "Still there?", message="broken"),
            block("a4", "u1", "m0", text("API error"), isApiErrorMessage=True),
            block("a5", "a4", "m1", text("Hello"), timestamp="soon"),
        ],
    )
    [call] = session.calls
    assert contents(call) == ["Hi"]
    assert session.notes[1] == "4 lines of the file are broken and were left out"


def test_parents_in_a_circle_end(tmp_path):
    [session] = read_lines(
        tmp_path,
        [
            user("u1", "a2", "Hi"),
            block("a2", "u1", "m1", text("Hello")),
            {"type": "progress", "uuid": "p1", "parentUuid": "p1", "sessionId": "s"},
            block("a3", "p1", "m2", text("Again")),
        ],
    )
    assert [contents(call) for call in session.calls] == [["Hi"], ["Hi", "Hello"]]


def test_usage_without_text_is_refused(tmp_path):
    line = {"type": "assistant", "message": {"usage": {"input_tokens": 5}}}
    with pytest.raises(TrajectoryError, match=r"log.jsonl:1: Claude Code lines \(2 with usage\)"):
        read_lines(tmp_path, [{"type": "user", "message": {}}, line, line])


@settings(max_examples=50)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 30)), min_size=1, max_size=12))
def test_prompts_are_the_ancestors_of_any_tree(tmp_path_factory, drawn):
    """Each line: whether it is a reply, and the number of an earlier line, its parent."""
    lines = [user("u0", None, "0")]
    parents = {0: None}
    for number, (is_reply, chosen) in enumerate(drawn, start=1):
        parents[number] = chosen % number
        make = block if is_reply else user
        content = [f"m{number}", text(str(number))] if is_reply else [str(number)]
        lines.append(make(f"u{number}", f"u{parents[number]}", *content))
    expected = []
    for number, (is_reply, _) in enumerate(drawn, start=1):
        if is_reply:
            path = []
            above = parents[number]
            while above is not None:
                path.insert(0, str(above))
                above = parents[above]
            expected.append(path)
    lines.append(block("u99", "u0", "m99", text("99")))  # so that there is a call
    [session] = read_lines(tmp_path_factory.mktemp("tree"), lines)
    assert [contents(call) for call in session.calls] == [*expected, ["0"]]


def test_an_effort_that_a_line_does_not_bear_is_no_change_of_it(tmp_path):
    lines = [user("u0", None, "Hello")]
    for number, effort in enumerate((None, "high", None, "low")):
        more = {} if effort is None else {"effort": effort}
        lines.append(block(f"a{number}", f"u{number}", f"m{number}", text("Yes."), **more))
        lines.append(user(f"u{number + 1}", f"a{number}", "And?"))
    (session,) = read_lines(tmp_path, lines)
    efforts = [call.sending.options.get("effort") for call in session.calls]
    assert efforts == ["high", "high", "high", "low"]
