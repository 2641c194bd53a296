"""Messages that gave way to a summary of them: told by its words, or by what goes on behind it."""

import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from duramen.layout.diagnose.change import Change, quoted
from duramen.layout.diagnose.message_fields import calls_of, role_of
from duramen.layout.diagnose.message_keys import aligned, key_of, text_in
from duramen.layout.diagnose.texts import OMITTED, SUMMARY

_MANY = 3  # messages: an edit that starts anew seldom drops as many
_LONG_CHARS = 80
_READ_CHARS = 4_000
_MARK_CHARS = 200  # of a line that only says that something was left out
_HEADINGS = re.compile(  # under which summaries are written, or keys of them
    r"^[ \t]*(?:[#*_<\[-]+[ \t]*)?(goals?|done|next(?: steps?)?|to-?do|open(?: questions)?"
    r"|remaining|decisions?|findings?|state|status|progress|facts|tasks?|files|changes|pending"
    r"|completed|context|background|plan|ziel|erledigt|offen|objectif|fait|reste|objetivo|hecho)\b"
    r"[^\n]{0,20}$"
    r"|[\"'](goals?|done|next(?:[ _]?steps?)?|to-?do|open|remaining|decisions|findings|progress"
    r"|pending|completed)[\"']\s*:",
    re.M,
)
_TOLD_AGAIN = re.compile(
    r"summar|condens|compact|recap|zusammenfass|résum|resum|摘要|总结|要約|요약", re.I
)


def compaction_change(old: Sequence[Any], new: Sequence[Any], index: int) -> Change | None:
    """Several messages left and one or two stand for them; `index`: the first that differs."""
    if _grown_by_summary(old, new, index):
        return _compaction(old, new, index, max(num_lost(old, new, index), 1))
    answered = _answers(old[index])
    if aligned(old, new, index) or (answered is not None and answered == _answers(new[index])):
        return None
    lost = num_lost(old, new, index)
    summary = _is_summary(_stand_ins(old, new, index)) and not _is_summary(old[index : index + 1])
    if lost >= 2 and (summary or _resumes_sooner(old, new, index)):
        return _compaction(old, new, index, lost)
    other_role = role_of(old[index]) != role_of(new[index])
    if lost >= _MANY and len(new) < len(old) and _tells_other(old[index], new[index]):
        return _compaction(old, new, index, lost)
    if lost >= 2 and other_role and len(text_in(new[index])) * 2 >= _LONG_CHARS:
        return _compaction(old, new, index, lost)
    return None


def inserted_summary(
    old: Sequence[Any], new: Sequence[Any], index: int, came: int
) -> Change | None:
    """The messages from `index` to `came` of `new` were put before old[index], and stand for some
    that left behind it."""
    put = new[index:came]
    lost = num_lost(old, new, index)
    long = any(len(text_in(message)) >= _LONG_CHARS for message in put)
    if len(new) >= len(old) or not (_is_summary(put) or (long and lost >= 2)):
        return None
    return _compaction(old, new, index, max(lost, 1))


def num_lost(old: Sequence[Any], new: Sequence[Any], index: int) -> int:
    """Of the old messages from `index` on, those that are nowhere behind it."""
    behind = {key_of(message) for message in new[index:]}
    return sum(key_of(message) not in behind for message in old[index:])


def _stand_ins(old: Sequence[Any], new: Sequence[Any], index: int) -> Sequence[Any]:
    """The new message and what follows it, up to the next user message or one that is known."""
    known = {key_of(message) for message in old}
    rest = takewhile(lambda m: role_of(m) != "user" and key_of(m) not in known, new[index + 1 :])
    return [new[index], *rest]


def _tells_other(old: Any, new: Any) -> bool:
    """A text of some length that has little of the message in whose place it stands."""
    was, now = (set(text_in(message)[:_READ_CHARS].lower().split()) for message in (old, new))
    return len(text_in(new)) >= _LONG_CHARS and len(was & now) * 4 < len(now)


def _resumes_sooner(old: Sequence[Any], new: Sequence[Any], index: int) -> bool:
    """Whether the first old message that comes back does so at an earlier place."""
    places = {key_of(old[i]): i for i in range(len(old) - 1, index, -1)}
    back = ((i, places.get(key_of(new[i]))) for i in range(index + 1, len(new)))
    found = next(((now, was) for now, was in back if was is not None), None)
    return found is not None and found[0] < found[1]


def _grown_by_summary(old: Sequence[Any], new: Sequence[Any], index: int) -> bool:
    """A summary was put behind the text of this message, and later messages left."""
    was, now = text_in(old[index]), text_in(new[index])
    if not now.startswith(was) or not (len(new) < len(old) or _resumes_sooner(old, new, index)):
        return False
    put = now[len(was) :]
    gone = num_lost(old, new, index) > 2  # this message is one of them
    return SUMMARY.search(put) is not None or (gone and len(put.strip()) >= _LONG_CHARS)


def _compaction(old: Sequence[Any], new: Sequence[Any], index: int, lost: int) -> Change:
    text, where = text_in(new[index]), f"from message {index} on"
    told = _is_summary(_stand_ins(old, new, index))
    shown = f"{lost} messages from number {index} on gave way to {quoted(text)}"
    is_line = len(text) <= _MARK_CHARS and text.strip().count("\n") < 2
    is_mark = is_line and OMITTED.search(text) is not None
    if is_mark and not _TOLD_AGAIN.search(text):
        return Change("history-pruned", 0.9, shown, where)
    return Change("compaction", 0.97 if told else 0.7, shown, where)


def _is_summary(messages: Sequence[Any]) -> bool:
    """By its words, or by its headings."""
    text = "\n".join(_words(message) for message in messages)[:_READ_CHARS]
    headings = {"".join(found) for found in _HEADINGS.findall(text.lower())}
    return SUMMARY.search(text) is not None or len(headings) >= 2


def _words(message: Any) -> str:
    """With the names of the tools that it calls."""
    calls = [call for call in calls_of(message) if isinstance(call, Mapping)]
    functions = [call.get("function") for call in calls]
    names = [str(f.get("name")) for f in functions if isinstance(f, Mapping)]
    return " ".join([text_in(message), *names])


def _answers(message: Any) -> Any:
    return message.get("tool_call_id") if isinstance(message, Mapping) else None
