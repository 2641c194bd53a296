"""Rendered and encoded calls: what a template, a tokenizer or a client does to the past."""

import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_diagnose_requests import NEW, PAST, TOOLS, tool

from duramen.layout.chat_messages import template_tools
from duramen.layout.diagnose.diagnose import diagnose
from duramen.layout.diagnose.sent import Finding, Request, Sent
from duramen.layout.template import ChatTemplate
from duramen.layout.tokenizer import Tokenizer

TURN = "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
PROMPT = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
PLAIN = "{% for m in messages %}" + TURN + "{% endfor %}" + PROMPT
STRIPS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content and loop.last %}<think>\n{{ m.reasoning_content }}\n</think>\n\n"
    "{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}" + PROMPT
)
NO_THINKING = PLAIN.replace("assistant\n{% endif", "assistant\n<think>\n\n</think>\n\n{% endif")
OPENS = PLAIN.replace("assistant\n{% endif", "assistant\n<think>\n{% endif")
HOISTS = (
    "<|im_start|>system\n{% for m in messages if m.role == 'system' %}{{ m.content }}\n{% endfor %}"
    "<|im_end|>\n{% for m in messages if m.role != 'system' %}" + TURN + "{% endfor %}" + PROMPT
)
MERGES = (
    "{% for m in messages %}{% if loop.previtem and loop.previtem.role == m.role %}\n"
    "{% else %}<|im_start|>{{ m.role }}\n{% endif %}{{ m.content }}"
    "{% if not (loop.nextitem and loop.nextitem.role == m.role) %}<|im_end|>\n{% endif %}"
    "{% endfor %}" + PROMPT
)
TOOLS_LAST = (
    "{% for m in messages %}{% if loop.last and tools %}<tools>{{ tools | tojson }}</tools>\n"
    "{% endif %}" + TURN + "{% endfor %}" + PROMPT
)
TOOLS_FIRST = "<tools>{{ tools | tojson }}</tools>\n" + PLAIN
CLOCK = "<|im_start|>system\nToday: {{ strftime_now('%d %B %Y') }}<|im_end|>\n" + PLAIN
EFFORT = "Reasoning: {{ reasoning_effort }}\n" + PLAIN
TRIMS = PLAIN.replace("{{ m.content }}", "{{ m.content | trim }}")
DROPS = PLAIN.replace("in messages", "in messages[-3:]")
NOW = datetime.datetime(2026, 12, 1, 10, tzinfo=datetime.UTC)

Message = dict[str, Any]
USER: Message = {"role": "user", "content": "Say hello, please."}
SYSTEM: Message = {"role": "system", "content": "Be brief."}
HELLO: Message = {"role": "assistant", "content": "Hello there, friend."}
MORE: Message = {"role": "user", "content": "And again."}


@pytest.fixture(scope="module")
def tokenizer(smollm2: Path) -> Tokenizer:
    return Tokenizer.load(smollm2, "<|im_start|><|im_end|>")


class Caller:
    """Sends messages as a client without ids does."""

    def __init__(self, tokenizer: Tokenizer, source: str) -> None:
        self.tokenizer = tokenizer
        self.template = ChatTemplate(source, {"bos_token": "<s>", "eos_token": "</s>"})

    def sent(
        self,
        messages: list[Message],
        reply: str | None = None,
        tools: Any = (),
        now: datetime.datetime = NOW,
        **options: Any,
    ) -> Sent:
        text = self.template.render(
            self.template.prepared(messages),
            tools=template_tools(tools),
            add_generation_prompt=True,
            now=now,
            arguments=options,
        )
        ids = self.tokenizer.encode(text).token_ids
        reply_ids = None if reply is None else list(self.tokenizer.full.encode(reply).ids)
        return Sent(Request(messages, tools, options), text, ids, reply_ids)

    def found(self, before: Sent, after: Sent) -> Finding:
        """With every layer known: its token is the first that differs."""
        finding = diagnose(before, after, self.tokenizer)
        assert finding is not None
        expected = [*(before.token_ids or ()), *(before.reply_ids or ())]
        pairs = enumerate(zip(expected, after.token_ids or (), strict=False))
        assert finding.token == next(i for i, (a, b) in pairs if a != b)
        return finding


def told(finding: Finding) -> tuple[str, str]:
    return finding.layer, finding.cause


REPLY = "Hello there, friend.<|im_end|>"


