"""Conversations and checks that the tests of layout.transcript share."""

from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from random import Random
from typing import Any

import pytest

from duramen.layout.template import ChatTemplate, Message
from duramen.layout.tokenizer import Tokenizer
from duramen.layout.transcript import Frozen, Transcript
from duramen.layout.zones import Prompt, Zone

CHATML = (files("duramen.configs") / "chatml_tools.jinja").read_text("utf-8")
TOOL = {"type": "function", "function": {"name": "read", "description": "Read a file"}}
WORDS = ["alpha", " beta", "\n", "\n\n", "  ", ".", "日本", "don't", "{}", "x", "<|", "é"]

# Keeps the thinking of the last reply only: what was sent before changes when a user speaks.
FORGETS = (
    "{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'user' %}"
    "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.thinking and loop.index0 > ns.last %}[{{ m.thinking }}]{% endif %}"
    "{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

Encode = Callable[[str], list[int]]


@pytest.fixture(scope="session")
def smollm2_tokenizer(smollm2: Path) -> Tokenizer:
    return Tokenizer.load(smollm2, CHATML)


@pytest.fixture
def started(smollm2_tokenizer: Tokenizer) -> Transcript:
    transcript = Transcript(smollm2_tokenizer, ChatTemplate(CHATML))
    transcript.start([user("Hi")])
    return transcript


def words(random: Random) -> str:
    return "".join(random.choice(WORDS) for _ in range(random.randint(0, 6)))


def user(content: str) -> Message:
    return {"role": "user", "content": content}


def assistant(content: str, **more: Any) -> Message:
    return {"role": "assistant", "content": content, **more}


def whole(template: ChatTemplate, messages: Sequence[Message], tools: Sequence[Any] = ()) -> str:
    return str(template.render(messages, tools=tools, add_generation_prompt=True))


def check_prompt(prompt: Prompt, transcript: Transcript) -> None:
    """Spans partition the prompt; zones only descend in authority."""
    assert list(prompt.token_ids) == list(transcript.token_ids)
    position = 0
    for span in prompt.spans:
        assert span.start == position <= span.end
        position = span.end
    assert position == len(prompt.token_ids)
    zones = [span.zone for span in prompt.spans]
    assert zones == sorted(zones)


def common(a: Sequence[int], b: Sequence[int]) -> int:
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    return n


def twin(transcript: Transcript, **changes: Any) -> Transcript:
    """A new transcript with the same settings."""
    names = ["tokenizer", "template", "tools", "now", "arguments", "independent_seams"]
    names += ["turn_end_ids", "history"]
    return Transcript(**{name: getattr(transcript, name) for name in names} | changes)


def frozen(transcript: Transcript, num_reply_ids: int) -> Frozen:
    root = [span.end for span in transcript._stream.spans if span.zone is Zone.ROOT]
    return Frozen(
        list(transcript.token_ids),
        list(transcript.messages),
        num_reply_ids,
        transcript.generation_prompt,
        max(root, default=0),
        transcript.num_calls,
        transcript._replies[:-1],
    )


def sampled_as(tokenizer: Tokenizer, random: Random, content: str) -> tuple[list[int], str | None]:
    """Ids for `content`, spelled in odd pieces, with one of the endings; and the stop string."""
    cut = random.randint(0, len(content))
    ids = [*tokenizer.encode_text(content[:cut]), *tokenizer.encode_text(content[cut:])]
    closers = sorted(tokenizer.eos_ids & tokenizer.control_ids) or sorted(tokenizer.control_ids)
    match random.choice(["eos", "length", "stop", "control"]):
        case "eos" if closers:
            return [*ids, closers[0]], None
        case "control" if closers:
            return [*ids, random.choice(sorted(tokenizer.control_ids))], None
        case "stop":
            return [*ids, *tokenizer.encode_text("\nSTOP")], "STOP"
    return ids, None
