"""Requests alone: what a client changed between two calls."""

import base64
import copy
import json
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import pytest

from duramen.layout.diagnose.causes import CAUSES
from duramen.layout.diagnose.diagnose import diagnose
from duramen.layout.diagnose.sent import Finding, Request, Sent

Message = dict[str, Any]


def call(number: int, arguments: Any) -> dict[str, Any]:
    function = {"name": "read_file", "arguments": arguments}
    return {"id": f"call_{number}", "type": "function", "function": function}


def tool(name: str, description: str = "Does it.", **properties: str) -> dict[str, Any]:
    described = {key: {"type": value} for key, value in properties.items()}
    parameters = {"type": "object", "properties": described, "required": list(properties)}
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


SYSTEM = "You are a careful agent.\nNow: 2026-12-01T10:00:00Z\nAnswer briefly."
LISTING = "".join(f"{i:3} src/module_{i}.py\n" for i in range(40))
PAST: list[Message] = [
    {"role": "system", "content": SYSTEM},
    {"role": "user", "content": "What do the files say? Café, please."},
    {
        "role": "assistant",
        "content": "I look.",
        "reasoning_content": "First a, then b.",
        "tool_calls": [call(1, '{"path": "a.txt", "lines": 5, "all": true}')],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": LISTING},
    {"role": "assistant", "content": "And the other.", "tool_calls": [call(2, '{"path": "b"}')]},
    {"role": "tool", "tool_call_id": "call_2", "content": "hello"},
]
NEW: list[Message] = [
    {"role": "assistant", "content": "They say hello."},
    {"role": "user", "content": "Thanks."},
]
TOOLS = [tool("read_file", "Reads.", path="string"), tool("shell", cmd="string"), tool("stop")]
Edit = Callable[[list[Message], list[dict[str, Any]]], Any]


def found(edit: Edit, past: list[Message] = PAST) -> Finding:
    messages, tools = copy.deepcopy([*past, *NEW]), copy.deepcopy(TOOLS)
    edit(messages, tools)
    finding = diagnose(Sent(Request(past, TOOLS)), Sent(Request(messages, tools)))
    assert finding is not None
    assert finding.layer == "request"
    assert finding.token is None
    return finding


def put(index: int, **fields: Any) -> Edit:
    return lambda messages, tools: messages[index].update(fields)


def replaced(index: int, old: str, new: str) -> Edit:
    def edit(messages, tools):
        messages[index]["content"] = messages[index]["content"].replace(old, new)

    return edit


def arguments(text: Any) -> Edit:
    return lambda messages, tools: messages[2]["tool_calls"][0]["function"].update(arguments=text)


def drop(start: int, end: int, *instead: Message) -> Edit:
    def edit(messages, tools):
        messages[start:end] = instead

    return edit


def in_tools(change: Callable[[list[dict[str, Any]]], Any]) -> Edit:
    return lambda messages, tools: change(tools)


def described(text: str) -> Edit:
    return in_tools(lambda tools: tools[1]["function"].update(description=text))


def test_an_extension_is_no_break():
    assert diagnose(Sent(Request(PAST, TOOLS)), Sent(Request([*PAST, *NEW], TOOLS))) is None
    assert diagnose(Sent(Request(PAST, TOOLS)), Sent(Request(PAST, TOOLS))) is None


@pytest.mark.parametrize(
    ("cause", "edit"),
    [
        ("clock", replaced(0, "10:00:00", "10:00:07")),
        ("counter", lambda m, t: m[0].update(content=m[0]["content"] + "\nStep 3 of 9")),
        ("whitespace", replaced(0, "\n", "\r\n")),
        ("whitespace", replaced(3, "\n", "\n\n")),
        ("unicode-normalisation", replaced(1, "é", "e\u0301")),
        ("content-parts-vs-string", put(1, content=[{"type": "text", "text": PAST[1]["content"]}])),
        ("thinking-stripped", lambda m, t: m[2].pop("reasoning_content")),
        ("thinking-stripped", put(2, reasoning_content="")),
        ("json-key-order", arguments('{"all": true, "lines": 5, "path": "a.txt"}')),
        ("re-serialised-arguments", arguments('{"path":"a.txt","lines":5,"all":true}')),
        ("re-serialised-arguments", arguments('{"path": "a.txt", "lines": 5.0, "all": true}')),
        ("re-serialised-arguments", arguments("{'path': 'a.txt', 'lines': 5, 'all': True}")),
        ("re-serialised-arguments", arguments('{"path": "a.txt", "lines": 5, "all": "True"}')),
        ("re-serialised-arguments", arguments('{"path": "\\u0061.txt", "lines": 5, "all": true}')),
        ("history-edited", arguments('{"path": "c.txt", "lines": 5, "all": true}')),
        ("history-edited", put(2, content="I look at it.")),
        ("history-edited", put(1, content="What do the pictures say?")),
        ("history-pruned", put(3, content="[output omitted]")),
        ("history-pruned", put(3, content=LISTING[:200])),
        ("history-pruned", put(3, content="")),
        ("history-pruned", drop(2, 4)),
        ("history-pruned", drop(4, 8)),
        ("history-pruned", drop(2, 4, {"role": "user", "content": "[2 messages omitted]"})),
        ("compaction", drop(1, 6, {"role": "user", "content": "Summary of the work: a is read."})),
        ("compaction", drop(2, 6, {"role": "assistant", "content": "So far: a and b are read."})),
        ("tool-order", in_tools(lambda t: t.reverse())),
        ("tool-set-changed", in_tools(lambda t: t.pop())),
        ("tool-set-changed", in_tools(lambda t: t.pop(0))),
        ("tool-set-changed", in_tools(lambda t: t.append(tool("more")))),
        ("tool-set-changed", in_tools(lambda t: t.insert(0, tool("more")))),
        ("tool-set-changed", described("Runs a command and waits.")),
        ("whitespace", described("Does it. ")),
        ("template-option", in_tools(lambda t: t.clear())),
        (
            "tool-set-changed",
            in_tools(lambda t: t[1]["function"]["parameters"]["properties"].update(cwd={})),
        ),
        (
            "json-key-order",
            in_tools(lambda t: t[0].update(function=dict(reversed(t[0]["function"].items())))),
        ),
        ("history-edited", lambda m, t: m.insert(2, {"role": "user", "content": "Wait."})),
    ],
)
def test_a_cause(cause, edit):
    if cause == "counter":  # the earlier call has one, too
        past = [{**PAST[0], "content": SYSTEM + "\nStep 2 of 9"}, *PAST[1:]]
        assert found(edit_counter, past).cause == cause
    else:
        assert found(edit).cause == cause


def edit_counter(messages, tools):
    messages[0]["content"] = messages[0]["content"].replace("Step 2", "Step 3")


def test_system_messages_are_hoisted():
    late = {"role": "system", "content": "From now on speak French."}
    past = [*PAST[:4], late, *PAST[4:]]

    def hoist(messages, tools):
        messages.remove(late)
        messages[0]["content"] += "\n\n" + late["content"]

    assert found(hoist, past).cause == "system-hoist"


def test_messages_of_one_role_are_merged():
    past = [*PAST[:2], {"role": "user", "content": "All of them."}, *PAST[2:]]

    def merge(messages, tools):
        messages[1]["content"] += "\n\n" + messages.pop(2)["content"]

    assert found(merge, past).cause == "role-merge"


def test_what_is_said_names_the_place():
    finding = found(put(3, content="[output omitted]"))
    assert "message 3 (tool)" in finding.evidence
    assert "message 3 (tool)" in finding.mend
    finding = found(described("Runs a command and waits."))
    assert "tool 1 (shell)" in finding.evidence
    assert "'Does it.' became 'Runs a command and waits.'" in finding.evidence


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        ("image", {"type": "image_url", "image_url": {"url": "data:image/png;base64,DATA"}}),
        ("image", {"type": "input_image", "image_url": "data:image/png;base64,DATA"}),
        ("image", {"type": "image", "source": {"type": "base64", "data": "DATA"}}),
        ("audio", {"type": "input_audio", "input_audio": {"data": "DATA", "format": "wav"}}),
        ("file", {"type": "file", "file": {"file_data": "data:application/pdf;base64,DATA"}}),
    ],
)
def test_data_that_changed_is_told_by_size_and_hash(kind, part):
    def message(data):
        spelled = json.dumps(part).replace("DATA", base64.b64encode(data).decode())
        return {"role": "user", "content": [{"type": "text", "text": "See"}, json.loads(spelled)]}

    past = [PAST[0], message(b"data"), *PAST[2:]]
    finding = found(put(1, **message(b"new data")), past)
    hashes = " -> ".join(blake2b(d, digest_size=4).hexdigest() for d in (b"data", b"new data"))
    assert finding.cause == "history-edited"
    assert finding.evidence == (
        f"message 1 (user), content, part 1: {kind} changed (4 -> 8 bytes, hash {hashes})"
    )


