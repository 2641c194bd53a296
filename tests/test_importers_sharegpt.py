"""ShareGPT: every turn of the model is a call, whoever it is called."""

import json
from pathlib import Path

import pytest

from duramen.experiments.importers.read import read_sessions
from duramen.experiments.trajectory import Call, Origin, Session
from duramen.layout.errors import TrajectoryError


def turn(speaker, text):
    return {"from": speaker, "value": text}


ASK, ANSWER = turn("human", "Hi"), turn("gpt", "Hello")
USER, REPLY = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}


@pytest.fixture
def read(tmp_path: Path):
    """Write a file and read its sessions. Several values are JSONL."""

    def write_and_read(*values):
        path = tmp_path / "chats.json"
        path.write_text("".join(json.dumps(value) + "\n" for value in values))
        return list(read_sessions([path]))

    return write_and_read


def record(*turns, **rest):
    return {"id": "x", "conversations": [*turns], **rest}


def test_a_list_of_conversations(read):
    values = [record(ASK, ANSWER, ASK, ANSWER), {"conversations": [ASK, ANSWER]}]
    first, second = read(values)
    assert first == Session(
        session_id="x",
        calls=(Call((USER,), REPLY), Call((USER, REPLY, USER), REPLY)),
        origins={"messages": Origin.DERIVED, "reply": Origin.RECORDED},
    )
    assert second.session_id == "chats:2"


@pytest.mark.parametrize(
    "values",
    [
        [record(ASK, ANSWER), record(ASK, ANSWER, id=7)],
        [[record(ASK, ANSWER), record(ASK, ANSWER, id=7)]],
        [{"conversations": [record(ASK, ANSWER), record(ASK, ANSWER, id=7)]}],
        [{"items": [{"id": "x", "items": [ASK, ANSWER]}, {"id": 7, "items": [ASK, ANSWER]}]}],
        [{"id": "x", "conversation": [ASK, ANSWER]}, {"id": "7", "items": [ASK, ANSWER]}],
        [[{"id": "x", "conversations": [USER, REPLY]}, record(ASK, ANSWER, id=7)]],
    ],
)
def test_every_wrapping_gives_the_same_sessions(read, values):
    sessions = read(*values)
    assert [session.session_id for session in sessions] == ["x", "7"]
    assert [session.calls for session in sessions] == [(Call((USER,), REPLY),)] * 2


@pytest.mark.parametrize("speaker", ["gpt", "assistant", "chatgpt", "bing", "bard", "GPT"])
def test_every_name_of_the_model(read, speaker):
    [session] = read([record(turn("user", "Hi"), turn(speaker, "Hello"))])
    assert session.calls == (Call((USER,), REPLY),)


def test_turns_of_one_speaker_in_a_row_stay_apart(read):
    [session] = read([record(ASK, ASK, ANSWER, ANSWER)])
    assert session.calls == (Call((USER, USER), REPLY), Call((USER, USER, REPLY), REPLY))


@pytest.mark.parametrize("before", [[], [{"role": "system", "content": "Be brief."}]])
def test_what_the_model_says_first_is_history(read, before):
    turns = [turn(message["role"], message["content"]) for message in before]
    [session] = read([record(*turns, ANSWER, ASK, ANSWER)])
    assert session.calls == (Call((*before, REPLY, USER), REPLY),)


def test_tools_and_system_prompt_of_a_record(read):
    ls = {"name": "ls", "parameters": {}}
    turns = [ASK, turn("function_call", '{"name": "ls"}'), turn("observation", "a.py"), ANSWER]
    for tools in (json.dumps([ls]), [ls], [{"type": "function", "function": ls}]):
        [session] = read([record(*turns, system="Be brief.", tools=tools)])
        assert session.tools == ({"type": "function", "function": ls},)
    asked = {"role": "assistant", "content": '{"name": "ls"}'}
    prompt = ({"role": "system", "content": "Be brief."}, USER)
    assert session.calls == (
        Call(prompt, asked),
        Call((*prompt, asked, {"role": "tool", "content": "a.py"}), REPLY),
    )
    assert session.origins["tools"] is Origin.RECORDED


def test_equal_ids_become_different_sessions(read):
    sessions = read([record(ASK, ANSWER)] * 3)
    assert [session.session_id for session in sessions] == ["x", "chats/x", "chats/x#2"]


def test_conversations_without_the_model_have_no_calls(read):
    assert [session.calls for session in read([record(), record(ASK, id="y")])] == [(), ()]


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ([record(ASK, {"from": "gpt"})], r"\[0\].conversations\[1\].value is null or missing"),
        ([record(ASK, turn("gpt", 5))], r"\[0\].conversations\[1\].value is a number"),
        ([record(turn("judge", "x"))], r"\[0\].conversations\[0\].from is 'judge'; expected one"),
        ([record(ASK, turn(None, "x"))], r"conversations\[1\].from is null or missing"),
        ([record(ASK, 5)], r"\[0\].conversations\[1\] is a number; expected an object"),
        ([record(ASK), {"conversations": 5}], r"\[1\].conversations is a number; expected a list"),
        ([record(ASK), 5], r"\[1\] is a number; expected an object"),
        ([record(ASK, id=[])], r"\[0\].id is an empty list; expected text or a number"),
        ([record(ASK, system=5)], r"\[0\].system is a number; expected text"),
        ([record(ASK, tools="ls")], r"\[0\].tools is text, but no JSON"),
        ([record(ASK, tools=[{"function": {}}])], r"\[0\].tools\[0\].function.name is null"),
        ([{"conversations": [5]}], "unknown form"),
        ([{"items": []}], "unknown form"),
    ],
)
def test_broken_conversations_are_one_clear_line(read, value, error):
    with pytest.raises(TrajectoryError, match=error) as raised:
        read(value)
    assert "\n" not in str(raised.value)


def test_a_real_file(shared_data):
    sessions = list(read_sessions([shared_data / "sharegpt" / "sharegpt.json"]))
    assert [session.session_id for session in sessions] == ["1", "2"]
    assert [len(session.calls) for session in sessions] == [1, 1]
    assert sessions[1].calls[0].reply == {"role": "assistant", "content": "2+2 is 4."}
