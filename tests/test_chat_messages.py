"""OpenAI messages in the form that templates read, odd ones included."""

import pytest

from duramen.layout.chat_messages import template_messages, template_tools
from duramen.layout.errors import TemplateError


def prepared(message, *, takes_parts=False, knows_developer=True):
    [found] = template_messages([message], takes_parts=takes_parts, knows_developer=knows_developer)
    return found


def call(arguments):
    return {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"a": 1}', {"a": 1}),
        ({"a": 1}, {"a": 1}),
        ("", {}),
        (None, {}),
        ("[1]", {}),  # vLLM wants an object
        ('{"a": ', {}),
        ('{"a":' * 5000 + "1" + "}" * 5000, {}),  # deeper than a parser goes
    ],
)
def test_tool_arguments_become_an_object(arguments, expected):
    message = {"role": "assistant", "content": None, "tool_calls": [call(arguments)]}
    assert prepared(message)["tool_calls"][0]["function"]["arguments"] == expected
    assert message["tool_calls"][0] == call(arguments)


def test_content_takes_the_form_that_the_template_reads():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": None}, "b"]
    as_parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert prepared({"role": "user", "content": parts})["content"] == "a\nb"
    assert prepared({"role": "user", "content": parts}, takes_parts=True)["content"] == as_parts
    assert prepared({"role": "user", "content": None})["content"] == ""
    tool = {"role": "tool", "tool_call_id": "1", "content": parts}
    assert prepared(tool, takes_parts=True)["content"] == "a\nb"


def test_other_fields():
    message = {"role": "assistant", "content": "x", "reasoning_content": "why", "tool_calls": []}
    assert prepared(message) == {
        "role": "assistant", "content": "x", "reasoning": "why", "reasoning_content": "why",
    }  # fmt: skip
    developer = {"role": "developer", "content": "x", "name": "n", "extra": 1}
    assert prepared(developer, knows_developer=False) == {
        "role": "system", "content": "x", "name": "n",
    }  # fmt: skip
    assert prepared(developer)["role"] == "developer"


def test_tools_have_vllms_fields_in_its_order():
    tool = {"function": {"strict": True, "name": "f", "vendor": 1}, "type": "function"}
    [found] = template_tools([tool])
    assert list(found) == ["type", "function"]
    assert list(found["function"].items()) == [
        ("name", "f"), ("description", None), ("parameters", None), ("strict", True),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "message",
    [
        "x",
        {"role": "user", "content": 5},
        {"role": "user", "content": [5]},
        {"role": "user", "content": [{"type": "text", "text": 5}]},
        {"role": "assistant", "content": "", "tool_calls": 5},
    ],
)
def test_what_is_no_message_is_one_line(message):
    with pytest.raises(TemplateError):
        prepared(message)