def test_data_never_stands_in_the_evidence():
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8="}}
    finding = found(put(1, content=[image]))
    assert "[image, 5 bytes, hash " in finding.evidence
    assert "aGVsbG8" not in finding.evidence


def test_the_first_of_several_changes_counts():
    def edit(messages, tools):
        replaced(0, "10:00:00", "10:00:07")(messages, tools)
        put(3, content="[output omitted]")(messages, tools)

    assert found(edit).cause == "clock"


def test_options():
    was = Sent(Request(PAST, TOOLS, {"reasoning_effort": "low"}))
    finding = diagnose(was, Sent(Request([*PAST, *NEW], TOOLS, {"reasoning_effort": "high"})))
    assert finding is not None
    assert finding.cause == "template-option"
    assert "'low' became 'high'" in finding.evidence


def test_the_order_of_keys_in_the_body():
    was = Sent(Request(PAST, TOOLS, keys=("model", "tools", "input")))
    now = Sent(Request([*PAST, *NEW], TOOLS, keys=("model", "input", "tools")))
    finding = diagnose(was, now)
    assert finding is not None
    assert finding.cause == "input-before-tools"


def test_fields_that_no_prompt_shows_are_no_break():
    messages = copy.deepcopy([*PAST, *NEW])
    messages[2] |= {"refusal": None, "annotations": [], "audio": None}
    messages[1]["name"] = None
    assert diagnose(Sent(Request(PAST, TOOLS)), Sent(Request(messages, TOOLS))) is None


