"""What each client's mistake does to messages and tools, exactly; nothing changes in place."""

import json
from copy import deepcopy

import pytest

from duramen.experiments.history import Turn
from duramen.experiments.layouts.catalogue import Layout, LayoutName
from duramen.experiments.layouts.mistakes import (
    FIXED,
    PRUNED_TEXT,
    clock,
    counter,
    request_id,
    rewrite_of,
    shuffled_tools,
    thinking_stripped,
    unsorted_json,
)
from duramen.experiments.layouts.whole import Moment
from duramen.layout.errors import LayoutError

SYSTEM = {"role": "system", "content": "Be terse."}
USER = {"role": "user", "content": "Hi"}
TOOLS = [{"type": "function", "function": {"name": name}} for name in "abcdef"]


def moment(index: int = 0) -> Moment:
    return Moment("s", index, 65.4)


def first(turn: Turn) -> object:
    return turn.messages[0]["content"]


@pytest.mark.parametrize("role", ["system", "developer"])
def test_the_time_is_the_first_line(role):
    line = "Current time: 1970-01-01 00:01:05 UTC\n"
    assert first(clock(Turn([{"role": role, "content": "Hi"}], []), moment())) == line + "Hi"
    assert first(clock(Turn([{"role": role, "content": None}], []), moment())) == line
    parts = [{"type": "text", "text": "Hi"}]
    changed = clock(Turn([{"role": role, "content": parts}], []), moment())
    assert first(changed) == [{"type": "text", "text": line}, *parts]


def test_a_system_prompt_is_added_where_there_is_none():
    turn = clock(Turn([USER], []), moment())
    assert turn.messages == [
        {"role": "system", "content": "Current time: 1970-01-01 00:01:05 UTC\n"},
        USER,
    ]


def test_the_counter_is_the_last_line_and_creeps():
    assert first(counter(Turn([SYSTEM, USER], []), moment(0))) == "Be terse.\nStep 1 of this task."
    assert first(counter(Turn([SYSTEM, USER], []), moment(1))) == "Be terse.\nStep 2 of this task."
    parts = [{"type": "text", "text": "Hi"}]
    changed = counter(Turn([{"role": "system", "content": parts}], []), moment())
    assert first(changed) == [*parts, {"type": "text", "text": "\nStep 1 of this task."}]


def test_a_request_id_is_another_in_each_call_and_the_same_in_each_run():
    texts = [first(request_id(Turn([SYSTEM], []), moment(index))) for index in (0, 1, 0)]
    assert texts[0] == texts[2] != texts[1]
    assert str(texts[0]).startswith("Request id: ")
    assert str(texts[0]).endswith("\nBe terse.")


def test_tools_keep_their_definitions_in_another_order():
    orders = [shuffled_tools(Turn([USER], TOOLS), moment(index)).tools for index in range(3)]
    assert len({json.dumps(order) for order in orders}) > 1
    for order in orders:
        assert sorted(tool["function"]["name"] for tool in order) == list("abcdef")


def test_keys_are_shuffled_at_every_depth_and_say_the_same():
    parameters = {"type": "object", "properties": {key: {"a": 1, "b": [2]} for key in "uvwxyz"}}
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
    arguments = {key: {"k": 1, "l": True} for key in "uvwxyz"}
    call = {"id": "1", "function": {"name": "f", "arguments": json.dumps(arguments)}}
    said = {"role": "assistant", "content": None, "tool_calls": [call]}
    spellings = set()
    for index in range(3):
        turn = unsorted_json(Turn([USER, said], [tool]), moment(index))
        assert turn.tools == [tool]
        sent = turn.messages[1]["tool_calls"][0]["function"]["arguments"]
        assert json.loads(sent) == arguments
        spellings.add((json.dumps(turn.tools), sent))
    assert len(spellings) == 3


@pytest.mark.parametrize("arguments", ["{broken", None, {"b": 1}, "[1, 2]", "3"])
def test_arguments_that_are_no_json_object_pass(arguments):
    call = {"id": "1", "function": {"name": "f", "arguments": arguments}}
    said = {"role": "assistant", "content": None, "tool_calls": [call]}
    [message] = unsorted_json(Turn([said], []), moment()).messages
    sent = message["tool_calls"][0]["function"]["arguments"]
    if isinstance(arguments, str) and arguments != "{broken":
        assert json.loads(sent) == json.loads(arguments)
    else:
        assert sent == arguments


def test_thinking_before_the_last_user_message_is_stripped():
    thought = {"role": "assistant", "content": "x", "reasoning_content": "hm"}
    turn = thinking_stripped(Turn([USER, thought, USER, thought], []), moment())
    assert turn.messages == [USER, {"role": "assistant", "content": "x"}, USER, thought]


def test_old_tool_outputs_are_pruned_in_place():
    outputs = [{"role": "tool", "tool_call_id": str(i), "content": f"out {i}"} for i in range(4)]
    turn = rewrite_of(Layout.parse("pruned:k=2"))(Turn([USER, *outputs], []), moment())
    contents = [message["content"] for message in turn.messages]
    assert contents == ["Hi", PRUNED_TEXT, PRUNED_TEXT, "out 2", "out 3"]


@pytest.mark.parametrize(
    "text", ["shuffled-tools", "unsorted-json", "thinking-stripped", "thinking-kept", "pruned"]
)
def test_a_turn_with_nothing_to_change_is_given_back(text):
    turn = Turn([SYSTEM, USER], TOOLS[:1] if text == "shuffled-tools" else [])
    assert rewrite_of(Layout.parse(text))(turn, moment()) is turn


@pytest.mark.parametrize("name", [*FIXED, LayoutName.PRUNED])
def test_nothing_changes_in_place(name):
    thought = {"role": "assistant", "content": "x", "reasoning": "hm"}
    turn = Turn(
        [SYSTEM, USER, thought, *({"role": "tool", "content": str(i)} for i in range(9))], TOOLS
    )
    before = deepcopy(turn)
    rewrite_of(Layout(name))(turn, moment())
    assert turn == before


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("stable", "stable"),
        ("pruned", "pruned:k=5"),
        ("zoned", "zoned:k=4"),
        ("zoned:align=528,change=tombstone,k=2", "zoned:k=2,change=tombstone,align=528"),
    ],
)
def test_labels_are_parsed_again(text, label):
    assert Layout.parse(text).label == label
    assert Layout.parse(label) == Layout.parse(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fast", "unknown layout 'fast'"),
        ("stable:k=2", "stable takes no parameters: not 'k=2'"),
        ("zoned:size=2", "zoned takes k, step, change, align: not 'size=2'"),
        ("zoned:k=0", "k=0 is no positive number"),
        ("zoned:k=4,k=5", "k is given twice"),
        ("zoned:k", "k= is no positive number"),
        ("zoned:change=drop", "rewrite or tombstone, not 'drop'"),
    ],
)
def test_what_is_no_layout_is_refused(text, message):
    with pytest.raises(LayoutError, match=message):
        Layout.parse(text)
