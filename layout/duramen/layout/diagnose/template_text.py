"""Why a template, or a reply that was sent back, stands otherwise in the text of a prompt, where
the requests agree."""

import re

from duramen.layout.diagnose.change import Change, became
from duramen.layout.diagnose.message_fields import role_of, thought_of
from duramen.layout.diagnose.message_keys import SYSTEM
from duramen.layout.diagnose.messages import named
from duramen.layout.diagnose.parting import Parting, near
from duramen.layout.diagnose.passages import (
    OPENED_ONLY,
    known_thinking_change,
    passage_change,
    reply_thinking_change,
    thinking_change,
)
from duramen.layout.diagnose.place import Place
from duramen.layout.diagnose.sent import Request
from duramen.layout.diagnose.turns import turn_place, turns_change
from duramen.layout.tracked import OTHER, TEMPLATE, TOOLS, Tracked

_MAX_JOINT_CHARS = 80
_MARK = re.compile(  # what a turn of its own would begin with
    r"<[|｜/\w]|\[/?[A-Z]|[|｜]>"
    r"|\b(?:user|human|assistant|bot|model|tool|system|observation)\b",
    re.I,
)
_ENDS = re.compile(r"[^<>\[\]\w]{0,3}[\w<>|/\[\]｜▁~ ]{1,40}[>\]]\s*")  # what a reply ends with


def text_layer_change(place: Parting, old: Request | None, new: Request | None) -> Change:
    """`place` knows both texts."""
    assert place.old is not None
    assert place.new is not None
    assert place.character is not None
    found = _thinking(place)
    if found is None and new is not None:
        found = _known_thinking(place, new)
    if found is None and old is not None and new is not None:
        found = _moved(old, new, place)
    if found is None:
        found = passage_change(place.old, place.new, place.character, _place(place, old))
    if found is None and old is None:
        found = turns_change(place.old, place.new, place.character)
    if found is None and old is not None and new is not None:
        found = _left_out(old, new, place)
    if found is None:
        found = _unexplained(place, old)
    return found if found.where else found.at(_where(place, old))


def thinking_here(place: Parting) -> bool:
    """Whether the calls part where one shows thinking and the other does not; a tag alone, which
    an option writes, is none."""
    found = _thinking(place) if place.character is not None else None
    return found is not None and found.confidence > OPENED_ONLY


def _thinking(place: Parting) -> Change | None:
    assert place.old is not None
    assert place.new is not None
    assert place.character is not None
    at = place.character
    return reply_thinking_change(place.old, place.new, place.prompt_chars, at) or thinking_change(
        place.old, place.new, at
    )


def _known_thinking(place: Parting, new: Request) -> Change | None:
    """What a message that both requests have says that was thought, shown in one prompt only."""
    assert place.old is not None
    assert place.new is not None
    assert place.character is not None
    nears = [near(text, place.character) for text in (place.old, place.new)]
    origins = {origin for each in nears for origin in each.origins if origin is not None}
    for origin in sorted(origin for origin in origins if 0 < origin <= len(new.messages)):
        thought = thought_of(new.messages[origin - 1]) or ""
        found = known_thinking_change(place.old, place.new, thought, place.character)
        if found is not None:
            return found
    return None


