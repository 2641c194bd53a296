"""layout.fingerprint: what a client's round trip may do to a conversation, and what is an edit."""

import json
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.layout.errors import LayoutError
from duramen.layout.fingerprint import (
    MessagePrint,
    chain,
    head_digest,
    message_prints,
)

Conversation = list[dict[str, Any]]

KEYS = st.sampled_from(["a", "b", "é", "path"])
NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
LEAVES = st.none() | st.booleans() | NUMBERS | st.text(max_size=4)
JSON = st.recursive(
    LEAVES, lambda v: st.lists(v, max_size=3) | st.dictionaries(KEYS, v, max_size=3)
)
OBJECTS = st.dictionaries(KEYS, JSON, max_size=3)
ADDED: dict[str, Any] = {
    "id": "m",
    "refusal": None,
    "annotations": [],
    "audio": None,
    "function_call": None,
}
BLANKS = st.text(" \n\t", max_size=2)


def call(number: int, arguments: Any, name: str = "f") -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"id": f"c{number}", "type": "function", "function": function}


def asks(*calls: Any, content: Any = "look") -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def result(number: int, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"c{number}", "content": content}


def loose(*messages: Any) -> bytes:
    """The key of a whole conversation."""
    return chain(message_prints(messages))[-1]


def strict(*messages: Any) -> list[bytes]:
    return [one.strict for one in message_prints(messages)]


@st.composite
def conversations(draw: st.DrawFn) -> Conversation:
    """Turns with parallel calls and their results; ids are unique."""
    messages: Conversation = [{"role": "system", "content": draw(st.text(max_size=6))}]
    for _ in range(draw(st.integers(1, 3))):
        messages.append({"role": "user", "content": f"q{draw(st.text(max_size=6))}q"})
        first = len(messages) * 10
        numbers = range(first, first + draw(st.integers(0, 3)))
        given = [call(number, json.dumps(draw(OBJECTS))) for number in numbers]
        reply = asks(*given, content=draw(st.text(max_size=6)))
        messages.append(reply | {"reasoning_content": "hm"})
        messages += (result(number, f"r{draw(st.text(max_size=4))}r") for number in numbers)
    return messages


def shuffled(draw: st.DrawFn, value: Any) -> Any:
    """The same JSON with its keys in another order and integers as floats where they can be."""
    if isinstance(value, dict):
        return {key: shuffled(draw, value[key]) for key in draw(st.permutations(list(value)))}
    if isinstance(value, list):
        return [shuffled(draw, item) for item in value]
    if type(value) is int and abs(value) < 2**53 and draw(st.booleans()):
        return float(value)
    return value


def rewritten(draw: st.DrawFn, arguments: str) -> Any:
    value = shuffled(draw, json.loads(arguments))
    if draw(st.booleans()):
        return value
    indent = draw(st.sampled_from([None, 2]))
    return json.dumps(value, ensure_ascii=draw(st.booleans()), indent=indent)


@st.composite
def round_trips(draw: st.DrawFn) -> tuple[Conversation, Conversation]:
    """A conversation, and what a client may make of it that is no edit."""
    messages = draw(conversations())
    sent: Conversation = []
    for message in deepcopy(messages):
        for each in message.get("tool_calls", ()):
            each["id"] = "new " + each["id"]
            each["index"] = 0
            each["function"]["arguments"] = rewritten(draw, each["function"]["arguments"])
        if "tool_call_id" in message:
            message["tool_call_id"] = "new " + message["tool_call_id"]
        text = draw(BLANKS) + message["content"] + draw(BLANKS)
        lines = [{"type": "text", "text": line} for line in text.split("\n")]
        message["content"] = draw(st.sampled_from([text, lines]))
        if not text.strip() and draw(st.booleans()):
            message["content"] = None
        if draw(st.booleans()):
            message.pop("reasoning_content", None)
        more: list[dict[str, Any]] = [{}, ADDED]
        sent.append(shuffled(draw, message | draw(st.sampled_from(more))))
    return messages, sent


@given(round_trips())
def test_a_round_trip_is_the_same_conversation(case: tuple[Conversation, Conversation]) -> None:
    messages, sent = case
    prints = message_prints(messages), message_prints(sent)
    assert [p.loose for p in prints[0]] == [p.loose for p in prints[1]]


