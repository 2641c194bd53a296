"""Messages of two requests: the first that differs, and whether it changed, moved, left or was
replaced."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from duramen.layout.diagnose.change import Change, became, quoted
from duramen.layout.diagnose.message_fields import (
    calls_of,
    content_of,
    message_changes,
    role_of,
    text_of,
    thought_of,
)
from duramen.layout.diagnose.place import Place
from duramen.layout.diagnose.texts import OMITTED, SUMMARY, without_blanks

SYSTEM = ("system", "developer")
_MANY = 3  # messages: an edit that starts anew seldom drops as many
_LONG_CHARS = 80
_JOINT_CHARS = 24  # marks that a client puts between merged texts
_READ_CHARS = 4_000
_HEADINGS = re.compile(  # under which summaries are written
    r"^[ \t]*(?:[#*_<\[-]+[ \t]*)?(goals?|done|next(?: steps?)?|to-?do|open(?: questions)?"
    r"|remaining|decisions?|findings?|state|status|progress|facts|tasks?|files|changes|pending|completed"
    r"|context|background|plan|ziel|erledigt|offen|objectif|fait|reste|objetivo|hecho)\b[^\n]{0,20}$",
    re.M,
)


def differing(old: Sequence[Any], new: Sequence[Any]) -> list[int]:
    """Indices at which both have a message and the two differ in what a prompt could show."""
    return [
        i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a is not b and not same(a, b)
    ]


def same(old: Any, new: Any) -> bool:
    return bool(old == new) or _key(old) == _key(new)


def _key(message: Any) -> str:
    """What a prompt could show of a message."""
    if not isinstance(message, Mapping):
        return repr(message)
    content = message.get("content")
    if isinstance(content, Sequence) and not isinstance(content, str):
        content = [_bare(part) for part in content]
    calls = list(calls_of(message))
    rest = (message.get("tool_call_id"), message.get("name"))
    return repr((role_of(message), content or "", thought_of(message) or "", calls, rest))


def _bare(part: Any) -> Any:
    if not isinstance(part, Mapping):
        return part
    return {key: value for key, value in part.items() if key != "cache_control"}


def place_of(messages: Sequence[Any], index: int) -> Place:
    role = role_of(messages[index])
    users = (i for i, message in enumerate(messages[: index + 1]) if role_of(message) == "user")
    return Place(
        named(messages, index),
        is_root=role in SYSTEM,
        is_first_user=next(users, None) == index,
        is_tool_output=role in ("tool", "function"),
    )


def named(messages: Sequence[Any], index: int) -> str:
    return f"message {index} ({role_of(messages[index])})"


def messages_changes(
    old: Sequence[Any], new: Sequence[Any], index: int, reply: str = ""
) -> list[Change]:
    """Why `new` goes another way at `index`, up to which both are the same; the first cause is that
    of the first difference in the prompt. `index` may be the length of `new`. `reply`: the text of
    the reply behind `old`, where it is known."""
    if index >= len(new):
        gone = f"messages {index} to {len(old) - 1} are gone from the end"
        return [Change("history-pruned", 0.9, gone, f"from message {index} on")]
    said = without_blanks(_text(new[index]))
    if len(said) >= 4 and role_of(new[index]) == "assistant" and said in without_blanks(reply):
        gone = f"messages {index} to {len(old) - 1} left: {quoted(_text(old[index]))}"
        return [Change("history-pruned", 0.95, gone, f"at message {index}")]
    if moved := _moved(old, new, index):
        return [moved]
    changes = message_changes(old[index], new[index], place_of(old, index))
    return [change.at(named(old, index)) for change in changes]


def _moved(old: Sequence[Any], new: Sequence[Any], index: int) -> Change | None:
    """A change of which message stands where; None where this message itself changed."""
    return (
        _merged(old, new, index)
        or _hoisted(old, new, index)
        or _removed(old, new, index)
        or _replaced(old, new, index)
    )


def _hoisted(old: Sequence[Any], new: Sequence[Any], index: int) -> Change | None:
    """A system message left its place for the head, or the head for a place of its own."""
    for one, other, way in ((old, new, "moved into"), (new, old, "left")):
        found = _hoisted_from(one, other, index)
        if found is not None:
            shown = f"{named(one, found)} {quoted(_text(one[found]))} {way} message {index}"
            return Change("system-hoist", 1.0, shown, named(other, index))
    return None


def _hoisted_from(spread: Sequence[Any], joined: Sequence[Any], index: int) -> int | None:
    """The system message of `spread`, behind `index`, whose text stands at `index` in `joined`."""
    if role_of(joined[index]) not in SYSTEM:
        return None
    head = without_blanks(_text(joined[index]))
    own = without_blanks(_text(spread[index])) if role_of(spread[index]) in SYSTEM else ""
    added = head.replace(own, "", 1) if own in head else head
    for i in range(index + 1, len(spread)):
        said = without_blanks(_text(spread[i])) if role_of(spread[i]) in SYSTEM else ""
        kept = (
            i < len(joined)
            and role_of(joined[i]) in SYSTEM
            and said == without_blanks(_text(joined[i]))
        )
        if said and not kept and (said == head or (own in head and said in added)):
            return i
    return None


def _merged(old: Sequence[Any], new: Sequence[Any], index: int) -> Change | None:
    for one, other, way in ((old, new, "became one"), (new, old, "were one")):
        if index + 1 >= len(one):
            continue
        roles = role_of(one[index]), role_of(one[index + 1]), role_of(other[index])
        if len(set(roles)) != 1:
            continue
        apart, both = (one[index], one[index + 1]), other[index]
        if _says_all(apart, both):
            shown = f"messages {index} and {index + 1} ({roles[0]}) {way}"
            texts = became(_text(old[index]), _text(new[index]))
            return Change("role-merge", 1.0, texts, shown)
    return None


def _says_all(apart: Sequence[Any], both: Any) -> bool:
    """Whether one message has the text and the calls of two."""
    texts = [without_blanks(_text(message)) for message in apart]
    calls = [call for message in apart for call in calls_of(message)]
    if not texts[1] and not calls_of(apart[1]):
        return False
    said = without_blanks(_text(both))
    first = said.find(texts[0])
    second = said.find(texts[1], first + len(texts[0]))
    joints = len(said) - len(texts[0]) - len(texts[1])
    in_order = min(first, second) >= 0 and (first == 0 or joints <= _JOINT_CHARS)
    close = second - first - len(texts[0]) <= _JOINT_CHARS
    return in_order and close and list(calls_of(both)) == calls


def _removed(old: Sequence[Any], new: Sequence[Any], index: int) -> Change | None:
    """Messages left or came, and behind them both go on alike."""
    here, there = _key(new[index]), _key(old[index])
    later = next((i for i in range(index + 1, len(old)) if _key(old[i]) == here), None)
    if later is not None and not _aligned(old, new, index):
        gone = f"messages {index} to {later - 1}" if later > index + 1 else named(old, index)
        shown = f"{gone} left: {quoted(_text(old[index]))}"
        return Change("history-pruned", 0.95, shown, f"at message {index}")
    came = next((i for i in range(index + 1, len(new)) if _key(new[i]) == there), None)
    if came is not None and not _aligned(old, new, index):
        told = any(_is_summary(message) for message in new[index:came])
        if told and len(new) < len(old):
            return _compaction(old, new, index, len(old) - index)
        shown = f"{came - index} messages came before it: {quoted(_text(new[index]))}"
        return Change("history-edited", 0.9, shown, f"at message {index}")
    return None


def _aligned(old: Sequence[Any], new: Sequence[Any], index: int) -> bool:
    """Whether what follows is the same at the same place."""
    rest = range(index + 1, min(len(old), len(new)))
    return any(same(old[i], new[i]) for i in rest[:8])


def _replaced(old: Sequence[Any], new: Sequence[Any], index: int) -> Change | None:
    """Several messages left and one or two stand for them."""
    if _grown_by_summary(old, new, index):
        return _compaction(old, new, index, len(old) - len(new))
    answered = _answers(old[index])
    if _aligned(old, new, index) or (answered is not None and answered == _answers(new[index])):
        return None
    behind = {_key(message) for message in new[index:]}
    num_lost = sum(_key(message) not in behind for message in old[index:])
    summary = _is_summary(new[index]) and not _is_summary(old[index])
    if num_lost >= 2 and (summary or _resumes_sooner(old, new, index)):
        return _compaction(old, new, index, num_lost)
    other_role = role_of(old[index]) != role_of(new[index])
    if num_lost >= _MANY and len(new) < len(old) and _tells_other(old[index], new[index]):
        return _compaction(old, new, index, num_lost)
    if num_lost >= 2 and other_role and len(_text(new[index])) * 2 >= _LONG_CHARS:
        return _compaction(old, new, index, num_lost)
    return None


def _tells_other(old: Any, new: Any) -> bool:
    """A text of some length that has little of the message in whose place it stands."""
    was, now = (set(_text(message)[:_READ_CHARS].lower().split()) for message in (old, new))
    return len(_text(new)) >= _LONG_CHARS and len(was & now) * 4 < len(now)


def _resumes_sooner(old: Sequence[Any], new: Sequence[Any], index: int) -> bool:
    """Whether the first old message that comes back does so at an earlier place."""
    places = {_key(old[i]): i for i in range(len(old) - 1, index, -1)}
    back = ((i, places.get(_key(new[i]))) for i in range(index + 1, len(new)))
    found = next(((now, was) for now, was in back if was is not None), None)
    return found is not None and found[0] < found[1]


def _grown_by_summary(old: Sequence[Any], new: Sequence[Any], index: int) -> bool:
    """A summary was put behind the text of this message, and later messages left."""
    was, now = _text(old[index]), _text(new[index])
    told = now.startswith(was) and bool(SUMMARY.search(now[len(was) :]))
    return told and (len(new) < len(old) or _resumes_sooner(old, new, index))


def _compaction(old: Sequence[Any], new: Sequence[Any], index: int, num_lost: int) -> Change:
    text = _text(new[index])
    sure = 0.97 if _is_summary(new[index]) else 0.7
    shown = f"{num_lost} messages from {named(old, index)} on gave way to {quoted(text)}"
    if len(text) <= 200 and OMITTED.search(text) and not _is_summary(new[index]):
        return Change("history-pruned", 0.9, shown, f"from message {index} on")
    return Change("compaction", sure, shown, f"from message {index} on")


def _is_summary(message: Any) -> bool:
    text = _text(message)[:_READ_CHARS]
    return SUMMARY.search(text) is not None or len(set(_HEADINGS.findall(text.lower()))) >= 2


def _answers(message: Any) -> Any:
    return message.get("tool_call_id") if isinstance(message, Mapping) else None


def _text(message: Any) -> str:
    return text_of(content_of(message))
