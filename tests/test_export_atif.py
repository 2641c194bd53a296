"""ATIF trajectories of ours: valid by the RFC, and read back by our own importer."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from export_cases import (
    ASKED,
    CALLED,
    READ,
    RESULT,
    SAID,
    calls,
    calls_of,
    demo_sessions,
    edited,
    only,
    replies,
    saved,
    session,
    usage_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from duramen.experiments.exporters.atif import to_atif
from duramen.experiments.importers.read import read_sessions
from duramen.experiments.trajectory import Call, Message, Sending, Session
from duramen.layout.errors import TrajectoryError


def test_atif_of_a_session_that_only_grows() -> None:
    made = to_atif([session()])
    assert made.files[0].name == "000000-s_1.json"
    assert only(made) == {
        "schema_version": "ATIF-v1.6",
        "session_id": "s/1",
        "agent": {
            "name": "unknown",
            "version": "unknown",
            "model_name": "m",
            "tool_definitions": [READ],
        },
        "steps": [
            {"step_id": 1, "source": "system", "message": "Be brief."},
            {"step_id": 2, "source": "user", "message": "What is in a.py?"},
            {
                "step_id": 3,
                "source": "agent",
                "message": "",
                "reasoning_content": "I have to look.",
                "tool_calls": [
                    {
                        "tool_call_id": "call-1",
                        "function_name": "read",
                        "arguments": {"path": "a.py", "n": 1.0},
                    }
                ],
                "timestamp": "2023-11-14T22:13:20+00:00",
                "model_name": "m",
                "metrics": {
                    "prompt_tokens": 40,
                    "completion_tokens": 12,
                    "cached_tokens": 0,
                    "extra": {"cache_creation_input_tokens": 40},
                },
                "observation": {"results": [{"source_call_id": "call-1", "content": "x = 1\n"}]},
            },
            {
                "step_id": 4,
                "source": "agent",
                "message": "One line.",
                "timestamp": "2023-11-14T22:13:22.500000+00:00",
                "model_name": "m",
                "metrics": {"prompt_tokens": 70, "completion_tokens": 5, "cached_tokens": 32},
            },
        ],
        "final_metrics": {
            "total_prompt_tokens": 110,
            "total_completion_tokens": 17,
            "total_cached_tokens": 32,
            "total_steps": 4,
        },
    }


def test_atif_starts_anew_where_the_past_was_edited() -> None:
    made = to_atif([edited()])
    first, second = (json.loads(file.text) for file in made.files)
    assert (made.num_sessions, made.num_calls) == (1, 4)
    assert first["continued_trajectory_ref"] == made.files[1].name == "000000-s_1.001.json"
    assert (first["session_id"], second["session_id"]) == ("s/1", "s/1-cont-1")
    assert [step["source"] for step in second["steps"]] == [
        *("system", "user", "agent", "user", "agent")
    ]


def test_models_that_change_start_another_trajectory() -> None:
    first, second = session().calls
    moved = replace(second, sending=Sending(model="other"))
    made = to_atif([replace(session(), calls=(first, moved))])
    assert len(made.files) == 2


def test_atif_context_that_nobody_recorded_is_copied() -> None:
    few_shot = Call((ASKED, CALLED, RESULT, RESULT | {"tool_call_id": "gone"}, ASKED), SAID)
    made = to_atif([Session("s", (few_shot, Call((ASKED,), None)))])
    steps = only(made)["steps"]
    assert [(s["source"], s.get("is_copied_context")) for s in steps] == [
        ("user", None),
        ("agent", True),
        ("user", None),
        ("user", None),
        ("agent", None),
    ]
    assert steps[2] == {
        "step_id": 3,
        "source": "user",
        "message": "x = 1\n",
        "extra": {"role": "tool", "tool_call_id": "gone"},
    }
    assert made.notes == (
        "1 calls without a reply left out: a step is what the model said",
        "1 tool results away from their calls: as steps of the user",
    )


def test_atif_of_nothing() -> None:
    with pytest.raises(TrajectoryError, match="no call is left to export"):
        to_atif([Session("s", (Call((ASKED,), None),))])


def test_atif_of_a_time_beyond_calendars() -> None:
    with pytest.raises(TrajectoryError, match="beyond any calendar"):
        to_atif([replace(session(), start_time_s=1e15)])


def test_our_importer_reads_trajectories_back(tmp_path: Path) -> None:
    sessions = [session(), replace(edited(), session_id="edited"), *demo_sessions()]
    back = list(read_sessions(saved(to_atif(sessions), tmp_path)))
    assert calls_of(back) == calls_of(sessions)
    assert [usage_of(call) for s in back for call in s.calls] == [
        usage_of(call) for s in sessions for call in s.calls
    ]


def test_text_that_is_no_unicode_is_refused() -> None:
    broken = Session("s", (Call(({"role": "user", "content": "\ud800"},), SAID),))
    for export in (to_atif,):
        with pytest.raises(TrajectoryError, match="cannot be written as JSON"):
            export([broken])


ATIF_KEYS = {  # RFC 0001, v1.6: what an object may hold; "*" marks what it must
    "trajectory": "schema_version* session_id agent* steps* notes final_metrics "
    "continued_trajectory_ref extra",
    "agent": "name* version* model_name tool_definitions extra",
    "step": "step_id* timestamp source* model_name reasoning_effort message* reasoning_content "
    "tool_calls observation metrics is_copied_context extra",
    "tool_call": "tool_call_id* function_name* arguments*",
    "result": "source_call_id content",
    "metrics": "prompt_tokens completion_tokens cached_tokens cost_usd prompt_token_ids "
    "completion_token_ids logprobs extra",
    "final_metrics": "total_prompt_tokens total_completion_tokens total_cached_tokens "
    "total_cost_usd total_steps extra",
}
AGENT_ONLY = {"model_name", "reasoning_effort", "reasoning_content", "tool_calls", "metrics"}


def check_keys(kind: str, value: Mapping[str, Any]) -> None:
    names = ATIF_KEYS[kind].split()
    assert value.keys() <= {name.rstrip("*") for name in names}
    assert {name.rstrip("*") for name in names if name.endswith("*")} <= value.keys()


def check_text(content: Any) -> None:
    assert isinstance(content, str) or all(p.keys() == {"type", "text"} for p in content)


def check_atif(trajectory: Mapping[str, Any]) -> None:
    """By the rules of the RFC and of Harbor's own validators, read and written down here."""
    check_keys("trajectory", trajectory)
    check_keys("agent", trajectory["agent"])
    check_keys("final_metrics", trajectory["final_metrics"])
    assert trajectory["steps"]
    for number, step in enumerate(trajectory["steps"], start=1):
        check_keys("step", step)
        assert step["step_id"] == number
        assert step["source"] in ("system", "user", "agent")
        assert step["source"] == "agent" or not AGENT_ONLY & step.keys()
        check_text(step["message"])
        check_keys("metrics", step.get("metrics", {}))
        calls = step.get("tool_calls", ())
        for call in calls:
            check_keys("tool_call", call)
            assert isinstance(call["tool_call_id"], str)
            assert isinstance(call["arguments"], dict)
        for result in step.get("observation", {}).get("results", ()):
            check_keys("result", result)
            check_text(result["content"])
            assert result["source_call_id"] in {call["tool_call_id"] for call in calls}


