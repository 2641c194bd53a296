"""Turns of a rendered prompt of which nothing is known but its text, by the marks of published
templates: ChatML, Llama 3, Gemma, gpt-oss, Phi, GLM, DeepSeek, Mistral."""

import re
from collections.abc import Sequence
from itertools import islice, pairwise
from typing import NamedTuple

from duramen.layout.diagnose.change import Change
from duramen.layout.diagnose.messages import messages_changes, place_of
from duramen.layout.diagnose.place import ROOT, Place

_TURN = re.compile(
    r"(?:<\|(?:im_start|start_header_id|start|im_user|im_system|im_assistant)\|>|<start_of_turn>"
    r"|<[|｜]|\[(?=INST|SYSTEM_PROMPT))(?P<role>system_prompt|system|developer|user|assistant|model"
    r"|tool|ipython|function|observation|inst)(?:[|｜]>|<\|\w+\|>|\])?\n{0,2}",
    re.I,
)
_END = re.compile(r"(?:\s*(?:<[|｜]?[\w▁/]{1,24}[|｜]?>|\[/?[A-Z_]{1,16}\]))*\s*\Z")
_ROLES = {"model": "assistant", "inst": "user", "system_prompt": "system", "ipython": "tool"}
_RESULT = re.compile(r"<tool_response>|<\|?tool_result|<function_results>|\[TOOL_RESULTS\]")
_TAIL_CHARS = 200
_MAX_TURNS = 10_000


class Turn(NamedTuple):
    start: int
    message: dict[str, str]


def turns_change(old: str, new: str, position: int) -> Change | None:
    """A turn that came, left, moved, or changed at `position`, as messages do; None where no turn
    is seen there."""
    was, now = _turns(old), _turns(new)
    index = _index(was, position)
    messages, new_messages = [turn.message for turn in was], [turn.message for turn in now]
    if index is None or messages[:index] != new_messages[:index]:
        return None
    changes = messages_changes(messages, new_messages, index) if index < len(now) else []
    return changes[0] if changes else None


def turn_place(text: str, position: int) -> Place:
    """Where in the conversation a place stands; the root where no turn is seen before it."""
    turns = _turns(text)
    index = _index(turns, position)
    return ROOT if index is None else place_of([turn.message for turn in turns], index)


def _index(turns: Sequence[Turn], position: int) -> int | None:
    """Of the turn that holds `position`, or begins there but for the part of its mark that all
    turns have in common."""
    found = [i for i, turn in enumerate(turns) if turn.start <= position]
    return found[-1] if found else None


def _turns(text: str) -> list[Turn]:
    """Without a last turn that is empty, as generation prompts are; none where there are too many
    to be a conversation."""
    marks = list(islice(_TURN.finditer(text), _MAX_TURNS + 1))
    if len(marks) > _MAX_TURNS:
        return []
    starts = [mark.start() for mark in marks] + [len(text)]
    turns = []
    for mark, (start, end) in zip(marks, pairwise(starts), strict=True):
        content = str.__getitem__(text, slice(mark.end(), end))
        tail = _END.search(content, max(len(content) - _TAIL_CHARS, 0))
        content = content[: tail.start()] if tail else content
        role = mark["role"].lower()
        role = "tool" if _RESULT.match(content) else _ROLES.get(role, role)
        turns.append(Turn(start, {"role": role, "content": content}))
    if turns and not turns[-1].message["content"].strip():
        turns.pop()
    return turns
