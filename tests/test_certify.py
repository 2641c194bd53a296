"""layout.certify: which templates keep what they have rendered."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from duramen.layout.certify.history import PROBES, certificate
from duramen.layout.chat_messages import template_tools
from duramen.layout.errors import TemplateError
from duramen.layout.template import ChatTemplate, Message
from duramen.layout.tokenizer import Tokenizer

TURN = "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
PROMPT = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
PLAIN = f"{{% for m in messages %}}{TURN}{{% endfor %}}{PROMPT}"
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

KEEP = ["chatml_tools", "Qwen-Qwen2.5-7B-Instruct", "Qwen3-Coder", "Kimi-K2-Instruct"]
STRIP = ["Qwen-Qwen3-0.6B", "StepFun3.5-Flash", "openbmb-MiniCPM5-1B", "GLM-4.7-Flash"]


def template_of(source: str) -> ChatTemplate:
    return ChatTemplate(source, {"bos_token": "", "eos_token": ""})


@pytest.fixture(scope="module")
def tokenizer(smollm2: Path, template_sources: dict[str, str]) -> Tokenizer:
    """One for all: what any of them spells is a control token."""
    return Tokenizer.load(smollm2, "\n".join([PLAIN, *template_sources.values()]))


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (PLAIN, None),
        (  # the turn that thought is rendered without its thinking once a user has spoken
            "{% for m in messages %}<|im_start|>{{ m.role }}\n"
            "{% if m.reasoning and not loop.nextitem %}<think>{{ m.reasoning }}</think>{% endif %}"
            "{{ m.content }}<|im_end|>\n{% endfor %}" + PROMPT,
            "thinking before a user message: '<think>I have seen them all.</think>They' became "
            "'They say hello.<|im_end|>\\n<|im_start|>us'",
        ),
        (  # an empty thought that only a prompt has
            PLAIN.replace("assistant\n{% endif", "assistant\n<think></think>{% endif"),
            "a reply before a user message: '<think></think>' became "
            "'They say hello.<|im_end|>\\n'",
        ),
        (  # the tools move to the last user message
            "{% for m in messages %}<|im_start|>{{ m.role }}\n"
            "{% if tools and m.role == 'user' and m == messages | selectattr('role', 'equalto', "
            "'user') | list | last %}{{ tools | length }} tools\n{% endif %}"
            "{{ m.content }}<|im_end|>\n{% endfor %}" + PROMPT,
            "a tool call: '1 tools\\nWhat do the files say?<|im_end|>' became "
            "'What do the files say?<|im_end|>\\n<|im_st'",
        ),
        ("{{ raise_exception('not today') }}", "no probe is accepted: the chat template refuses "
         "these messages: not today"),
        ("{{ messages[0].nothing.more }}", "no probe is accepted: the chat template refuses "
         "these messages: 'dict object' has no attribute 'nothing'"),
    ],
)  # fmt: skip
def test_what_breaks_is_named(tokenizer: Tokenizer, source: str, why: str | None) -> None:
    found = certificate(template_of(source), tokenizer)
    assert (found.keeps_history, found.why) == (why is None, why)


def test_a_probe_that_is_refused_is_skipped(tokenizer: Tokenizer) -> None:
    """No tools and no system message are known here."""
    refuses = "{% if tools or messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}"
    assert certificate(template_of(refuses + PLAIN), tokenizer).keeps_history


def test_arguments_count(tokenizer: Tokenizer) -> None:
    source = PLAIN.replace("assistant\n{%", "assistant\n{{ '<think>' if think }}{%")
    assert certificate(template_of(source), tokenizer).keeps_history
    assert not certificate(template_of(source), tokenizer, {"think": True}).keeps_history


def test_the_clock_stands_still(tokenizer: Tokenizer) -> None:
    assert certificate(template_of("{{ strftime_now('%H:%M') }}" + PLAIN), tokenizer).keeps_history


def test_real_templates(tokenizer: Tokenizer, template_sources: dict[str, str]) -> None:
    found = {
        name: certificate(template_of(source), tokenizer)
        for name, source in template_sources.items()
        if name in KEEP + STRIP
    }
    assert found["chatml_tools"].keeps_history
    assert [name for name in found if name in KEEP and not found[name].keeps_history] == []
    assert [name for name in found if name in STRIP and found[name].keeps_history] == []


def test_who_keeps_history_keeps_every_prompt(
    tokenizer: Tokenizer, template_sources: dict[str, str]
) -> None:
    """Slow twin: the prompts as plain text, one by one."""
    num_kept = 0
    for source in template_sources.values():
        template = template_of(source)
        if not certificate(template, tokenizer).keeps_history:
            continue
        for probe in PROBES:
            try:
                texts = prompts(template, template.prepared(probe.messages), probe.tools)
            except TemplateError:
                continue
            assert all(b.startswith(a) for a, b in pairwise(texts))
            num_kept += 1
    assert num_kept >= len(PROBES)


def prompts(
    template: ChatTemplate, messages: list[Message], tools: Sequence[Mapping[str, Any]]
) -> list[str]:
    ends = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    return [
        str(
            template.render(
                messages[:end], tools=template_tools(tools), add_generation_prompt=True, now=NOW
            )
        )
        for end in [*ends, len(messages)]
    ]