def edited_value(draw: st.DrawFn, value: Any) -> Any:
    """JSON that is not the same in one place."""
    if isinstance(value, dict) and value and draw(st.booleans()):
        key = draw(st.sampled_from(sorted(value)))
        return value | {key: edited_value(draw, value[key])}
    if isinstance(value, list) and value and draw(st.booleans()):
        return [*value[:-1], edited_value(draw, value[-1])]
    if isinstance(value, dict):
        return value | {"added": None}
    if isinstance(value, list):
        return [*value, None]
    if isinstance(value, bool):
        return draw(st.sampled_from([not value, str(value).lower(), int(value)]))
    if isinstance(value, int | float):
        return str(value)
    return "null" if value is None else value + "x"


@st.composite
def edits(draw: st.DrawFn) -> tuple[Conversation, Conversation, int]:
    """A conversation, one with a single edit, and the first message that is another."""
    messages = draw(conversations())
    index = draw(st.integers(0, len(messages) - 1))
    edited = deepcopy(messages)
    message = edited[index]
    kinds = ["content", "role", "name", "inside", "drop"]
    kinds += ["tool", "argument", "call"] * bool(message.get("tool_calls"))
    match draw(st.sampled_from(kinds)):
        case "content":
            message["content"] += "x"
        case "inside":
            message["content"] = "y" + message["content"]
        case "role":
            message["role"] = "developer"
        case "name":
            message["name"] = "n"
        case "tool":
            message["tool_calls"][0]["function"]["name"] += "_"
        case "call":
            message["tool_calls"].append(call(0, "{}"))
        case "argument":
            function = message["tool_calls"][-1]["function"]
            function["arguments"] = json.dumps(
                edited_value(draw, json.loads(function["arguments"]))
            )
        case "drop":
            del edited[index]
    return messages, edited, index


@given(edits())
def test_an_edit_is_another_conversation_from_there_on(
    case: tuple[Conversation, Conversation, int],
) -> None:
    messages, edited, index = case
    keys = chain(message_prints(messages)), chain(message_prints(edited))
    assert keys[0][:index] == keys[1][:index]
    assert set(keys[0][index:]).isdisjoint(keys[1][index:])


@given(round_trips())
def test_equal_strict_prints_are_equal_loose_ones(case: tuple[Conversation, Conversation]) -> None:
    messages, sent = case
    for a, b in zip(message_prints(messages), message_prints(sent), strict=True):
        assert a.strict != b.strict or a.loose == b.loose
    again = message_prints(json.loads(json.dumps(messages)))
    assert again == message_prints(messages)


# -- single cases --


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ('{"a": 1}', '{"a":1.0}', True),
        ('{"a": 1}', {"a": 1}, True),
        ('{"a": 1e2, "b": -0.0}', '{"b": 0, "a": 100}', True),
        ('{"a": "\\u00e9"}', '{"a": "é"}', True),
        ('{"a": "\\ud800"}', {"a": "\ud800"}, True),
        ('{"a": 10000000000000000000000}', '{"a": 1e22}', True),
        ("", "{}", True),
        (None, {}, True),
        (" [1,2]", "[1, 2]", True),
        ('{"a": 1}', '{"a": "1"}', False),
        ('{"a": true}', '{"a": "true"}', False),
        ('{"a": true}', '{"a": 1}', False),
        ('{"a": null}', "{}", False),
        ('{"a": 1}', '{"a": 1, "b": 1}', False),
        ('{"a": 1.0000000000000002}', '{"a": 1}', False),
        ('{"a": 9007199254740993}', '{"a": 9007199254740992}', False),
        ('{"a": [1, 2]}', '{"a": [2, 1]}', False),
        ("[]", "{}", False),
        ("null", "{}", False),
        ('"{}"', "{}", False),
        # broken in two ways
        ('{"a": ', '{"b": ', False),
        ('{"a": NaN}', '{"a": Infinity}', False),
        ('{"a": NaN}', '{"a": null}', False),
        ('{"a": 1e400}', '{"a": 1e500}', False),
        ('{"a": ' + "1" * 5000 + "}", '{"a": ' + "2" * 5000 + "}", False),
        ('{"a":' * 10_000 + "1" + "}" * 10_000, '{"a":' * 10_000 + "2" + "}" * 10_000, False),
    ],
)
def test_arguments(a: Any, b: Any, same: bool) -> None:
    assert (loose(asks(call(1, a))) == loose(asks(call(1, b)))) == same


