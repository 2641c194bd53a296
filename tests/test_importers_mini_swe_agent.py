"""mini-swe-agent: every assistant message is a call; times, usage and refused replies are found."""

import json
from pathlib import Path

import pytest

from duramen.experiments.importers.read import read_sessions
from duramen.experiments.trajectory import Call, Origin, Session, Usage
from duramen.layout.errors import TrajectoryError

SYSTEM = {"role": "system", "content": "One command at a time."}
USER = {"role": "user", "content": "Fix it."}
LOOK = {"role": "assistant", "content": "```bash\nls\n```"}
SEEN = {"role": "user", "content": "<output>a.py</output>"}
DONE = {"role": "assistant", "content": "Done."}


def usage(prompt, cached, completion):
    details = None if cached is None else {"cached_tokens": cached}
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "prompt_tokens_details": details,
    }


def said(message, time_s=None, **extra):
    return message | {"extra": extra if time_s is None else {"timestamp": time_s, **extra}}


def run(*messages, **rest):
    info = {"exit_status": "Submitted", "mini_version": "2.0.0", "model_stats": {"api_calls": 2}}
    return {
        "info": info,
        "messages": list(messages),
        "trajectory_format": "mini-swe-agent-1.1",
        **rest,
    }


@pytest.fixture
def read(tmp_path: Path):
    def write_and_read(value, name="fix.traj.json"):
        (tmp_path / name).write_text(json.dumps(value, indent=2))
        return list(read_sessions([tmp_path / name]))

    return write_and_read


def test_times_and_usage_are_taken_and_bookkeeping_is_dropped(read):
    nulls = {"tool_calls": None, "function_call": None, "provider_specific_fields": {"x": 1}}
    [session] = read(
        run(
            SYSTEM,
            USER,
            said(LOOK | nulls, 105.0, response={"usage": usage(90, 0, 7)}, cost=0.1),
            said(SEEN, 107.5, raw_output="a.py", returncode=0),
            said(DONE, 110.0, response={"usage": usage(120, 64, 2)}),
            said({"role": "exit", "content": "diff"}, exit_status="Submitted"),
        )
    )
    assert session == Session(
        session_id="fix",
        calls=(
            Call((SYSTEM, USER), LOOK, 0.0, Usage(90, 0, 7)),
            Call((SYSTEM, USER, LOOK, SEEN), DONE, 2.5, Usage(120, 64, 2)),
        ),
        start_time_s=105.0,
        origins={
            "messages": Origin.DERIVED,
            "reply": Origin.RECORDED,
            "usage": Origin.RECORDED,
            "time_s": Origin.DERIVED,
            "start_time_s": Origin.ASSUMED,  # nothing before the first call bears a time
        },
    )
    assert session.calls[0].messages[0] is session.calls[1].messages[0]


def test_version_1_bears_times_beside_the_content(read):
    value = run(
        SYSTEM | {"timestamp": 100.0},
        USER | {"timestamp": 100.5},
        LOOK | {"timestamp": 104.0, "extra": {"response": {"usage": usage(90, None, 7)}}},
        SEEN | {"timestamp": 106.5},
        DONE | {"timestamp": 108.0},
        instance_id="repo__1",
    )
    [session] = read(value | {"trajectory_format": "mini-swe-agent-1"})
    assert (session.session_id, session.start_time_s) == ("repo__1", 100.5)
    assert [call.time_s for call in session.calls] == [0.0, 6.0]
    assert [call.usage for call in session.calls] == [Usage(90, None, 7), Usage()]
    assert session.origins["start_time_s"] is Origin.DERIVED
    assert session.calls[1].messages == (SYSTEM, USER, LOOK, SEEN)


def test_without_times_there_are_none_and_one_that_goes_back_stands_still(read):
    [session] = read(run(SYSTEM, USER, LOOK, SEEN, DONE))
    assert [call.time_s for call in session.calls] == [None, None]
    assert session.start_time_s is None
    assert session.origins == {"messages": Origin.DERIVED, "reply": Origin.RECORDED}
    [session] = read(run(said(USER, 50.0), said(LOOK, 60.0), said(SEEN, 40.0), said(DONE, 70.0)))
    assert [call.time_s for call in session.calls] == [0.0, 0.0]