HOSTILE: list[Any] = [
    None,
    17,
    "text",
    [],
    {},
    {"role": None, "content": {"a": 1}},
    {"role": ["user"], "content": 3.5},
    {"role": "assistant", "tool_calls": "x"},
    {"role": "assistant", "tool_calls": [None, 3, {"function": None}, {"function": {"name": 4}}]},
    {"role": "user", "content": [None, 1, {"type": "image"}, {"type": "text", "text": 7}]},
    {"role": "user", "content": "\ud800 lone"},
    {"role": "user", "content": float("nan")},
    {"role": "assistant", "content": "x", "reasoning_content": {"a": [1]}},
    {"role": "assistant", "content": json.loads("[" * 200 + "]" * 200)},
]


@pytest.mark.parametrize("one", HOSTILE)
@pytest.mark.parametrize("other", HOSTILE)
def test_what_is_no_message(one, other):
    old, new = Sent(Request([PAST[0], one], [one])), Sent(Request([PAST[0], other], [other]))
    finding = diagnose(old, new)
    assert finding is None or finding.confidence <= 1
    if one is other:
        assert finding is None


def test_a_list_in_another_order_is_mended_by_its_order_and_keys_by_sorting_them():
    path = {"type": "string", "enum": ["a.txt", "b", "c"]}
    other = {**path, "enum": ["c", "b", "a.txt"]}
    turned = dict(reversed(path.items()))
    for after, mend in ((other, "tool 0 (read_file): keep the list's order"), (turned, None)):
        old, new = (copy.deepcopy(TOOLS) for _ in range(2))
        old[0]["function"]["parameters"]["properties"]["path"] = path
        new[0]["function"]["parameters"]["properties"]["path"] = after
        finding = diagnose(Sent(Request(PAST, old)), Sent(Request([*PAST, *NEW], new)))
        assert finding is not None
        assert finding.cause == "json-key-order"
        assert finding.mend == (mend or f"tool 0 (read_file): {CAUSES['json-key-order'].mend}")
