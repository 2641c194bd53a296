"""Why a rendered prompt parts from another at one place, told from the text around it alone."""

import json
import re
from typing import Any

from duramen.layout.diagnose import json_text
from duramen.layout.diagnose.causes import Cause
from duramen.layout.diagnose.change import Change, became, quoted
from duramen.layout.diagnose.place import Place
from duramen.layout.diagnose.texts import (
    BEHIND_CHARS,
    COMMON_CHARS,
    OMITTED,
    SUMMARY,
    region_change,
    same_form,
    without_blanks,
)
from duramen.layout.diagnose.thinking import block_around, block_at, lone_close_at, unopened
from duramen.layout.diagnose.tools import tools_change
from duramen.layout.diff import differences

_CALL_KEYS = frozenset(["arguments", "parameters", "input", "args", "tool_input"])
_NAME_KEYS = frozenset(["name", "function", "tool", "tool_name", "action"])
_TOOL_KEYS = frozenset(["description", "parameters", "input_schema", "inputSchema", "strict"])
_CALL_TAG = re.compile(
    r"tool.{0,3}calls?|function.{0,3}calls?|<function=|call:|to=functions|tool.{0,3}sep|<invoke"
    r"|\[ARGS\]|<\|action|action input",
    re.I,
)
_ALIKE_CHARS = 48  # behind a difference: then both go on alike
_LONG_CHARS = 200
OPENED_ONLY = 0.85  # confidence where a tag is there that nothing closes
_TAG_CHARS = 100  # around thinking


def thinking_change(old: str, new: str, position: int) -> Change | None:
    """Thinking that one of the two shows at `position` and the other does not."""
    for one, other, way in ((old, new, "is left out"), (new, old, "has come")):
        block = block_at(one, position)
        if (
            block is None
            and (within := block_around(one, position))
            and position - within.start < 40
        ):
            block = within  # both open it, and then only one goes on
        if block is not None and block_at(other, block.start) is None:
            if block.is_empty and block.closed:
                return Change(
                    "empty-thinking", 1.0, f"{quoted(one[block.start : block.end])} {way}"
                )
            if not block.closed:
                tag = one[block.start : len(one) - len(block.inner)]
                return Change(
                    "thinking-stripped", OPENED_ONLY, f"{tag!r}, which opens thinking, {way}"
                )
            sure = 1.0 if one is old else 0.9
            return Change(
                "thinking-stripped", sure, f"thinking {quoted(block.inner.strip())} {way}"
            )
        rival = None if block is None else block_at(other, block.start)
        closed = block is not None and rival is not None and block.closed and rival.closed
        if closed and block and rival and block.is_empty != rival.is_empty:
            kept = block if rival.is_empty else rival
            return Change(
                "thinking-stripped", 1.0, f"thinking {quoted(kept.inner.strip())} is emptied"
            )
        closing = lone_close_at(one, position)
        if closing is not None and lone_close_at(other, position) is None:
            return Change("empty-thinking", 0.9, f"{closing!r} {way}")
    return None


def known_thinking_change(old: str, new: str, thought: str, position: int) -> Change | None:
    """What is known to have been thought stands at `position` in one of the texts only, whatever
    tags the template puts around it."""
    told = thought.strip()[:_LONG_CHARS]
    if not told:
        return None
    ends = max(position - len(told) - _TAG_CHARS, 0), position + len(told) + _TAG_CHARS
    was, now = (text.find(told, *ends) >= 0 for text in (old, new))
    if was == now:
        return None
    way = "is left out" if was else "has come"
    return Change("thinking-stripped", 0.97 if was else 0.9, f"thinking {quoted(told)} {way}")


def reply_thinking_change(old: str, new: str, reply: int, position: int) -> Change | None:
    """Thinking that a reply, which begins at `reply`, closes and never opened, and that is left out
    from there on."""
    block = unopened(old, reply)
    if block is None or not reply <= position < block.end:
        return None
    if (kept := unopened(new, reply)) is not None and kept.end - reply <= 2 * (block.end - reply):
        return None
    cause: Cause = "empty-thinking" if block.is_empty else "thinking-stripped"
    return Change(cause, 0.97, f"thinking {quoted(block.inner.strip())} is left out")


def passage_change(old: str, new: str, position: int, place: Place) -> Change | None:
    """None where nothing that is known explains it. The texts may go on for long behind
    `position`; a window around it is looked at."""
    low = max(position - COMMON_CHARS, 0)
    was, now = (str.__getitem__(t, slice(low, position + BEHIND_CHARS)) for t in (old, new))
    at = position - low
    return (
        _call_rewritten(was, now, at)
        or _other_blanks(was, now, at)
        or _other_form(was, now, at)
        or _tool_list(old, new, position)
        or _other_json(old, new, position)
        or _by_region(was, now, place)
    )