def test_content() -> None:
    text = {"type": "text", "text": "a"}
    image = {"type": "image_url", "image_url": {"url": "data:,x"}}
    one = loose({"role": "user", "content": "a"})
    for same in [" a\n", [text], ["a"], [text | {"cache_control": {}}], [text, {"type": "text"}]]:
        assert loose({"role": "user", "content": same}) == one
    empty = loose({"role": "user"})
    blank: list[Any] = [None, "", " ", [], [{"type": "text", "text": ""}]]
    for nothing in blank:
        assert loose({"role": "user", "content": nothing}) == empty
    two = loose({"role": "user", "content": "a\na"})
    assert two == loose({"role": "user", "content": [text, text]})
    others = [[image], [text, image], [image, text], ['["a"]'], "b", "a a", [image | {"x": 1}]]
    keys = {loose({"role": "user", "content": content}) for content in others}
    assert len(keys | {one, two, empty}) == len(others) + 3
    turned = {"image_url": {"url": "data:,x"}, "type": "image_url"}
    assert loose({"role": "user", "content": ["a", turned]}) in keys


def test_results_that_are_swapped_between_parallel_calls() -> None:
    calls = asks(call(1, '{"a": 1}'), call(2, '{"a": 2}'))
    known = loose(calls, result(1, "x"), result(2, "y"))
    assert loose(calls, result(1, "y"), result(2, "x")) != known
    assert loose(calls, result(2, "x"), result(1, "y")) != known
    assert loose(calls, result(2, "y"), result(1, "x")) != known
    renamed = asks(call(8, '{"a": 1}'), call(9, '{"a": 2}'))
    assert loose(renamed, result(8, "x"), result(9, "y")) == known
    assert loose(renamed, result(9, "x"), result(8, "y")) != known


def test_a_result_counts_for_the_nearest_call_with_its_id() -> None:
    """Some servers number calls from 0 in every turn."""
    again = [asks(call(0, "{}")), result(0, "x"), asks(call(0, "{}")), result(0, "y")]
    unique = [asks(call(1, "{}")), result(1, "x"), asks(call(2, "{}")), result(2, "y")]
    assert loose(*again) == loose(*unique)
    earlier = [asks(call(1, "{}")), result(1, "x"), asks(call(2, "{}")), result(1, "y")]
    assert loose(*earlier) != loose(*unique)


def test_a_result_of_an_unknown_call_counts_by_its_id() -> None:
    assert loose(result(1, "x")) != loose(result(2, "x"))
    assert loose(result(1, "x")) == loose(result(1, "x") | {"extra": 1})
    assert loose({"role": "tool", "tool_call_id": None}) == loose({"role": "tool"})


def test_only_assistants_call_and_unknown_fields_do_not_count() -> None:
    plain = loose({"role": "user", "content": "a"})
    assert loose({"role": "user", "content": "a", "tool_calls": [call(1, "{}")], "x": 1}) == plain
    assert loose({"role": "user", "content": "a", "name": None}) == plain
    assert loose({"role": "user", "content": "a", "name": "n"}) != plain
    said = loose({"role": "assistant", "content": "a"})
    dropped: list[dict[str, Any]] = [
        {"tool_calls": []},
        {"tool_calls": None},
        {"reasoning": "r"},
        {"refusal": None},
    ]
    for more in dropped:
        assert loose({"role": "assistant", "content": "a", **more}) == said
    odd = [[{"id": "1"}], ["a"], [None], [{"id": "1", "custom": {"input": "x"}}], [{"function": 1}]]
    keys = {loose({"role": "assistant", "content": "a", "tool_calls": calls}) for calls in odd}
    assert len(keys | {said}) == len(odd) + 1


def test_strict_tells_apart_what_a_template_sees() -> None:
    message = asks(call(1, '{"a": 1, "b": 2}')) | {"reasoning_content": "hm"}
    [known] = strict(message)
    contents: list[Any] = [" look", "look ", ["lo", "ok"], ["look", ""]]
    for other in [
        asks(call(1, '{"b": 2, "a": 1}')) | {"reasoning_content": "hm"},
        asks(call(1, '{"a": 1.0, "b": 2}')) | {"reasoning_content": "hm"},
        asks(call(2, '{"a": 1, "b": 2}')) | {"reasoning_content": "hm"},
        message | {"reasoning_content": "ho"},
        message | {"reasoning_content": None},
        *(message | {"content": content} for content in contents),
    ]:
        assert strict(other) != [known]
    for same in [
        asks(call(1, ' {"a":1,"b":2}')) | {"reasoning": "hm", "refusal": None},
        message | {"content": [{"type": "text", "text": "look"}]},
    ]:
        assert strict(same) == [known]