def test_the_checker_of_atif_finds_what_is_wrong() -> None:
    check_atif(only(to_atif([session()])))
    for change in (
        lambda t: t.update(schema="x"),
        lambda t: t["agent"].pop("name"),
        lambda t: t["steps"][1].update(step_id=7),
        lambda t: t["steps"][0].update(metrics={}),
        lambda t: t["steps"][2]["observation"]["results"][0].update(source_call_id="gone"),
    ):
        trajectory = only(to_atif([session()]))
        change(trajectory)
        with pytest.raises(AssertionError):
            check_atif(trajectory)


@settings(max_examples=40)
@given(st.lists(calls, max_size=3), replies)
def test_whatever_was_recorded_becomes_valid_trajectories(
    recorded: list[Call], reply: Message
) -> None:
    recorded = [*recorded, Call((ASKED,), reply)]
    made = to_atif([Session("any", tuple(recorded), start_time_s=5.0)])
    trajectories = [json.loads(file.text) for file in made.files]
    for trajectory in trajectories:
        check_atif(trajectory)
    said = [s for t in trajectories for s in t["steps"] if s["source"] == "agent"]
    num_replies = sum(call.reply is not None for call in recorded)
    assert sum("is_copied_context" not in step for step in said) == num_replies == made.num_calls


def test_real_recordings_become_valid_trajectories(shared_data: Path) -> None:
    """Every recording beside the repository that bears text; what none of ours reads is left."""
    forms = ("tau-bench", "swe-agent", "openhands", "mini-swe-agent", "sharegpt", "otel-genai")
    paths = [shared_data / form for form in forms]
    sessions = list(read_sessions(paths, lambda reason: None))
    made = to_atif(sessions)
    assert made.num_calls == sum(c.reply is not None for s in sessions for c in s.calls) > 1000
    for file in made.files:
        check_atif(json.loads(file.text))
