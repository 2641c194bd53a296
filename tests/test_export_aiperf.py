"""AIPerf payloads of ours, read back by our own importer."""

import json
from pathlib import Path

import pytest
from export_cases import (
    ASKED,
    CALLED,
    READ,
    RESULT,
    SAID,
    SYSTEM,
    calls,
    demo_sessions,
    lines,
    only,
    saved,
    session,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from duramen.experiments.exporters.aiperf import to_inputs_json, to_raw_payloads
from duramen.experiments.importers.read import read_sessions
from duramen.experiments.trajectory import Call, Session
from duramen.layout.errors import TrajectoryError


def test_payloads_are_whole_requests() -> None:
    sent = session(salt="t", options={"tool_choice": "auto", "thinking": {}})
    made = to_raw_payloads([sent])
    assert [file.name for file in made.files] == ["000000-s_1.jsonl"]
    first, second = lines(made.files[0].text)
    assert list(first) == [
        *("model", "messages", "tools", "tool_choice"),
        *("cache_salt", "max_tokens", "stream", "stream_options"),
    ]
    assert first["messages"] == [SYSTEM, ASKED]
    assert first["tools"] == [READ]
    assert (first["max_tokens"], second["max_tokens"]) == (12, 5)
    assert second["messages"] == [SYSTEM, ASKED, CALLED, RESULT]
    assert made.notes == ("2 options thinking left out: chat endpoints do not take it",)


def test_arguments_that_are_objects_become_text() -> None:
    function = {"name": "read", "arguments": {"path": "ä.py"}}
    message = {**CALLED, "tool_calls": [{**CALLED["tool_calls"][0], "function": function}]}
    made = to_raw_payloads([Session("s", (Call((ASKED, message, RESULT), SAID),))])
    body = json.loads(made.files[0].text)
    assert body["messages"][1]["tool_calls"][0]["function"]["arguments"] == '{"path": "ä.py"}'


def test_our_importer_reads_payloads_back(tmp_path: Path) -> None:
    sessions = [session(), *demo_sessions()]
    back = list(read_sessions(saved(to_raw_payloads(sessions), tmp_path)))
    assert [[c.messages for c in s.calls] for s in back] == [
        [c.messages for c in s.calls] for s in sessions
    ]
    assert [s.tools for s in back] == [s.tools for s in sessions]


def test_inputs_json_holds_the_same_payloads_by_session() -> None:
    sessions = [session(), *demo_sessions()]
    data = only(to_inputs_json(sessions))["data"]
    payloads = [lines(file.text) for file in to_raw_payloads(sessions).files]
    assert [entry["session_id"] for entry in data] == [s.session_id for s in sessions]
    assert [entry["payloads"] for entry in data] == payloads


def test_calls_without_messages_are_no_requests() -> None:
    empty = Session("empty", (Call((), SAID),))
    (file,) = to_raw_payloads([empty, session()]).files
    assert file.name == "000001-s_1.jsonl"
    assert [entry["session_id"] for entry in only(to_inputs_json([empty, session()]))["data"]] == [
        "s/1"
    ]
    for export in (to_raw_payloads, to_inputs_json):
        with pytest.raises(TrajectoryError, match="no call is left to export: 1 calls without mes"):
            export([empty])


@pytest.mark.parametrize(
    "name", ["\u65e5" * 200, "\U0001f600" * 90, "../../x", "a\0b\n", "e" * 500]
)
def test_files_have_names_that_file_systems_take(name: str) -> None:
    call = Call(({"role": "user", "content": "Hi"},), None)
    [file] = to_raw_payloads([Session(name, (call,))]).files
    assert len(f".{file.name}.{2**22}".encode()) <= 255
    assert "/" not in file.name
    assert file.name.isprintable()


def test_text_that_is_no_unicode_is_refused() -> None:
    broken = Session("s", (Call(({"role": "user", "content": "\ud800"},), SAID),))
    for export in (to_raw_payloads, to_inputs_json):
        with pytest.raises(TrajectoryError, match="cannot be written as JSON"):
            export([broken])


@settings(max_examples=40)
@given(st.lists(calls, min_size=1, max_size=4))
def test_a_line_for_each_call_whatever_it_held(recorded: list[Call]) -> None:
    (file,) = to_raw_payloads([Session("any", tuple(recorded))]).files
    bodies = lines(file.text)
    assert len(bodies) == len(recorded)
    for body in bodies:
        for message in body["messages"]:
            for call in message.get("tool_calls") or ():
                assert isinstance(call["function"]["arguments"], str)