def test_chain() -> None:
    prints = [MessagePrint(bytes([i]) * 16, bytes(16)) for i in range(3)]
    keys = chain(prints)
    assert [len(key) for key in keys] == [16, 16, 16]
    assert len(set(keys)) == 3
    assert chain(prints[1:], keys[0]) == keys[1:]
    assert chain(prints[::-1])[-1] != keys[-1]
    assert chain([]) == []


# -- tools --

TOOL: Mapping[str, Any] = {
    "type": "function",
    "function": {
        "name": "f",
        "description": "d",
        "parameters": {"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a", "b"]},
    },
}


def with_parameters(**parameters: Any) -> Mapping[str, Any]:
    return {**TOOL, "function": {**TOOL["function"], "parameters": parameters}}


def test_head() -> None:
    other = with_parameters(type="object", properties={"b": {}, "a": {}}, required=["a", "b"])
    listed = with_parameters(type="object", properties={"a": {}, "b": {}}, required=["b", "a"])
    given: dict[str, Any] = {"x": 1, "y": {"b": 1, "a": 2}}
    head = head_digest([TOOL, other], given)
    assert head == head_digest([{**TOOL, "extra": 1}, other], {"y": {"b": 1, "a": 2}, "x": 1})
    turned = {key: TOOL[key] for key in sorted(TOOL)}
    assert list(turned) != list(TOOL)
    assert head == head_digest([turned, other], given)
    others: list[tuple[list[Mapping[str, Any]], dict[str, Any]]] = [
        ([other, TOOL], given),
        ([TOOL, TOOL], given),
        ([TOOL, listed], given),
        ([TOOL, other], {"x": True, "y": {"b": 1, "a": 2}}),
        ([TOOL, other], {"x": 1, "y": {"a": 2, "b": 1}}),
        ([TOOL, other], {}),
    ]
    for tools, arguments in others:
        assert head_digest(tools, arguments) != head
    assert head_digest(None, {}) == head_digest([], {})


# -- hostile --


def deep(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "message",
    [
        None,
        "text",
        ["role", "user"],
        {"role": "user", "content": 7},
        {"role": "user", "content": {"type": "text"}},
        {"role": "user", "content": [7]},
        {"role": "user", "content": [{"type": "text", "text": 7}]},
        {"role": "user", "content": [{"type": "image", "x": deep(10_000)}]},
        {"role": "user", "content": {"x": deep(10_000)}},
        {"role": deep(10_000)},
        {"role": object()},
        {"role": "user", "content": [{"type": "image", "x": b"bytes"}]},
        {"role": "user", "content": [{"type": "image", "x": float("nan")}]},
        {"role": "assistant", "tool_calls": 7},
        {"role": "assistant", "tool_calls": {"id": "1"}},
        {"role": "assistant", "tool_calls": [deep(10_000)]},
        asks(call(1, deep(10_000))),
        asks(call(1, {"a": 10**5000})),
        {"role": "tool", "tool_call_id": deep(10_000)},
    ],
    ids=range(19),
)
def test_what_is_no_message(message: Any) -> None:
    with pytest.raises(LayoutError):
        message_prints([message])


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"role": None, "content": ""},
        {"role": 1},
        {"role": "user", "content": "\ud800"},
        {"role": "user", "x": deep(10_000)},
        {"role": "tool", "tool_call_id": {"a": [1]}},
        {"role": "assistant", "tool_calls": "abc"},
        asks(call(1, "{" * 100_000)),
        asks(call(1, "9" * 100_000)),
        asks(call(1, True)),
        asks({"id": [1], "function": {"name": None}}, {"id": {"a": 1}, "function": {}}),
    ],
    ids=range(11),
)
def test_odd_messages_have_prints_of_their_own(message: Any) -> None:
    assert message_prints([message]) == message_prints([message])
    assert loose(message) != loose({"role": "user", "content": "plain"})


@pytest.mark.parametrize(
    "tools",
    ["f", 7, [7], ["f"], [{"function": "f"}], [{"function": {"name": deep(10_000)}}], {"a": 1}],
    ids=range(7),
)
def test_what_is_no_tool(tools: Any) -> None:
    with pytest.raises(LayoutError):
        head_digest(tools, {})


@given(
    st.sampled_from(["system", "developer", "user", "assistant", "tool", "odd", ""]),
    st.text(st.characters(), max_size=30) | st.sampled_from(["", " \n", "\ud800", " a\t", "\x1c"]),
)
def test_the_short_way_for_plain_messages_gives_the_same(role: str, text: str) -> None:
    """A field that nothing reads leads to the long way."""
    plain = {"role": role, "content": text}
    assert message_prints([plain]) == message_prints([plain | {"refusal": None}])