def test_an_extension_is_no_break(tokenizer):
    caller = Caller(tokenizer, PLAIN)
    before = caller.sent([SYSTEM, USER], REPLY)
    after = caller.sent([SYSTEM, USER, HELLO, MORE])
    assert diagnose(before, after, tokenizer) is None
    assert diagnose(before, caller.sent([SYSTEM, USER]), tokenizer) is None
    for layer in ("request", "text", "token_ids"):
        known = [Sent(**{layer: getattr(one, layer)}) for one in (before, after)]
        assert diagnose(*known) is None


@pytest.mark.parametrize(
    ("source", "before", "reply", "after", "expected"),
    [
        (
            STRIPS,
            [USER],
            "<think>\nA greeting.\n</think>\n\n" + REPLY,
            [USER, {**HELLO, "reasoning_content": "A greeting."}, MORE],
            ("text", "thinking-stripped"),
        ),
        (
            PLAIN,
            [USER],
            "<think>\nA greeting.\n</think>\n\n" + REPLY,
            [USER, HELLO, MORE],
            ("request", "thinking-stripped"),
        ),
        (OPENS, [USER], "Hm.\n</think>\n\n" + REPLY, [USER, HELLO, MORE], None),
        (NO_THINKING, [USER], REPLY, [USER, HELLO, MORE], ("text", "empty-thinking")),
        (
            HOISTS,
            [SYSTEM, USER],
            REPLY,
            [SYSTEM, USER, HELLO, {"role": "system", "content": "In French."}, MORE],
            ("text", "system-hoist"),
        ),
        (MERGES, [SYSTEM, USER], None, [SYSTEM, USER, MORE], ("text", "role-merge")),
        (PLAIN, [SYSTEM, USER], None, [SYSTEM, USER, MORE], ("text", "history-pruned")),
        (TRIMS, [USER], "Hello there, friend. \n<|im_end|>", [USER, HELLO, MORE], None),
        (PLAIN, [USER], "Hello there, friend. \n<|im_end|>", [USER, HELLO, MORE], None),
        (
            PLAIN,
            [USER],
            REPLY,
            [USER, {**HELLO, "content": "Hello there, enemy."}, MORE],
            ("request", "history-edited"),
        ),
        (
            PLAIN,
            [USER],
            '{"name": "f", "arguments": {"a": true, "b": 1}}<|im_end|>',
            [USER, {**HELLO, "content": '{"name": "f", "arguments": {"a": True, "b": 1}}'}, MORE],
            ("request", "re-serialised-arguments"),
        ),
        (
            DROPS,
            [SYSTEM, USER],
            REPLY,
            [SYSTEM, USER, HELLO, MORE],
            ("text", "history-pruned"),
        ),
    ],
)
def test_between_reply_and_next_prompt(tokenizer, source, before, reply, after, expected):
    caller = Caller(tokenizer, source)
    finding = caller.found(caller.sent(before, reply), caller.sent(after))
    if expected is None:
        cause = "thinking-stripped" if source == OPENS else "whitespace"
        assert finding.cause == cause
    else:
        assert told(finding) == expected


def test_tools_behind_messages(tokenizer):
    caller = Caller(tokenizer, TOOLS_LAST)
    before = caller.sent([SYSTEM, USER], REPLY, TOOLS)
    finding = caller.found(before, caller.sent([SYSTEM, USER, HELLO, MORE], None, TOOLS))
    assert told(finding) == ("text", "input-before-tools")


def test_the_tools_stand_where_they_should_and_change(tokenizer):
    caller = Caller(tokenizer, TOOLS_FIRST)
    before = caller.sent([SYSTEM, USER], REPLY, TOOLS)
    after = caller.sent([SYSTEM, USER, HELLO, MORE], None, TOOLS[::-1])
    assert told(caller.found(before, after)) == ("request", "tool-order")
    after = caller.sent([SYSTEM, USER, HELLO, MORE], None, [*TOOLS, tool("more")])
    assert told(caller.found(before, after)) == ("request", "tool-set-changed")


def test_the_clock_of_a_template(tokenizer):
    caller = Caller(tokenizer, CLOCK)
    before = caller.sent([USER], REPLY)
    after = caller.sent([USER, HELLO, MORE], now=NOW + datetime.timedelta(days=1))
    finding = caller.found(before, after)
    assert told(finding) == ("text", "clock")
    assert "'01 December 2026' became '02 December 2026'" in finding.evidence