def test_tool_calls_and_results_are_kept(read):
    call = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    asked = {"role": "assistant", "content": None, "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": "c1", "content": "a.py"}
    [session] = read(run(SYSTEM, USER, said(asked, 1.0), said(result, 2.0), DONE))
    assert session.calls == (
        Call((SYSTEM, USER), asked, 0.0),
        Call((SYSTEM, USER, asked, result), DONE, 1.0),
    )
    assert "tools" not in session.origins


@pytest.mark.parametrize(
    "noted",
    [
        {"model_response": "Hm.", "response": {"usage": usage(9, 0, 1)}},
        {
            "response": {
                "choices": [
                    {"message": {"role": "assistant", "content": "Hm.", "tool_calls": None}}
                ],
                "usage": usage(9, 0, 1),
            }
        },
    ],
)
def test_a_refused_reply_is_a_call_that_no_later_prompt_has(read, noted):
    mend = {"role": "user", "content": "One command, please."}
    [session] = read(
        run(SYSTEM, USER, said(mend, 3.0, interrupt_type="FormatError", **noted), said(LOOK, 5.0))
    )
    assert session.calls == (
        Call((SYSTEM, USER), {"role": "assistant", "content": "Hm."}, 0.0, Usage(9, 0, 1)),
        Call((SYSTEM, USER, mend), LOOK, 0.0),
    )


def test_the_responses_api_becomes_chat_messages(read):
    response = {
        "object": "response",
        "output": [
            {"type": "reasoning", "summary": [], "encrypted_content": "x"},
            {"type": "message", "content": [{"type": "output_text", "text": "I look."}]},
            {"type": "function_call", "call_id": "c1", "name": "bash", "arguments": "{}"},
        ],
        "usage": {
            "input_tokens": 80,
            "output_tokens": 5,
            "input_tokens_details": {"cached_tokens": 64},
        },
        "extra": {"timestamp": 4.0},
    }
    result = {"type": "function_call_output", "call_id": "c1", "output": "a.py"}
    note = {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "Go on."}],
    }
    [session] = read(run(SYSTEM, USER, response, said(result, 6.0), note, DONE))
    call = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    asked = {"role": "assistant", "content": "I look.", "tool_calls": [call]}
    assert session.calls == (
        Call((SYSTEM, USER), asked, 0.0, Usage(80, 64, 5)),
        Call(
            (
                SYSTEM,
                USER,
                asked,
                {"role": "tool", "tool_call_id": "c1", "content": "a.py"},
                {"role": "user", "content": "Go on."},
            ),
            DONE,
            2.0,
        ),
    )
    assert session.origins["reply"] is Origin.DERIVED


def test_a_run_that_never_called_has_no_calls(read):
    assert [s.calls for s in read(run())] == [()]


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (run() | {"messages": None}, "messages is null or missing; expected a list"),
        (run(5), r"messages\[0\] is a number; expected an object"),
        (run({"content": "x"}), r"messages\[0\].role is null or missing"),
        (run(USER | {"extra": 5}), r"messages\[0\].extra is a number; expected an object"),
        (run(said(USER, "now")), r"messages\[0\].extra.timestamp is 'now'; expected Unix seconds"),
        (run(said(USER, -1)), r"extra.timestamp is a number; expected Unix seconds"),
        (run(said(USER, 1e15)), r"extra.timestamp is a number; expected Unix seconds"),
        (run(said(USER, True)), r"extra.timestamp is true or false; expected Unix seconds"),
        (
            run(USER, said(LOOK, 1.0, response={"usage": {"prompt_tokens": -4}})),
            r"messages\[1\].extra.response.usage.prompt_tokens is a number; expected a count",
        ),
        (run({"object": "response", "output": 3}), r"messages\[0\].output is a number"),
        (
            run(USER, said(USER, interrupt_type="FormatError", response={"choices": ["x"]})),
            r"messages\[1\].extra.response.choices\[0\].message is null or missing",
        ),
    ],
)
def test_broken_runs_are_one_clear_line(read, value, error):
    with pytest.raises(TrajectoryError, match=error) as raised:
        read(value)
    assert "\n" not in str(raised.value)


def test_a_bare_list_is_a_whole_session(shared_data):
    path = shared_data / "mini-swe-agent" / "github_issue.traj.json"
    messages = json.loads(path.read_text())
    [session] = read_sessions([path])
    assert [len(call.messages) for call in session.calls] == [*range(2, 22, 2)]
    assert session.calls[-1] == Call(tuple(messages[:20]), messages[20])
