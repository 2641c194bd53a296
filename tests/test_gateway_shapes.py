"""Which requests are refused, in which words; and that the description says the same."""

import json
import warnings
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.serving.gateway.errors import ApiError
from duramen.serving.gateway.openapi import ERRORS, openapi
from duramen.serving.gateway.shapes import (
    MAX_DEPTH,
    check_chat,
    check_completion,
    check_tokenize,
    decode_body,
)

HI = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "look"}}


def said(*messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"messages": list(messages) or [HI], **fields}


def calls(**call: Any) -> dict[str, Any]:
    return said({"role": "assistant", "content": None, "tool_calls": [call]})


def refusal(check: Any, body: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        check(body)
    error = caught.value
    assert (error.status, error.type) == (400, "invalid_request_error")
    return error


def nested(depth: int) -> bytes:
    """An object with lists inside one another: `depth` levels."""
    return b'{"a":' + b"[" * (depth - 1) + b"1" + b"]" * (depth - 1) + b"}"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"{}", {}),
        (b' {"a": 1.5, "b": [null, true, -0.0]} ', {"a": 1.5, "b": [None, True, -0.0]}),
        (b'{"a": 1, "a": 2}', {"a": 2}),  # the last one holds, as in Python's json
        (rb'{"a": "\ud83d\ude00"}', {"a": "\N{GRINNING FACE}"}),
        (rb'{"a": "\u0000"}', {"a": "\x00"}),
        (b'{"a": 18446744073709551616}', {"a": 2**64}),
        (b'{"a": 1e-999999999}', {"a": 0.0}),
    ],
)
def test_json_objects_are_decoded_as_python_does(data, expected):
    assert decode_body(data) == expected == json.loads(data)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"{} {}", "not valid JSON"),
        (b'{"a": 1,}', "not valid JSON"),
        (b"{'a': 1}", "not valid JSON"),
        (b"\xef\xbb\xbf{}", "not valid JSON"),
        ('{"a": 1}'.encode("utf-16"), "not valid JSON"),
        (b'{"a": NaN}', "not valid JSON"),
        (b'{"a": Infinity}', "not valid JSON"),
        (b'{"a": -Infinity}', "not valid JSON"),
        (b'{"a": 1e400}', "not valid JSON"),
        (b'{"a": 1e999999999999999999999}', "not valid JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not valid JSON"),
        (b'{"a": 01}', "not valid JSON"),
        (b'{"a": "\xff"}', "not valid JSON"),
        (b'{"a": "\xed\xa0\x80"}', "not valid JSON"),  # a surrogate, encoded
        (rb'{"a": "\ud800"}', "not valid JSON"),
        (rb'{"a": "\ud800 and on, far from the end"}', "not valid JSON"),
        (rb'{"a": "\ud800\u0041"}', "not valid JSON"),
        (rb'{"a": "\udc00"}', "not valid JSON"),
        (rb'{"\ud800": 1}', "not valid JSON"),
        (b'{"a": "\n"}', "not valid JSON"),
        (b"[]", "must be a JSON object, not an array"),
        (b"null", "must be a JSON object, not null"),
        (b"true", "must be a JSON object, not a boolean"),
        (b"1", "must be a JSON object, not a number"),
        (b'"{}"', "must be a JSON object, not a string"),
        (nested(MAX_DEPTH + 1), "more than 128 levels deep"),
        (nested(10_000), "more than 128 levels deep"),
        (b"[" * 1_000_000, "more than 128 levels deep"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "more than 128 levels deep"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_other_bodies_are_refused(data, words):
    error = refusal(decode_body, data)
    assert words in str(error)
    assert error.param is None


def test_bodies_may_nest_up_to_the_limit():
    assert list(decode_body(nested(MAX_DEPTH))) == ["a"]


def levels(value: Any) -> int:
    children = value.values() if isinstance(value, dict) else value
    if not isinstance(value, dict | list):
        return 0
    return 1 + max(map(levels, children), default=0)


@given(
    st.recursive(st.none(), lambda v: st.lists(v, min_size=1, max_size=2) | st.builds(dict, a=v)),
    st.integers(MAX_DEPTH - 4, MAX_DEPTH + 4),
)
def test_the_depth_is_counted_as_one_would_by_hand(value, depth):
    inner = levels(value)
    for _ in range(depth - inner - 1):
        value = [value]
    body = {"a": value}
    data = json.dumps(body).encode()
    if levels(body) <= MAX_DEPTH:
        assert decode_body(data) == body
    else:
        refusal(decode_body, data)


@pytest.mark.parametrize(
    "body",
    [
        said(),
        said(model=None, stream=None, n=None, stop=None, temperature=None, seed=None),
        said({"role": "user"}),
        said({"role": "assistant", "content": None}),
        said({"role": "user", "content": [{"type": "text", "text": "a"}, "b"]}),
        said({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}),
        said({"role": "critic", "content": "a role of the template's own"}),
        calls(id="c1", type="function", function={"name": "f", "arguments": "{broken"}),
        calls(function={"name": "f", "arguments": {"a": 1}}),
        calls(function={"name": "f", "arguments": None}),
        calls(function={"name": "f"}),
        said({"role": "tool", "content": "x", "tool_call_id": "c1", "name": "f"}),
        said({"role": "assistant", "content": "x", "reasoning": "hm", "reasoning_content": None}),
        said({"role": "assistant", "content": "x", "refusal": None, "audio": None}),
        said(tools=[TOOL], tool_choice="required"),
        said(tools=[TOOL], tool_choice={"type": "function", "function": {"name": "look"}}),
        said(tools=[{"function": {"name": "f", "parameters": {"type": "object"}, "strict": True}}]),
        said(tools=[]),  # the engine's to refuse
        said(stream=True, stream_options={"include_usage": True, "continuous_usage_stats": True}),
        said(stream_options={}),
        said(n=128, max_tokens=1, max_completion_tokens=2**40, seed=-(2**63), temperature=0),
        said(logprobs=True, top_logprobs=-1, stop=["a", "b"], top_p=1, cache_salt="x" * 128),
        said(response_format={"type": "json_object"}, chat_template_kwargs={"a": [1]}),
        said(kv_transfer_params=None, priority="any", top_k="any", unknown=object()),
    ],
    ids=lambda body: repr(body)[:60],
)
def test_requests_that_pass_and_stay_as_they_are(body):
    before = repr(body)
    check_chat(body)
    assert repr(body) == before


REFUSED_BY_VLLM = [
    ({}, "messages", "is required"),
    ({"messages": None}, "messages", "expected `array`, got `null`"),
    ({"messages": {}}, "messages", "expected `array`, got `object`"),
    ({"messages": ["hi"]}, "messages[0]", "expected `object`, got `str`"),
    (said(HI, {"content": "x"}), "messages[1].role", "is required"),
    (said(HI, {"role": 5, "content": "x"}), "messages[1].role", "expected `str`, got `int`"),
    (said({**HI, "content": 5}), "messages[0].content", "expected `str | array | null`, got `int`"),
    (said({**HI, "name": 5}), "messages[0].name", "expected `str | null`, got `int`"),
    (
        said({"role": "tool", "content": "x", "tool_call_id": 5}),
        "messages[0].tool_call_id",
        "expected `str | null`, got `int`",
    ),
    (calls(), "messages[0].tool_calls[0].function", "is required"),
    (calls(function={}), "messages[0].tool_calls[0].function.name", "is required"),
    (
        calls(function={"name": "f", "arguments": [1]}),
        "messages[0].tool_calls[0].function.arguments",
        "expected `str | object | null`, got `array`",
    ),
    (
        calls(id=5, function={"name": "f", "arguments": ""}),
        "messages[0].tool_calls[0].id",
        "expected `str | null`, got `int`",
    ),
    (said(model=5), "model", "expected `str | null`, got `int`"),
    (said(stream="x"), "stream", "expected `bool | null`, got `str`"),
    (said(stream=2), "stream", "expected `bool | null`, got `int`"),
    (
        said(stream=True, stream_options={"include_usage": "x"}),
        "stream_options.include_usage",
        "expected `bool | null`, got `str`",
    ),
    (
        said(stream_options={"include_usage": True}),
        "stream_options",
        "is only allowed with stream: true",
    ),
    (said(n="x"), "n", "expected `int | null`, got `str`"),
    (said(n=1.5), "n", "expected `int | null`, got `float`"),
    (said(stop=5), "stop", "expected `str | array | null`, got `int`"),
    (said(stop=["a", 5]), "stop[1]", "expected `str`, got `int`"),
    (said(temperature="x"), "temperature", "expected `float | null`, got `str`"),
    (said(temperature=10**400), "temperature", "number out of range"),
    (said(top_p=[]), "top_p", "expected `float | null`, got `array`"),
    (said(seed=2**63), "seed", "expected `int` <= 9223372036854775807"),
    (said(seed=1.5), "seed", "expected `int | null`, got `float`"),
    (said(response_format="json"), "response_format", "expected `object | null`, got `str`"),
    (said(cache_salt=""), "cache_salt", "expected `str` of length >= 1"),
    (said(cache_salt="x" * 129), "cache_salt", "expected `str` of length <= 128"),
    (said(return_token_ids=5), "return_token_ids", "expected `bool | null`, got `int`"),
    (said(tools=5), "tools", "expected `array | null`, got `int`"),
    (said(tools=[{}]), "tools[0].function", "is required"),
    (said(tools=[{"type": "x", "function": {"name": "a"}}]), "tools[0].type", "invalid enum value"),
    (said(tools=[{"function": {}}]), "tools[0].function.name", "is required"),
    (
        said(tools=[{"function": {"name": "f", "parameters": 5}}]),
        "tools[0].function.parameters",
        "expected `object | null`, got `int`",
    ),
    (said(tools=[TOOL], tool_choice="x"), "tool_choice", "invalid enum value"),
    (said(tools=[TOOL], tool_choice=5), "tool_choice", "expected `str | object | null`"),
    (said(tools=[TOOL], tool_choice={}), "tool_choice.function", "is required"),
    (
        said(tools=[TOOL], tool_choice={"function": {}}),
        "tool_choice.function.name",
        "is required",
    ),
    (said(max_tokens="x"), "max_tokens", "expected `int | null`, got `str`"),
    (said(logprobs="x"), "logprobs", "expected `bool | null`, got `str`"),
    (said(top_logprobs="x"), "top_logprobs", "expected `int | null`, got `str`"),
    (said(chat_template_kwargs=5), "chat_template_kwargs", "expected `object | null`, got `int`"),
    (said(reasoning_effort=5), "reasoning_effort", "expected `str | null`, got `int`"),
    (said(kv_transfer_params=5), "kv_transfer_params", "is set by the gateway: leave it out"),
]

REFUSED_BY_OPENAI = [  # vLLM's request class takes these, or turns them into another type
    ({"messages": []}, "messages", "expected `array` of length >= 1"),
    (said({**HI, "role": ""}), "messages[0].role", "expected `str` of length >= 1"),
    (said({**HI, "content": {}}), "messages[0].content", "expected `str | array | null`"),
    (said({**HI, "content": [5]}), "messages[0].content[0]", "expected `str | object`, got `int`"),
    (said({**HI, "tool_calls": [5]}), "messages[0].tool_calls[0]", "expected `object`, got `int`"),
    (said({**HI, "reasoning": 5}), "messages[0].reasoning", "expected `str | null`, got `int`"),
    (said(stream="yes"), "stream", "expected `bool | null`, got `str`"),
    (said(n=0), "n", "expected `int` >= 1"),
    (said(n=129), "n", "expected `int` <= 128"),
    (said(n=1.0), "n", "expected `int | null`, got `float`"),
    (said(n=True), "n", "expected `int | null`, got `bool`"),
    (said(temperature="1"), "temperature", "expected `float | null`, got `str`"),
    (said(max_tokens=0), "max_tokens", "expected `int` >= 1"),
    (said(max_completion_tokens=0), "max_completion_tokens", "expected `int` >= 1"),
    (said(kv_transfer_params={}), "kv_transfer_params", "is set by the gateway: leave it out"),
]


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [*REFUSED_BY_VLLM, *REFUSED_BY_OPENAI],
    ids=lambda value: repr(value)[:50],
)
def test_chat_requests_that_are_refused(body, param, words):
    error = refusal(check_chat, body)
    assert error.param == param
    assert str(error).startswith(f"{param}: {words}")


