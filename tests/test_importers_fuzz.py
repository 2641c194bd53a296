"""Hostile recordings: values of any type anywhere are refused with one line, or passed over."""

import copy
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_importers_atif import ASKED, trajectory
from test_importers_bodies import anthropic, responses
from test_importers_claude_code import block, result, text, use, user
from test_importers_codex import META, item, line, said, tokens
from test_importers_observed import observation, payload
from test_importers_otel import MODERN, otlp, pairs, span

from duramen.experiments.importers.read import read_sessions

USER = {"role": "user", "content": [{"type": "text", "text": "Hi"}]}
MADE = {"role": "assistant", "content": [text("x"), use("c1", a=1)]}
ANSWERED = {"role": "user", "content": result("c1", [{"type": "text", "text": "r"}])}
REPLY = {"type": "message", "role": "assistant", "content": [text("Yes")], "usage": {"a": 1}}
RECORDINGS = {
    "claude-code": [
        user("u1", None, "Hi"),
        block("a2", "u1", "m1", text("x"), use("c1", a=1), usage={"input_tokens": 1}),
        user("u3", "a2", result("c1", "r")),
        block("a4", "u3", "m2", {"type": "thinking", "thinking": "t"}),
    ],
    "codex": [
        line(0, "session_meta", **META),
        line(0, "turn_context", model="m", effort="low"),
        said(1, "user", "Hi"),
        item(2, "reasoning", summary=[{"type": "summary_text", "text": "t"}]),
        item(2, "function_call", name="f", arguments="{}", call_id="c1"),
        tokens(3, (9, 1, 2), (9, 1, 2)),
        item(4, "function_call_output", call_id="c1", output=[{"type": "text", "text": "r"}]),
        said(5, "assistant", "Yes"),
        line(6, "compacted", message="m", replacement_history=[said(1, "user", "Hi")["payload"]]),
        line(7, "event_msg", type="thread_rolled_back", num_turns=1),
        said(8, "assistant", "Yes"),
    ],
    "atif": [trajectory(*ASKED, tool_definitions=[]) | {"subagent_trajectories": [trajectory()]}],
    "spans": [span(1, MODERN, events=[{"name": "gen_ai.choice", "attributes": {"message": "x"}}])],
    "otlp": [
        {
            "resourceSpans": [
                {"scopeSpans": [{"spans": [{"spanId": "s", "attributes": pairs(MODERN)}]}]},
                {"resource": {"attributes": [{"key": "k", "value": otlp("x")}]}},
            ]
        }
    ],
    "langfuse": [observation(0), observation(1, input=[USER, MADE], output=REPLY)],
    "litellm": [payload(0), payload(1, call_type="aresponses", messages="Hi")],
    "anthropic": [
        {"timestamp": 1, "request": anthropic(USER, MADE, ANSWERED, system="s"), "response": REPLY},
        {"request": {"body": anthropic(USER, tools=[{"name": "f", "input_schema": {}}])}},
    ],
    "responses": [
        {
            "request": responses([{"role": "user", "content": "Hi"}], instructions="i"),
            "response": {"id": "r1", "output": [said(1, "assistant", "x")["payload"]]},
        },
        responses("And?", previous_response_id="r1", tools=[{"type": "function", "name": "f"}]),
    ],
}
JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.just([]),
    st.just({}),
    st.just([[]]),
    st.just([{}]),
    st.just({"type": "text"}),
    st.just([{"type": []}]),
    st.just("[{}"),
    st.just('{"a": [1]}'),
    st.just("data: {}"),
    st.just("\ud800".encode("utf-8", "replace").decode()),
)


def places(value, path=()):
    """The path of each value inside a JSON value."""
    yield path
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(inner, (*path, key))


def changed(value, path, junk, *, is_removed):
    """A copy with `junk` at the path, or with nothing there."""
    if not path:
        return junk
    whole = copy.deepcopy(value)
    holder = whole
    for key in path[:-1]:
        holder = holder[key]
    if is_removed:
        del holder[path[-1]]
    else:
        holder[path[-1]] = junk
    return whole


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


@pytest.mark.parametrize("name", RECORDINGS)
def test_the_recording_itself_is_read(folder, name):
    sessions = read(folder, RECORDINGS[name])
    assert sum(len(session.calls) for session in sessions) > 0


@pytest.mark.parametrize("name", RECORDINGS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(data=st.data())
def test_any_value_anywhere_is_read_or_refused_with_one_line(folder, name, data):
    values = RECORDINGS[name]
    for _ in range(data.draw(st.integers(1, 3))):
        paths = [path for path in places(values) if path]
        path = data.draw(st.sampled_from(paths))
        values = changed(values, path, data.draw(JUNK), is_removed=data.draw(st.booleans()))
        if not values:
            return
    refused = []
    read(folder, values, refused.append)
    assert not any("\n" in line for line in refused)


def read(folder, values, skipped=None):
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(value) + "\n" for value in values), encoding="utf-8")
    return list(read_sessions([path], skipped))
