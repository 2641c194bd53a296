"""Why a transition breaks: what stood there, what stands there now, and which cause that is.

A cause is named only where it is shown, mostly by rendering the next call once more without the
thing that is suspected: if the text then goes on beyond the break, that thing was it.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from duramen.layout.certify.rendering import Rendering, Step, data_end, marker_start
from duramen.layout.certify.transitions import Transition
from duramen.layout.delta import common_text
from duramen.layout.diagnose.causes import Cause
from duramen.layout.errors import TemplateError
from duramen.layout.template import Message
from duramen.layout.tracked import Tracked

NUM_SHOWN = 40  # characters of both texts in a reason
THINKING = re.compile(r"think|thought|reason", re.IGNORECASE)  # in the markers of a thinking block


@dataclass(frozen=True)
class Reason:
    """`cause` is None where none of the known ones was shown."""

    cause: Cause | None
    what: str


def reason(rendering: Rendering, step: Step) -> Reason:
    """Of a step that is broken."""
    found = next(_suspects(rendering, step), Reason(None, f"{_place(step)} was written otherwise"))
    start = marker_start(step.before, step.at)
    before, after = (repr(str(text[start:][:NUM_SHOWN])) for text in (step.before, step.after))
    return replace(found, what=f"{found.what}: {before} became {after}")


def _suspects(rendering: Rendering, step: Step) -> Iterator[Reason]:
    """The reasons that are shown to hold, the surest first."""
    t = step.transition
    if t.tools != t.next_tools and _goes_on(rendering, step, replace(t, next_tools=t.tools)):
        yield Reason("tool-set-changed", "the new tool is written in front of the conversation")
    if any(isinstance(m["content"], list) for m in t.next) and _goes_on(rendering, step, _flat(t)):
        yield Reason("content-parts-vs-string", "a list of parts is written otherwise than a text")
    late = [m for m in t.next[1:] if m["role"] == "system"]
    if late and _goes_on(rendering, step, _without(t, late)):
        yield Reason("system-hoist", "the new system message is written in front of what was sent")
    yield from _thinking(step)
    yield from _moved(step)
    if _is_blank_only(step):
        yield Reason("whitespace", f"{_place(step)} got other blanks")


def _goes_on(rendering: Rendering, step: Step, other: Transition) -> bool:
    """Whether the prompt lasts beyond the break in `other`, which is the step with one change."""
    try:
        after = rendering.prompt(other.next, other.next_tools, other.arguments)
    except TemplateError:
        return False
    return common_text(step.before, after) > step.at


def _flat(transition: Transition) -> Transition:
    messages: list[Message] = []
    for message in transition.next:
        content = message["content"]
        if isinstance(content, list):
            message = {**message, "content": "".join(part["text"] for part in content)}
        messages.append(message)
    return replace(transition, next=messages)


def _without(transition: Transition, messages: Sequence[Message]) -> Transition:
    return replace(transition, next=[m for m in transition.next if m not in messages])


def _thinking(step: Step) -> Iterator[Reason]:
    sent, reply = step.transition.sent, step.transition.next[len(step.transition.sent)]
    thoughts = [thought for message in sent if (thought := _thought(message))]
    lost = _next_data(step.before, step.at)
    if any(thought in lost and thought not in step.after for thought in thoughts):
        yield Reason("thinking-stripped", "the thinking of an earlier reply is left out")
    opened = step.before[step.prompt_start :]
    if step.at < step.prompt_start or not THINKING.search(opened):
        return
    thought = _thought(reply)
    if thought is not None and thought not in step.after:
        yield Reason(
            "thinking-stripped", "the prompt opens a thinking block, and the reply's is left out"
        )
    elif thought is None and step.before[step.at :].strip():
        yield Reason(
            "empty-thinking", "the prompt holds a thinking block, and the reply is written without"
        )


def _moved(step: Step) -> Iterator[Reason]:
    """Tools or the system message stood at one place, and stand at another further down."""
    t = step.transition
    tools = [tool["function"]["description"] for tool in t.tools]
    if any(_moves_down(step, text) for text in tools):
        yield Reason("input-before-tools", "the tools move on with the last user message")
    systems = [m["content"] for m in t.sent if m["role"] == "system"]
    if any(_moves_down(step, text) for text in systems):
        yield Reason(None, "the system message moves on with the last user message")


def _moves_down(step: Step, text: str) -> bool:
    start = step.before.find(text)
    return start >= step.at and step.after.find(text) > start


def _is_blank_only(step: Step) -> bool:
    lost, instead = step.before[step.at :], step.after[step.at :]
    return not lost.strip() or (
        instead.lstrip().startswith(lost.strip()) and not instead.startswith(lost.rstrip())
    )


def _next_data(text: Tracked, start: int) -> str:
    """The first stretch of one message's data that ends behind `start`."""
    position = 0
    for length, origin in text.runs:
        if position + length > start and origin > 0:
            return str(text[position : position + length])
        position += length
    return ""


def _thought(message: Message) -> str | None:
    thought = message.get("reasoning_content", message.get("thinking"))
    return thought if isinstance(thought, str) else None


def _place(step: Step) -> str:
    """What the character is part of."""
    if step.at >= step.prompt_start:
        return "the generation prompt"
    if step.at >= data_end(step.before):
        return f"what closes the last message ({step.transition.sent[-1]['role']})"
    position = 0
    for length, origin in step.before.runs:
        position += length
        if position > step.at and origin > 0:
            return f"the {step.transition.sent[origin - 1]['role']} message"
    return "the end of the conversation"