@pytest.fixture(scope="module")
def vllm_takes():
    """Whether vLLM's own request class takes a body; it changes bodies, so it gets copies."""
    with warnings.catch_warnings(action="ignore"):  # theirs, at import
        protocol = pytest.importorskip(
            "vllm.entrypoints.openai.chat_completion.protocol", reason="vLLM is not installed"
        )

    def takes(body: dict[str, Any]) -> bool:
        try:
            protocol.ChatCompletionRequest.model_validate(json.loads(json.dumps(body)))
        except Exception:  # of many kinds: its own, pydantic's, a TypeError for null messages
            return False
        return True

    return takes


def test_vllm_refuses_what_is_said_to_be_its_refusal(vllm_takes):
    taken = [body for body, _, _ in REFUSED_BY_VLLM if vllm_takes(body)]
    assert taken == []
    assert vllm_takes(said())


@pytest.mark.parametrize(
    "prompt", ["a", ["a", "b"], [1, 2], [[1], [2, 3]], [[]]], ids=lambda prompt: repr(prompt)
)
def test_prompts_of_text_completions(prompt):
    check_completion({"prompt": prompt, "max_tokens": 0, "logprobs": 3, "echo": True})


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        ({}, "prompt", "is required"),
        ({"prompt": None}, "prompt", "expected `str | array`, got `null`"),
        ({"prompt": ""}, "prompt", "must not be empty"),
        ({"prompt": []}, "prompt", "must not be empty"),
        ({"prompt": [-1]}, "prompt[0]", "expected `int` >= 0"),
        ({"prompt": [[1], [-1]]}, "prompt[1][0]", "expected `int` >= 0"),
        ({"prompt": [1.5]}, "prompt[0]", "expected `int | str | array`, got `float`"),
        ({"prompt": [True]}, "prompt[0]", "expected `int | str | array`, got `bool`"),
        ({"prompt": ["a", 1]}, "prompt", "must be all texts"),
        ({"prompt": [[1], "a"]}, "prompt", "must be all texts"),
        ({"prompt": "a", "logprobs": True}, "logprobs", "expected `int | null`, got `bool`"),
        ({"prompt": "a", "stream_options": {"include_usage": True}}, "stream_options", "is only"),
        ({"prompt": "a", "kv_transfer_params": {"a": 1}}, "kv_transfer_params", "is set by"),
    ],
)
def test_text_completions_that_are_refused(body, param, words):
    error = refusal(check_completion, body)
    assert error.param == param
    assert str(error).startswith(f"{param}: {words}")


