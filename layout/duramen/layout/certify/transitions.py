"""The steps of a conversation at which a chat template can lose what it has rendered.

A call renders its messages with the generation prompt behind them. A step is two calls in a row:
what was sent, and what is sent next, when the reply and something new have been added. The template
keeps the step if the first text is a prefix of the second.

Messages are given to the template as they stand here, the way transformers' `apply_chat_template`
does, and tool arguments as objects. Each begins with a system message, which is left out where the
template refuses one. Where nothing else is said the template gets no arguments: whether it thinks
is its own default, and many that can think do not by default.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from duramen.layout.template import Message

Tool = Mapping[str, Any]


@dataclass(frozen=True)
class Transition:
    """`sent` and `next` are the messages of the two calls, `tools` and `next_tools` their tools.

    `arguments`: of the template, in both calls. `shown`: words of `next` (tool results, a tool's
    name) of which a template that ignores tools shows none.
    """

    name: str
    what: str
    sent: Sequence[Message]
    next: Sequence[Message]
    tools: Sequence[Tool] = ()
    next_tools: Sequence[Tool] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)
    shown: Sequence[str] = ()


def tool(name: str, description: str) -> Tool:
    path = {"type": "string", "description": "Where it is."}
    parameters = {"type": "object", "properties": {"path": path}, "required": ["path"]}
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


def _calling(number: int, path: str, thought: str | None = None) -> Message:
    function = {"name": "read_file", "arguments": {"path": path}}
    call = {
        "id": f"call0000{number}",
        "type": "function",
        "function": function,
    }  # 9: Mistral's rule
    return {**_said("", thought), "tool_calls": [call]}


def _result(number: int, content: str) -> Message:
    call_id = f"call0000{number}"
    return {"role": "tool", "tool_call_id": call_id, "name": "read_file", "content": content}


def _said(content: str, thought: str | None = None) -> Message:
    """A reply, with its thinking under both names that vLLM 0.32 gives it."""
    thinking = {} if thought is None else {"reasoning": thought, "reasoning_content": thought}
    return {"role": "assistant", "content": content, **thinking}


READ, WRITE = tool("read_file", "Read a text file."), tool("write_note", "Write a short note.")
SYSTEM: Message = {"role": "system", "content": "Answer in one short sentence."}
ASK: Message = {"role": "user", "content": "What do the two files say?"}
MORE: Message = {"role": "user", "content": "Which of them is older?"}
LAST: Message = {"role": "user", "content": "Thanks, and who wrote it?"}
PARTS: Message = {"role": "user", "content": [{"type": "text", "text": ASK["content"]}]}
RULE: Message = {"role": "system", "content": "From now on answer in French."}

FIRST = [SYSTEM, ASK]  # the first turn of every conversation here
_DONE, _OLDER = _said("They are two letters."), _said("The first one is.")
_THOUGHT_DONE = _said("They are two letters.", "Both begin with a greeting.")
_THOUGHT_OLDER = _said("The first one is.", "Compare the two dates.")
_ONE, _TWO = _calling(1, "a.txt"), _calling(2, "b.txt")
_THOUGHT_ONE = _calling(1, "a.txt", "The first file comes first.")
_THOUGHT_TWO = _calling(2, "b.txt", "Now for the second file.")
_RESULT_ONE, _RESULT_TWO = _result(1, "Dear kingfisher"), _result(2, "Dear woodpecker")


def _with_tools(
    name: str,
    what: str,
    sent: Sequence[Message],
    new: Sequence[Message],
    arguments: Mapping[str, Any] = {},
) -> Transition:
    conversation = [*sent, *new]
    results = [m["content"].split()[-1] for m in conversation if m["role"] == "tool"]
    return Transition(name, what, sent, conversation, [READ], [READ], arguments, results)


TRANSITIONS = (
    Transition(
        "user-turn",
        "the first question was answered, and the user asks again",
        FIRST,
        [*FIRST, _DONE, MORE],
    ),
    Transition(
        "second-user-turn",
        "the second question was answered, and the user asks again",
        [*FIRST, _DONE, MORE],
        [*FIRST, _DONE, MORE, _OLDER, LAST],
    ),
    Transition(
        "thinking-then-user",
        "the first question was thought about and answered, and the user asks again",
        FIRST,
        [*FIRST, _THOUGHT_DONE, MORE],
    ),
    Transition(
        "thinking-history",
        "the same one turn later: the history already holds a reply with its thinking",
        [*FIRST, _THOUGHT_DONE, MORE],
        [*FIRST, _THOUGHT_DONE, MORE, _THOUGHT_OLDER, LAST],
    ),
    _with_tools(
        "tool-result",
        "the first question was answered by a tool call, and its result comes back",
        FIRST,
        [_ONE, _RESULT_ONE],
    ),
    _with_tools(
        "second-tool-result",
        "the result was answered by another tool call, and its result comes back",
        [*FIRST, _ONE, _RESULT_ONE],
        [_TWO, _RESULT_TWO],
    ),
    _with_tools(
        "tool-then-user",
        "the result was answered in words, and the user asks again",
        [*FIRST, _ONE, _RESULT_ONE],
        [_DONE, MORE],
    ),
    _with_tools(
        "thinking-tool-result",
        "as tool-result, with thinking before the tool call",
        FIRST,
        [_THOUGHT_ONE, _RESULT_ONE],
    ),
    _with_tools(
        "thinking-second-tool-result",
        "as second-tool-result, with thinking before both tool calls",
        [*FIRST, _THOUGHT_ONE, _RESULT_ONE],
        [_THOUGHT_TWO, _RESULT_TWO],
    ),
    _with_tools(
        "thinking-tool-then-user",
        "as tool-then-user, with thinking before the tool call and before the answer",
        [*FIRST, _THOUGHT_ONE, _RESULT_ONE],
        [_THOUGHT_DONE, MORE],
    ),
    Transition(
        "mid-system",
        "the first question was answered, and a second system message comes before the next one",
        FIRST,
        [*FIRST, _DONE, RULE, MORE],
    ),
    Transition(
        "thinking-off-user-turn",
        "as user-turn, with thinking switched off in both calls (enable_thinking=false)",
        FIRST,
        [*FIRST, _DONE, MORE],
        arguments={"enable_thinking": False},
    ),
    Transition(
        "thinking-on-user-turn",
        "as thinking-then-user, with thinking switched on in both calls (enable_thinking=true)",
        FIRST,
        [*FIRST, _THOUGHT_DONE, MORE],
        arguments={"enable_thinking": True},
    ),
    _with_tools(
        "thinking-on-tool-result",
        "as thinking-tool-result, with thinking switched on",
        FIRST,
        [_THOUGHT_ONE, _RESULT_ONE],
        {"enable_thinking": True},
    ),
    _with_tools(
        "thinking-on-tool-then-user",
        "as thinking-tool-then-user, with thinking switched on",
        [*FIRST, _THOUGHT_ONE, _RESULT_ONE],
        [_THOUGHT_DONE, MORE],
        {"enable_thinking": True},
    ),
    Transition(
        "parts-vs-string",
        "as user-turn; the first question was sent as a text, and is then sent as a list of parts",
        FIRST,
        [SYSTEM, PARTS, _DONE, MORE],
    ),
    Transition(
        "tools-added",
        "as user-turn with one tool in the first call, and one more in the second",
        FIRST,
        [*FIRST, _DONE, MORE],
        [READ],
        [READ, WRITE],
        shown=["write_note"],
    ),
)  # fmt: skip
