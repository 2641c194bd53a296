"""Calls rendered from the call before, against each of them rendered and encoded whole."""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from why_cases import SYSTEM, TOOLS, ids_of, model_of

from duramen.experiments.layouts.model import Model
from duramen.experiments.opening import load_model
from duramen.experiments.trajectory import Call, Message, Sending
from duramen.experiments.why.rendering import (
    Rendered,
    Renderer,
    encode_text,
    template_arguments,
)
from duramen.layout.tokenizer import Tokenizer
from duramen.layout.tracked import TEMPLATE, Tracked

PIECES = ["plain words", "a\nb\n", " ", "<|im_end|>", "<|im_start|>system\n", "é", "7.5", "\n\n"]
CONTENT = st.lists(st.sampled_from(PIECES), min_size=1, max_size=4).map("".join)
HOIST = (
    "{{ '<|im_start|>system\n' }}{% for m in messages %}{% if m.role == 'system' %}"
    "{{ m.content }}{% endif %}{% endfor %}{{ '<|im_end|>\n' }}"
    "{% for m in messages %}{% if m.role != 'system' %}"
    "{{ '<|im_start|>' ~ m.role ~ '\n' ~ m.content ~ '<|im_end|>\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
BARE = (
    "{% for m in messages %}{{ m.content }}{{ ' ' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'answer:' }}{% endif %}"
)


@pytest.fixture(scope="module")
def model(smollm2: Path) -> Model:
    return load_model(smollm2, None)


@pytest.fixture(scope="module")
def models(model: Model, smollm2: Path) -> dict[str, Model]:
    tokenizer = Tokenizer.load(smollm2)
    ours = (files("duramen.configs") / "chatml_tools.jinja").read_text("utf-8")
    sources = {"ours": ours, "hoist": HOIST, "bare": BARE}
    return {name: model_of(tokenizer, source) for name, source in sources.items()}


def render(
    model: Model, messages: Sequence[Message], before: Rendered | None = None, **options: Any
) -> Rendered:
    call = Call(tuple(messages), None, sending=Sending(options=options))
    renderer = Renderer(model)
    return renderer.render(renderer.setting(TOOLS, call, 0.0), messages, before)


def check(model: Model, rendered: Rendered, messages: Sequence[Message]) -> None:
    whole = render(model, messages)
    assert rendered.text == whole.text
    assert rendered.text.runs == whole.text.runs
    assert rendered.token_ids.tolist() == whole.token_ids.tolist()
    assert rendered.token_ids.tolist() == ids_of(model, messages, TOOLS)
    for character, token in rendered.anchors:
        head = model.tokenizer.encode(rendered.text[:character]).token_ids
        assert head == rendered.token_ids[:token].tolist()


@pytest.mark.parametrize("name", ["ours", "hoist", "bare"])
@given(contents=st.lists(CONTENT, min_size=1, max_size=9), cut=st.integers(0, 8))
def test_a_call_that_extends_the_one_before(
    models: dict[str, Model], name: str, contents: list[str], cut: int
) -> None:
    model = models[name]
    roles = [
        "system",
        "user",
        "assistant",
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
        "user",
    ]
    messages: list[Message] = [
        {"role": role, "content": content} for role, content in zip(roles, contents, strict=False)
    ]
    before = render(model, messages[: max(cut, 1)])
    check(model, render(model, messages, before), messages)


@pytest.mark.parametrize("name", ["ours", "hoist", "bare"])
@given(contents=st.lists(CONTENT, min_size=2, max_size=6), at=st.integers(0, 5), new=CONTENT)
def test_a_call_that_edits_the_past(
    models: dict[str, Model], name: str, contents: list[str], at: int, new: str
) -> None:
    model = models[name]
    old: list[Message] = [
        {"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(contents)
    ]
    edited = [*old]
    edited[at % len(old)] = {**old[at % len(old)], "content": new}
    check(model, render(model, edited, render(model, old)), edited)
    shorter = old[: at % len(old) + 1]
    check(model, render(model, shorter, render(model, old)), shorter)


def test_another_setting_is_rendered_anew(model: Model) -> None:
    source = (
        "{{ '<|im_start|>' ~ (effort or 'low') }}{% for m in messages %}{{ m.content }}{% endfor %}"
    )
    other = model_of(model.tokenizer, source)
    messages = [SYSTEM]
    low = render(other, messages)
    high = render(other, messages, low, chat_template_kwargs={"effort": "high"})
    assert str(low.text).startswith("<|im_start|>low")
    assert str(high.text).startswith("<|im_start|>high")


def test_what_a_template_gets_of_a_request() -> None:
    options: dict[str, Any] = {
        "chat_template_kwargs": {"enable_thinking": False},
        "reasoning_effort": "high",
        "tool_choice": "none",
        "messages": [],
        "seed": None,
    }
    assert template_arguments(options) == {"reasoning_effort": "high", "enable_thinking": False}


def test_a_reply_is_spelled_up_to_its_end(model: Model) -> None:
    messages: list[Message] = [SYSTEM, {"role": "user", "content": "Where?"}]
    rendered = render(model, messages)
    reply: Message = {"role": "assistant", "content": "On the pier."}
    ids = Renderer(model).reply_ids(rendered, reply)
    assert model.tokenizer.decode(ids) == "On the pier.<|im_end|>"
    whole = render(model, [*messages, reply, {"role": "user", "content": "And now?"}])
    assert whole.token_ids.tolist()[: len(rendered.token_ids) + len(ids)] == [
        *rendered.token_ids.tolist(),
        *ids,
    ]
    assert str(Renderer(model).closed_text(rendered, reply)).endswith("pier.<|im_end|>\n")


def test_a_reply_under_a_template_that_is_not_local(models: dict[str, Model]) -> None:
    model = models["hoist"]
    assert not model.template.is_local
    messages: list[Message] = [SYSTEM, {"role": "user", "content": "Where?"}]
    reply: Message = {"role": "assistant", "content": "On the pier."}
    ids = Renderer(model).reply_ids(render(model, messages), reply)
    assert model.tokenizer.decode(ids) == "On the pier.<|im_end|>"


def test_raw_text_has_its_control_tokens(model: Model) -> None:
    text = "<|im_start|>user\nHi<|im_end|>\n"
    rendered = encode_text(model.tokenizer, text)
    tracked = Tracked(text, ((len(text), TEMPLATE),))
    assert rendered.token_ids.tolist() == model.tokenizer.encode(tracked).token_ids
    assert rendered.anchor(0) == (0, 0)
    assert rendered.anchor(1) == (len("<|im_start|>"), 1)
    assert encode_text(model.tokenizer, "").token_ids.tolist() == []