def test_tokenize_takes_a_prompt_or_messages():
    check_tokenize({"prompt": ""})
    check_tokenize({"messages": [HI], "tools": [TOOL]})
    assert refusal(check_tokenize, {}).param == "prompt"
    assert refusal(check_tokenize, {"prompt": ["a"]}).param == "prompt"
    assert refusal(check_tokenize, {"messages": [], "prompt": "a"}).param == "messages"


CHECKS = {
    "ChatRequest": check_chat,
    "CompletionRequest": check_completion,
    "TokenizeChatRequest": check_tokenize,
}
SCALARS = [None, True, False, 0, 1, -1, 129, 1.5, 2**63, "", "a", "none"]
LISTS = [[], ["a"], [1], [[1]], ["a", 1], [[]], [HI], [TOOL], [{"role": ""}]]
OBJECTS = [{}, {"a": 1}, {"include_usage": True}, {"function": {"name": "f"}}]
WRONG_MESSAGES = [[{"role": "a", "content": [1]}], [{"role": "a", "name": 1}]]
VALUES = st.sampled_from([*SCALARS, *LISTS, *OBJECTS, *WRONG_MESSAGES])
SCHEMAS = openapi()["components"]["schemas"]


@pytest.mark.parametrize("name", CHECKS)
@given(data=st.data())
def test_the_description_and_the_checks_agree(name, data):
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema comes with vLLM")
    fields = st.sampled_from(list(SCHEMAS[name]["properties"]))
    needed = {field: [HI] if field == "messages" else "a" for field in SCHEMAS[name]["required"]}
    body = needed | data.draw(st.dictionaries(fields, VALUES, max_size=3))
    root = {"$ref": f"#/components/schemas/{name}", "components": {"schemas": SCHEMAS}}
    is_valid = jsonschema.Draft202012Validator(root).is_valid(body)
    try:
        CHECKS[name](body)
    except ApiError:
        assert not is_valid
    else:
        assert is_valid


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        found = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return found.union(*map(references, value.values()))
    if isinstance(value, list):
        return set().union(*map(references, value))
    return set()