def test_an_option_of_a_template(tokenizer):
    caller = Caller(tokenizer, EFFORT)
    before = caller.sent([USER], REPLY, reasoning_effort="low")
    after = caller.sent([USER, HELLO, MORE], reasoning_effort="high")
    assert told(caller.found(before, after)) == ("request", "template-option")


def test_what_the_client_changed_is_told_before_what_the_template_does(tokenizer):
    """Each request differs in two messages; the place says which counts."""
    caller = Caller(tokenizer, PLAIN)
    before = caller.sent([SYSTEM, USER, HELLO, MORE])
    shown = [{**SYSTEM, "name": "a"}, USER, {**HELLO, "content": "Hello there."}, MORE, HELLO]
    finding = caller.found(before, caller.sent(shown))
    assert told(finding) == ("request", "history-edited")
    assert "message 2 (assistant)" in finding.evidence


def test_the_same_text_by_other_ids(tokenizer):
    caller = Caller(tokenizer, PLAIN)
    first = caller.sent([USER])
    end = tokenizer.control["<|im_end|>"].id
    spelled = [i for part in ("Hel", "lo the", "re, friend.") for i in tokenizer.encode_text(part)]
    before = Sent(first.request, first.text, first.token_ids, [*spelled, end])
    finding = caller.found(before, caller.sent([USER, HELLO, MORE]))
    assert told(finding) == ("token", "retokenisation")
    alone = [Sent(token_ids=[*(before.token_ids or ()), *spelled, end])]
    alone += [Sent(token_ids=caller.sent([USER, HELLO, MORE]).token_ids)]
    again = diagnose(*alone, tokenizer)
    assert again is not None
    assert told(again) == ("token", "retokenisation")
    blind = diagnose(*alone)
    assert blind is not None
    assert told(blind) == ("token", "unknown")


def test_bos_twice(tokenizer):
    ids = list(tokenizer.encode_text("The prompt itself, of some length, is the same."))
    bos = 1
    once, twice = [bos, *ids], [bos, bos, *ids]
    for before, after in ((once, [*twice, 5]), (twice, [*once, 5])):
        for known in (None, tokenizer):
            finding = diagnose(Sent(token_ids=before), Sent(token_ids=after), known)
            assert finding is not None
            assert told(finding) == ("token", "bos-twice")
            assert finding.token == 1
    finding = diagnose(Sent(text="<s>[INST] hi [/INST]"), Sent(text="<s><s>[INST] hi [/INST] yes"))
    assert finding is not None
    assert told(finding) == ("token", "bos-twice")


def test_the_layers_that_are_known_agree(tokenizer):
    """Request, text and ids alone name the same cause as all of them together."""
    caller = Caller(tokenizer, PLAIN)
    early, late = ({**SYSTEM, "content": f"Be brief.\nNow: 10:00:0{s}\nGo."} for s in (1, 7))
    before, after = caller.sent([early, USER]), caller.sent([late, USER, HELLO, MORE])
    for layer in ("request", "text", "token_ids"):
        known = [Sent(**{layer: getattr(one, layer)}) for one in (before, after)]
        finding = diagnose(*known, tokenizer)
        assert finding is not None
        assert finding.cause == "clock", layer


def test_a_reply_that_ends_otherwise_is_no_edit(tokenizer):
    caller = Caller(tokenizer, PLAIN)
    before = caller.sent([USER], "Hello there, friend.<|endoftext|>")
    assert told(caller.found(before, caller.sent([USER, HELLO, MORE]))) == ("text", "unknown")


def test_all_but_the_reply_was_taken_out(tokenizer):
    caller = Caller(tokenizer, PLAIN)
    before = caller.sent([SYSTEM, USER, {**HELLO, "content": "Hi."}, MORE], REPLY)
    finding = caller.found(before, caller.sent([SYSTEM, USER, HELLO, MORE]))
    assert told(finding) == ("request", "history-pruned")


LLAMA = (
    "{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content }}"
    "<|eot_id|>{% endfor %}<|start_header_id|>assistant<|end_header_id|>\n\n"
)
GEMMA = (
    "<bos>{% for m in messages %}<start_of_turn>{{ m.role }}\n{{ m.content }}<end_of_turn>\n"
    "{% endfor %}<start_of_turn>model\n"
)
GLM = "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{% endfor %}<|assistant|>\n"
DEEPSEEK = GLM.replace("<|{{ m.role }}|>\n", "<｜{{ m.role | capitalize }}｜>")