def _other_blanks(old: str, new: str, at: int) -> Change | None:
    """Only blanks differ first, and behind them both go on alike."""
    was, now = (without_blanks(text[at : at + 8 * _ALIKE_CHARS]) for text in (old, new))
    size = min(len(was), len(now), _ALIKE_CHARS)
    blank = any(text[at : at + 1].isspace() or not text[at:] for text in (old, new))
    if not blank or was[:size] != now[:size] or (size < 4 and was != now and len(was) > size):
        return None
    return Change(
        "whitespace", 0.95 if size >= 8 else 0.8, f"only blanks differ: {became(old, new)}"
    )


def _call_rewritten(old: str, new: str, at: int) -> Change | None:
    """The JSON of a tool call in another spelling, blanks included."""
    for pair in json_text.enclosing(old, new, at):
        how = json_text.spelling(pair.old, pair.new)
        if how == "respelled" and _is_call(pair, old, at):
            shown = f"the same tool call: {became(*pair)}"
            return Change("re-serialised-arguments", 0.95, shown)
    return None


def _is_call(pair: json_text.Pair, text: str, at: int) -> bool:
    """By its keys, or by the tag before it."""
    found = json_text.read(pair.old)
    value = found.value if found is not None else None
    first = value[0] if isinstance(value, list) and value else value
    if isinstance(first, dict) and _CALL_KEYS & first.keys() and _NAME_KEYS & first.keys():
        return True
    start = text.rfind(pair.old[:64], max(at - len(pair.old), 0), at + 64)
    return start >= 0 and _CALL_TAG.search(text, max(start - 80, 0), start) is not None


def _other_form(old: str, new: str, at: int) -> Change | None:
    low = max(at - 8, 0)
    was, now = old[low : at + _ALIKE_CHARS], new[low : at + _ALIKE_CHARS]
    region = differences(was, now)[0]
    ends = region.old_end + 8, region.end + 8
    form = same_form(was[: ends[0]], now[: ends[1]]) or same_form(
        was[: region.old_end], now[: region.end]
    )
    if form is None:
        return None
    return Change("unicode-normalisation", 0.95, f"equal in {form}: {became(old, new)}")


def _other_json(old: str, new: str, position: int) -> Change | None:
    for pair in json_text.enclosing(old, new, position):
        how = json_text.spelling(pair.old, pair.new)
        if how == "order":
            return Change("json-key-order", 0.98, f"the same JSON: {became(*pair)}")
        if how == "respelled":
            return Change("re-serialised-arguments", 0.9, f"the same JSON: {became(*pair)}")
    return None


def _tool_list(old: str, new: str, position: int) -> Change | None:
    """Tool definitions, in a list or a line each, that changed as tools do."""
    for pair in json_text.enclosing(old, new, position):
        lists = [json_text.read(text) for text in pair]
        values = [found.value for found in lists if found is not None]
        if len(values) == 2 and all(map(_are_tools, values)):
            return tools_change(*values)
    start = _first_row(old, position)
    was, now = _objects(old, start), _objects(new, start)
    return tools_change(was, now) if _are_tools(was) and _are_tools(now) else None


def _first_row(text: str, position: int) -> int:
    """The start of the first of the lines above `position` that each begin as a tool does."""
    low = max(position - json_text.MAX_CHARS, 0)
    row = text.rfind("\n", low, position) + 1
    while row > low:
        above = text.rfind("\n", low, row - 1) + 1
        if not text.startswith(('{"type"', '{"name"'), above):
            break
        row = above
    return row


def _objects(text: str, start: int) -> list[Any]:
    """JSON objects that follow each other from `start` on."""
    decoder = json.JSONDecoder()
    found: list[Any] = []
    while start < len(text) and len(found) < 1000:
        while start < len(text) and text[start] in " \t\r\n,[":
            start += 1
        if start >= len(text) or text[start] != "{":
            break
        try:
            value, start = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            break
        found.append(value)
    return found


def _are_tools(values: Any) -> bool:
    return isinstance(values, list) and bool(values) and all(map(_is_tool, values))


def _is_tool(value: Any) -> bool:
    function = value.get("function", value) if isinstance(value, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        return False
    return bool(_TOOL_KEYS & function.keys()) and "arguments" not in function


def _by_region(old: str, new: str, place: Place) -> Change | None:
    region = differences(old, new)[0]
    cut, put = old[region.old_start : region.old_end], new[region.start : region.end]
    lost = f"{quoted(cut)} gave way to {quoted(put)}"
    if len(cut) >= _LONG_CHARS and len(put) <= len(cut) // 2:
        if SUMMARY.search(put):
            return Change("compaction", 0.8, lost)
        if OMITTED.search(put) or not put.strip():
            return Change("history-pruned", 0.8, lost)
    found = region_change(old, new, region, place)
    return found if found.cause != "history-edited" else None