def test_every_reference_leads_somewhere_and_everything_is_used():
    description = openapi()
    kinds = description["components"]
    there = {
        f"#/components/{kind}/{name}" for kind in ("schemas", "responses") for name in kinds[kind]
    }
    assert references(description) == there


def test_the_description_is_plain_json_and_names_every_route():
    description = openapi()
    assert json.loads(json.dumps(description)) == description
    operations = {(method, path) for path, item in description["paths"].items() for method in item}
    assert operations == {
        ("post", "/v1/chat/completions"),
        ("post", "/v1/completions"),
        ("post", "/tokenize"),
        ("get", "/v1/models"),
        ("get", "/v1/models/{model_id}"),
        ("get", "/v1/duramen/sessions"),
        ("get", "/v1/duramen/sessions/{session_id}"),
        ("delete", "/v1/duramen/sessions/{session_id}"),
        ("get", "/health"),
        ("get", "/metrics"),
        ("get", "/openapi.json"),
    }
    chat = description["paths"]["/v1/chat/completions"]["post"]
    assert set(chat["responses"]) == {"200", *ERRORS}
    assert set(chat["responses"]["200"]["content"]) == {"application/json", "text/event-stream"}


def test_an_error_has_the_shape_that_is_described():
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema comes with vLLM")
    error = refusal(check_chat, {})
    jsonschema.validate(error.body, SCHEMAS["Error"])
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"detail": "x"}, SCHEMAS["Error"])