@pytest.mark.parametrize("source", [PLAIN, LLAMA, GEMMA, GLM, DEEPSEEK])
def test_turns_of_a_text_alone(tokenizer, source):
    caller = Caller(tokenizer, source)
    lines = "".join(f"{i}: a line of output\n" for i in range(30))
    past = [SYSTEM, USER, HELLO, {"role": "tool", "content": lines}, HELLO, MORE, HELLO, USER]

    def cause(start: int, end: int, *instead: Message) -> str:
        after = [*past[:start], *instead, *past[end:], *NEW]
        texts = [str.__getitem__(caller.sent(m).text, slice(None)) for m in (past, after)]
        finding = diagnose(Sent(text=texts[0]), Sent(text=texts[1]))
        assert finding is not None
        assert finding.layer == "text"
        return finding.cause

    assert cause(3, 4, {"role": "tool", "content": "[cleared to save context]"}) == "history-pruned"
    assert cause(2, 4) == "history-pruned"
    summary = {"role": "user", "content": "Summary: we said hello."}
    assert cause(1, 7, summary) == "compaction"
    assert cause(5, 6, {**MORE, "content": "And once more."}) == "history-edited"
    assert cause(5, 6, {**MORE, "content": "And again on 2026-12-01."}) == "history-edited"


def test_published_templates(tokenizer, shared_data):
    def found(name: str, before: Any, reply: Any, after: Any, tools: Any = ()) -> tuple[str, str]:
        source = (shared_data / "templates" / f"{name}.jinja").read_text("utf-8")
        caller = Caller(tokenizer, source)
        return told(
            caller.found(caller.sent(before, reply, tools), caller.sent(after, None, tools))
        )

    thought = {**HELLO, "reasoning_content": "A greeting."}
    after = [USER, thought, MORE]
    said = "<think>\nA greeting.\n</think>\n\n" + REPLY
    assert found("Qwen-Qwen3-0.6B", [USER], said, after) == ("text", "thinking-stripped")
    said = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hi"
    assert found(
        "openai-gpt-oss-120b", [USER], said, [USER, {**thought, "content": "Hi"}, MORE]
    ) == (
        "text",
        "thinking-stripped",
    )
    assert found("mistralai-Mistral-Nemo-Instruct-2407", [USER], " Hello", after, TOOLS) == (
        "text",
        "input-before-tools",
    )
    deepseek = "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B"
    assert found(deepseek, [USER], "Hello", after) == ("text", "empty-thinking")


@given(st.lists(st.integers(0, 3), max_size=8), st.lists(st.integers(0, 3), max_size=8))
def test_any_ids(before, after):
    finding = diagnose(Sent(token_ids=before), Sent(token_ids=after))
    pairs = enumerate(zip(before, after, strict=False))
    first = next((i for i, (a, b) in pairs if a != b), None)
    assert (finding and finding.token) == first


@given(st.text(max_size=60), st.text(max_size=60))
def test_any_texts(before, after):
    finding = diagnose(Sent(text=before), Sent(text=after))
    pairs = enumerate(zip(before, after, strict=False))
    first = next((i for i, (a, b) in pairs if a != b), None)
    assert (finding and finding.character) == first


def test_hostile_texts_cost_little():
    """Long lines, deep brackets and repeats: each of these ends at once."""
    for piece in ("[", "{", "a", " ", "<think>", '{"a":', "1:", "=", "\u0301", "((", "-", "\n{"):
        text = piece * (200_000 // len(piece))
        finding = diagnose(Sent(text=text + "x" + text), Sent(text=text + "y" + text))
        assert finding is not None
        assert finding.character == len(text)


def test_a_long_conversation_is_told_where_it_parts(tokenizer):
    caller = Caller(tokenizer, PLAIN)
    messages = [*PAST[:2], *({**USER, "content": f"Line {i}."} for i in range(400))]
    changed = [*messages, *NEW]
    changed[200] = {**USER, "content": "Line 198 again."}
    finding = caller.found(caller.sent(messages), caller.sent(changed))
    assert told(finding) == ("request", "history-edited")
    assert "message 200 (user)" in finding.evidence
