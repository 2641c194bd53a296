"""Messages of two requests: the first that differs, and whether it changed, moved, left or was
replaced."""

from collections.abc import Sequence
from typing import Any

from duramen.layout.diagnose.change import Change, became, quoted
from duramen.layout.diagnose.message_fields import calls_of, message_changes, role_of
from duramen.layout.diagnose.message_keys import SYSTEM, aligned, key_of, same, text_in
from duramen.layout.diagnose.place import Place
from duramen.layout.diagnose.summaries import compaction_change, inserted_summary
from duramen.layout.diagnose.texts import without_blanks

_JOINT_CHARS = 24  # marks that a client puts between merged texts


def differing(old: Sequence[Any], new: Sequence[Any]) -> list[int]:
    """Indices at which both have a message and the two differ in what a prompt could show."""
    return [
        i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a is not b and not same(a, b)
    ]


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
    said = without_blanks(text_in(new[index]))
    if len(said) >= 4 and role_of(new[index]) == "assistant" and said in without_blanks(reply):
        gone = f"messages {index} to {len(old) - 1} left: {quoted(text_in(old[index]))}"
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
        or compaction_change(old, new, index)
    )


def _hoisted(old: Sequence[Any], new: Sequence[Any], index: int) -> Change | None:
    """A system message left its place for the head, or the head for a place of its own."""
    for one, other, way in ((old, new, "moved into"), (new, old, "left")):
        found = _hoisted_from(one, other, index)
        if found is not None:
            shown = f"{named(one, found)} {quoted(text_in(one[found]))} {way} message {index}"
            return Change("system-hoist", 1.0, shown, named(other, index))
    return None


def _hoisted_from(spread: Sequence[Any], joined: Sequence[Any], index: int) -> int | None:
    """The system message of `spread`, behind `index`, whose text stands at `index` in `joined`."""
    if role_of(joined[index]) not in SYSTEM:
        return None
    head = without_blanks(text_in(joined[index]))
    own = without_blanks(text_in(spread[index])) if role_of(spread[index]) in SYSTEM else ""
    added = head.replace(own, "", 1) if own in head else head
    is_put_before = own and own not in head  # then the neighbour did not move
    for i in range(index + 1 + bool(is_put_before), len(spread)):
        said = without_blanks(text_in(spread[i])) if role_of(spread[i]) in SYSTEM else ""
        kept = (
            i < len(joined)
            and role_of(joined[i]) in SYSTEM
            and said == without_blanks(text_in(joined[i]))
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
            texts = became(text_in(old[index]), text_in(new[index]))
            return Change("role-merge", 1.0, texts, shown)
    return None


def _says_all(apart: Sequence[Any], both: Any) -> bool:
    """Whether one message has the text and the calls of two."""
    texts = [without_blanks(text_in(message)) for message in apart]
    calls = [call for message in apart for call in calls_of(message)]
    if not texts[1] and not calls_of(apart[1]):
        return False
    said = without_blanks(text_in(both))
    first = said.find(texts[0])
    second = said.find(texts[1], first + len(texts[0]))
    joints = len(said) - len(texts[0]) - len(texts[1])
    in_order = min(first, second) >= 0 and (first == 0 or joints <= _JOINT_CHARS)
    close = second - first - len(texts[0]) <= _JOINT_CHARS
    return in_order and close and list(calls_of(both)) == calls


def _removed(old: Sequence[Any], new: Sequence[Any], index: int) -> Change | None:
    """Messages left or came, and behind them both go on alike."""
    here, there = key_of(new[index]), key_of(old[index])
    later = next((i for i in range(index + 1, len(old)) if key_of(old[i]) == here), None)
    if later is not None and not aligned(old, new, index):
        gone = f"messages {index} to {later - 1}" if later > index + 1 else named(old, index)
        shown = f"{gone} left: {quoted(text_in(old[index]))}"
        return Change("history-pruned", 0.95, shown, f"at message {index}")
    came = next((i for i in range(index + 1, len(new)) if key_of(new[i]) == there), None)
    if came is not None and not aligned(old, new, index):
        if found := inserted_summary(old, new, index, came):
            return found
        shown = f"{came - index} messages came before it: {quoted(text_in(new[index]))}"
        return Change("history-edited", 0.9, shown, f"at message {index}")
    return None