def _moved(old: Request, new: Request, place: Parting) -> Change | None:
    """Characters of a message or of tools stand in the past, where they did not stand before."""
    assert place.character is not None
    was, now = near(place.old, place.character), near(place.new, place.character)
    due, come = was.due, now.due
    if place.character >= place.prompt_chars and now.at == TEMPLATE:
        return None  # what comes next may well be new
    if (come == TOOLS) != (due == TOOLS) and old.tools and new.tools and OTHER not in (come, due):
        shown = "the template puts the tools behind messages, which are more by now"
        return Change("input-before-tools", 0.97, shown, "the template")
    num_old = len(old.messages)
    if come is None or not num_old < come <= len(new.messages):
        return None
    index, role = come - 1, role_of(new.messages[come - 1])
    least = index if index > num_old else num_old - 1
    if role in SYSTEM and (now.last or 0) < least:
        shown = f"{named(new.messages, index)} stands before what was sent before it"
        return Change("system-hoist", 0.97, shown, "the template")
    joint = str(place.new)[now.last_end : now.next_start]
    one_turn = now.last == index and role_of(new.messages[index - 1]) == role
    if one_turn and len(joint) <= _MAX_JOINT_CHARS and not _MARK.search(joint):
        shown = f"{named(new.messages, index - 1)} and {named(new.messages, index)} are one turn"
        return Change("role-merge", 0.95, shown, "the template")
    return None


def _left_out(old: Request, new: Request, place: Parting) -> Change | None:
    """A message of the past that the later prompt does not show, or a reply that is not in it."""
    assert place.character is not None
    num_old = len(old.messages)
    was, now = near(place.old, place.character), near(place.new, place.character)
    at_reply = was.at in (None, TEMPLATE) and was.next in (None, num_old + 1)
    if at_reply and len(new.messages) > num_old and role_of(new.messages[num_old]) != "assistant":
        shown = f"{named(new.messages, num_old)} follows, without the reply to that call"
        mend = "send back the reply that the call got; if it got none, nothing is to be mended"
        return Change("history-pruned", 0.8, shown, f"before message {num_old}", mend)
    due, come = was.due, now.due
    if due is not None and come is not None and 0 < due < come and due <= num_old:
        if role_of(new.messages[due - 1]) in SYSTEM and _shown_behind(place, due):
            shown = f"the template writes {named(new.messages, due - 1)} behind later messages"
            return Change("system-hoist", 0.8, shown, "the template")
        shown = f"the template leaves out {named(new.messages, due - 1)} or a part of it"
        return Change("history-pruned", 0.8, shown, "the template")
    return None


def _shown_behind(place: Parting, origin: int) -> bool:
    """Whether the later prompt has data of that origin behind the place."""
    start = 0
    for length, one in place.new.runs if isinstance(place.new, Tracked) else ():
        start += length
        if one == origin and start > (place.character or 0):
            return True
    return False


def _unexplained(place: Parting, old: Request | None) -> Change:
    assert place.old is not None
    assert place.new is not None
    assert place.character is not None
    shown = became(place.old, place.new)
    rest = place.old[place.character :]
    if place.character >= place.prompt_chars and _ENDS.fullmatch(rest):
        tag = place.old[max(place.old.rfind(mark) for mark in "<[") :].strip()
        ends = f"the reply ended with {tag!r}, which the template does not write: {shown}"
        return Change("unknown", 0.9, ends)
    if place.character >= place.prompt_chars:
        return Change("history-edited", 0.7, f"the reply was sent back otherwise: {shown}")
    if old is None:
        return Change("history-edited", 0.5, shown)
    return Change("unknown", 0.5, f"the template writes it otherwise: {shown}")


def _place(place: Parting, old: Request | None) -> Place:
    if old is None and place.old is not None:
        return turn_place(place.old, place.character or 0)
    origin = near(place.old, place.character or 0).due
    if old is None or origin is None or not 0 < origin <= len(old.messages):
        return Place(is_root=True)
    role = role_of(old.messages[origin - 1])
    return Place(is_root=role in SYSTEM, is_tool_output=role == "tool")


def _where(place: Parting, old: Request | None) -> str:
    assert place.character is not None
    if place.character >= place.prompt_chars:
        index = "" if old is None else f" (message {len(old.messages)})"
        return f"the reply of the earlier call{index}"
    if old is None:
        return "the text"
    was = near(place.old, place.character)
    origin = next((o for o in (was.due, was.last) if o is not None and o > 0), None)
    if origin is None or origin > len(old.messages):
        return "the template's text"
    return f"the template's text for {named(old.messages, origin - 1)}"
