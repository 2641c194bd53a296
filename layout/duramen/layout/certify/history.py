"""Does a chat template keep what it has rendered? Tried on conversations, call by call."""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from duramen.layout.chat_messages import template_tools
from duramen.layout.delta import Break, DeltaRenderer
from duramen.layout.errors import TemplateError
from duramen.layout.template import ChatTemplate, Message
from duramen.layout.tokenizer import Tokenizer
from duramen.layout.tracked import Tracked

_NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)  # where a template shows a clock


@dataclass(frozen=True)
class Certificate:
    """`keeps_history`: in every probe that the template takes, each prompt begins with the one
    before and with what the template writes for its reply, the reply's last control token aside.
    `why` not: the construct, with the text before and after."""

    keeps_history: bool
    why: str | None = None


@dataclass(frozen=True)
class Probe:
    """A conversation; each assistant message of it answers a call. `name`: its construct."""

    name: str
    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]] = ()


def certificate(
    template: ChatTemplate,
    tokenizer: Tokenizer | None,
    arguments: Mapping[str, Any] | None = None,
) -> Certificate:
    """Renders every probe as a conversation would be. One that the template refuses is skipped; a
    template that refuses all of them keeps nothing, and `why` is its last reason. Without a
    tokenizer no control token is known, and a reply ends with its last character."""
    refusals = []
    controls = tokenizer.controls if tokenizer is not None else lambda text: ()
    for probe in PROBES:
        tools = template_tools(probe.tools)
        renderer = DeltaRenderer(template, tools, _NOW, arguments or {}, controls)
        try:
            broken = _first_break(renderer, template.prepared(probe.messages))
        except TemplateError as error:
            refusals.append(str(error))
            continue
        if broken is not None:
            change = f"{broken.before!r} became {broken.after!r}"
            return Certificate(False, f"{probe.name}: {change}")
    if len(refusals) == len(PROBES):
        return Certificate(False, f"no probe is accepted: {refusals[-1]}")
    return Certificate(True)


def _first_break(renderer: DeltaRenderer, messages: Sequence[Message]) -> Break | None:
    known = Tracked("", ())
    for i, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        prompt = renderer.full(messages[:i], prompt=True)
        answered = renderer.full(messages[: i + 1], prompt=False)
        said = answered[: max(_last_control(renderer, answered), len(prompt))]
        broken = renderer.broken(known, prompt) or renderer.broken(prompt, answered)
        if broken is not None:
            return broken
        known = said
    return renderer.broken(known, renderer.full(messages, prompt=True))


def _last_control(renderer: DeltaRenderer, text: Tracked) -> int:
    """Where the last control token begins, the end of a text without one."""
    controls = renderer.controls(text)
    return controls[-1][0] if controls else len(text.rstrip())


def _call(number: int, path: str) -> Mapping[str, Any]:
    function = {"name": "read_file", "arguments": {"path": path}}
    return {"id": f"call0000{number}", "type": "function", "function": function}


def _result(number: int, content: str) -> Message:
    call_id = f"call0000{number}"
    return {"role": "tool", "tool_call_id": call_id, "name": "read_file", "content": content}


_TOOL = {
    "type": "function",
    "function": {
        "name": "read_file",
        "description": "Read a text file.",
        "parameters": {
            "type": "object",
            "properties": {"path": {"type": "string", "description": "Where it is."}},
            "required": ["path"],
        },
    },
}
_ASK: Message = {"role": "user", "content": "What do the files say?"}
_MORE: Message = {"role": "user", "content": "And the other one?"}
_DONE: Message = {"role": "assistant", "content": "They say hello."}
_THOUGHT: Message = {**_DONE, "reasoning_content": "I have seen them all."}
_ONE: Message = {"role": "assistant", "content": "I look.", "tool_calls": [_call(1, "a.txt")]}
_THINKING_ONE: Message = {**_ONE, "reasoning_content": "The first one first."}
_PARALLEL: Message = {**_ONE, "tool_calls": [_call(1, "a.txt"), _call(2, "b.txt")]}
_RESULTS = [_result(1, "hello"), _result(2, "world")]
_SYSTEM: Message = {"role": "system", "content": "Answer in one sentence."}

PROBES = (  # the simplest first: the first that breaks is named
    Probe("a reply before a user message", [_ASK, _DONE, _MORE]),
    Probe("a system message", [_SYSTEM, _ASK, _DONE, _MORE, _DONE, _ASK]),
    Probe("thinking before a user message", [_ASK, _THOUGHT, _MORE, _THOUGHT, _ASK]),
    Probe("a tool call", [_SYSTEM, _ASK, _ONE, _RESULTS[0], _DONE, _MORE], [_TOOL]),
    Probe("parallel tool calls", [_ASK, _PARALLEL, *_RESULTS, _DONE, _MORE], [_TOOL]),
    Probe(
        "a tool call without content",
        [_ASK, {**_ONE, "content": None}, _RESULTS[0], _DONE, _MORE],
        [_TOOL],
    ),
    Probe(
        "thinking before a tool call",
        [_ASK, _THINKING_ONE, _RESULTS[0], _THINKING_ONE, _RESULTS[0], _THOUGHT, _MORE],
        [_TOOL],
    ),
)
