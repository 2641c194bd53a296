"""ATIF, the trajectory format of Harbor."""

import pytest
from importer_files import read_document, read_lines

from duramen.experiments.trajectory import Origin, Sending, Usage
from duramen.layout.errors import TrajectoryError

LS = {"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}


def trajectory(*steps, version="ATIF-v1.4", **agent):
    return {
        "schema_version": version,
        "session_id": "run-1",
        "agent": {"name": "a", "version": "1", "model_name": "m", **agent},
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, start=1)],
    }


def step(source, message, second=0, **rest):
    return {
        "source": source,
        "message": message,
        "timestamp": f"2026-01-01T00:00:{second:02}Z",
        **rest,
    }


USES = {"tool_call_id": "c1", "function_name": "ls", "arguments": {"path": "."}}
ASKED = (
    step("system", "Be brief."),
    step("user", "What is here?", 1),
    step(
        "agent",
        "",
        4,
        reasoning_content="Look.",
        tool_calls=[USES],
        observation={"results": [{"source_call_id": "c1", "content": "a.py"}]},
        metrics={
            "prompt_tokens": 12,
            "cached_tokens": 4,
            "completion_tokens": 2,
            "prompt_token_ids": [5, 6],
            "completion_token_ids": [7],
        },
    ),
    step("agent", "One file.", 6, model_name="n", reasoning_effort="low"),
)


def test_agent_steps_are_calls(tmp_path):
    [session] = read_document(tmp_path, trajectory(*ASKED, tool_definitions=[LS]))
    first, second = session.calls
    assert session.session_id == "run-1"
    assert session.tools == (LS,)
    assert [m["content"] for m in first.messages] == ["Be brief.", "What is here?"]
    assert first.reply == {
        "role": "assistant",
        "content": None,
        "reasoning_content": "Look.",
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "ls", "arguments": '{"path": "."}'},
            }
        ],
    }
    assert first.usage == Usage(12, 4, 2)
    assert first.sending == Sending(model="m", token_ids=(5, 6), reply_ids=(7,))
    assert second.messages[2] is first.reply
    assert second.messages[3] == {"role": "tool", "tool_call_id": "c1", "content": "a.py"}
    assert second.sending == Sending(model="n", options={"reasoning_effort": "low"})
    assert [call.time_s for call in session.calls] == [0.0, 3.0]
    assert session.origins == {
        "messages": Origin.DERIVED,
        "reply": Origin.RECORDED,
        "tools": Origin.RECORDED,
        "usage": Origin.RECORDED,
        "time_s": Origin.DERIVED,
        "start_time_s": Origin.DERIVED,
    }


def test_copied_steps_and_steps_without_a_model_are_history(tmp_path):
    [session] = read_document(
        tmp_path,
        trajectory(
            step("user", "Hi"),
            step("agent", "Before", is_copied_context=True),
            step("agent", "By rule", llm_call_count=0),
            step("agent", "Now", observation={"results": [{"content": "Output"}]}),
            step("agent", None, tool_calls=[USES]),
        ),
    )
    assert session.calls[1].reply["content"] is None
    assert [[m["content"] for m in call.messages] for call in session.calls] == [
        ["Hi", "Before", "By rule"],
        ["Hi", "Before", "By rule", "Now", "Output"],
    ]
    assert session.origins["messages"] is Origin.ASSUMED  # no system prompt


def test_parts_and_subagents_of_later_versions(tmp_path):
    parts = [
        {"type": "text", "text": "See"},
        {"type": "image", "source": {"media_type": "image/png", "path": "images/1.png"}},
    ]
    child = trajectory(step("user", "Sub"), step("agent", "Done")) | {"session_id": "sub"}
    whole = trajectory(step("user", parts), step("agent", "Ok"), version="ATIF-v1.7")
    parent, sub = read_document(tmp_path, whole | {"subagent_trajectories": [child]})
    assert parent.calls[0].messages[0]["content"] == [
        {"type": "text", "text": "See"},
        {"type": "image_url", "image_url": {"url": "images/1.png"}},
    ]
    assert (sub.session_id, len(sub.calls)) == ("sub", 1)


def test_a_trajectory_a_line(tmp_path):
    sessions = read_lines(tmp_path, [trajectory(*ASKED), trajectory(*ASKED)])
    assert [session.session_id for session in sessions] == ["run-1", "log/run-1"]


@pytest.mark.parametrize(
    ("broken", "error"),
    [
        (step("robot", "Hi"), r"steps\[0\].source is 'robot'; expected"),
        (step("user", None), r"steps\[0\].message is null or missing"),
        (step("agent", "x", metrics={"prompt_tokens": -1}), r"steps\[0\].metrics.prompt_tokens"),
        (step("agent", "x", metrics={"prompt_token_ids": [-1]}), "expected token ids"),
        (step("agent", "x", tool_calls=[{"arguments": 1}]), r"tool_calls\[0\].arguments is a num"),
        (step("user", "x") | {"timestamp": "soon"}, r"steps\[0\].timestamp is 'soon'"),
    ],
)
def test_what_is_broken_is_refused(tmp_path, broken, error):
    with pytest.raises(TrajectoryError, match=error):
        read_document(tmp_path, trajectory(broken))
