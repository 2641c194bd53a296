"""Prompts that the live tests of `duramen why` send, and the calls of a log that they become."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from why_cases import SYSTEM, TOOLS

from duramen.experiments.layouts.model import Model
from duramen.experiments.trajectory import Call, Message, Sending, Tool, Usage
from duramen.experiments.why.rendering import template_arguments
from duramen.serving.vllm.protocol import Completion, Engine, Sampling

UNIT = 32
SAID = 40  # tokens of a reply: more than one unit
NOON_S = 1_796_126_400.0  # 2026-12-01 12:00 UTC
TEXT = str(SYSTEM["content"])
FILE = "".join(f"line {i}: the keeper counts the ships and writes them down\n" for i in range(12))
_FUNCTION = {"name": "read", "arguments": json.dumps({"path": "log.txt", "lines": 12})}
_CALL = {"id": "c1", "type": "function", "function": _FUNCTION}
SYSTEM_SAID: Message = {
    "role": "system",
    "content": f"It is 2026-12-01 10:00:00. Request 17 of 40. {TEXT}",
}
HISTORY: tuple[Message, ...] = (
    SYSTEM_SAID,
    {"role": "user", "content": "What did the keeper write down?"},
    {
        "role": "assistant",
        "reasoning_content": "The log of the harbour says it, so the log is to be read first.",
        "content": "I look into the log.",
        "tool_calls": [_CALL],
    },
    {"role": "tool", "tool_call_id": "c1", "content": FILE},
)


@dataclass(frozen=True)
class Asked:
    """One request. `options`: of its body. `time_s`: Unix time."""

    messages: tuple[Message, ...] = HISTORY
    tools: tuple[Tool, ...] = TOOLS
    options: Mapping[str, Any] = field(default_factory=dict)
    time_s: float = NOON_S

    def ids(self, model: Model) -> list[int]:
        """The slow twin: everything rendered and encoded whole."""
        model = replace(model, arguments=template_arguments(self.options))
        transcript = model.transcript(self.tools, self.time_s)
        return list(transcript.start(model.template.prepared(self.messages)).token_ids)

    def call(self, done: Completion) -> Call:
        sending = Sending(options=self.options, reply_ids=tuple(done.token_ids))
        usage = Usage(cached_tokens=done.cached_tokens)
        return Call(self.messages, done.message, self.time_s - NOON_S, usage, self.tools, sending)

    def going_on(self, *messages: Message) -> "Asked":
        return replace(self, messages=(*self.messages, *messages))


Change = Callable[[Asked], Asked]


def kept(asked: Asked) -> Asked:
    return asked


def with_message(index: int, change: Callable[[Message], Message]) -> Change:
    def changed(asked: Asked) -> Asked:
        messages = list(asked.messages)
        messages[index] = change(messages[index])
        assert messages[index] != asked.messages[index]
        return replace(asked, messages=tuple(messages))

    return changed


def edited(index: int, old: str, new: str) -> Change:
    return with_message(index, lambda message: json.loads(json.dumps(message).replace(old, new)))


def with_content(index: int, content: object) -> Change:
    return with_message(index, lambda message: {**message, "content": content})


def only_thought(reply: Message) -> Message:
    """What a reasoning parser reads where thinking was opened in the prompt and never closed."""
    return {"role": "assistant", "reasoning_content": reply["content"], "content": None}


def with_options(**options: object) -> Change:
    return lambda asked: replace(asked, options=options)


def key_order(asked: Asked) -> Asked:
    last = asked.tools[-1]["function"]
    parameters = dict(reversed(list(last["parameters"].items())))
    tool = {**asked.tools[-1], "function": {**last, "parameters": parameters}}
    return replace(asked, tools=(*asked.tools[:-1], tool))


def merged(asked: Asked) -> Asked:
    """The second and the third message as one."""
    first, second = (str(message["content"]) for message in asked.messages[1:3])
    message = {**asked.messages[1], "content": f"{first}\n\n{second}"}
    return replace(asked, messages=(asked.messages[0], message, *asked.messages[3:]))


def hoisted(asked: Asked) -> Asked:
    """The fifth message at the end of the first."""
    head, late = asked.messages[0], asked.messages[4]
    message = {**head, "content": f"{head['content']}\n\n{late['content']}"}
    return replace(asked, messages=(message, *asked.messages[1:4], *asked.messages[5:]))


async def complete(
    engine: Engine, ids: Sequence[int], num_tokens: int = SAID, salt: str = ""
) -> Completion:
    """A serial call, with all that it did to the cache seen."""
    done = await engine.complete(ids, Sampling(num_tokens, min_tokens=num_tokens), salt=salt)
    assert done.cached_tokens is not None
    assert await engine.settle([*ids, *done.token_ids[:-1]], salt)
    return done


def cached(done: Completion) -> int:
    assert done.cached_tokens is not None
    return done.cached_tokens
