"""One message in two requests: which of its fields changed, and why."""

from collections.abc import Mapping, Sequence
from typing import Any

from duramen.layout.diagnose.arguments import arguments_change
from duramen.layout.diagnose.change import Change, became, quoted
from duramen.layout.diagnose.media import media_change, media_of
from duramen.layout.diagnose.place import Place
from duramen.layout.diagnose.texts import text_change, without_blanks
from duramen.layout.diagnose.thinking import split_thinking

_THOUGHT = ("reasoning", "reasoning_content", "thinking", "reasoning_details", "thinking_blocks")
_THOUGHT_PARTS = ("thinking", "reasoning", "redacted_thinking", "thought")


def role_of(message: Any) -> str:
    role = message.get("role") if isinstance(message, Mapping) else None
    return role if isinstance(role, str) else "?"


def content_of(message: Any) -> Any:
    return message.get("content") if isinstance(message, Mapping) else message


def text_of(content: Any) -> str:
    """The text of content in either form; parts that are no text as what they are, data by its
    size and hash."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        return "\n".join(_part_text(part) for part in content if not _is_thought(part))
    return repr(content)


def _part_text(part: Any) -> str:
    if isinstance(part, str):
        return part
    text = part.get("text") if isinstance(part, Mapping) else None
    if isinstance(text, str):
        return text
    if (media := media_of(part)) is not None:
        return str(media)
    shown = (
        {k: v for k, v in part.items() if k != "cache_control"}
        if isinstance(part, Mapping)
        else part
    )
    return repr(shown)


def _is_thought(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") in _THOUGHT_PARTS


def thought_of(message: Any) -> str | None:
    """What the message says that was thought, outside its text; None where it says nothing."""
    if not isinstance(message, Mapping):
        return None
    for name in _THOUGHT:
        if (given := message.get(name)) is not None:
            return given if isinstance(given, str) else repr(given)
    content = message.get("content")
    if isinstance(content, Sequence) and not isinstance(content, str):
        parts = [part for part in content if _is_thought(part)]
        if parts:
            return "\n".join(str(p.get("thinking") or p.get("text") or p) for p in parts)
    return None


def calls_of(message: Any) -> Sequence[Any]:
    calls = message.get("tool_calls") if isinstance(message, Mapping) else None
    return calls if isinstance(calls, Sequence) and not isinstance(calls, str) else ()


def message_changes(old: Any, new: Any, place: Place) -> list[Change]:
    """Why the fields that a prompt could show differ, in the order in which templates write them:
    role, thinking, content, tool calls, what a result answers. Empty where none differs."""
    found = [
        _role_change(old, new),
        _thought_change(old, new),
        _content_change(old, new, place),
        _calls_change(old, new, place),
        *(_id_change(old, new, name) for name in ("tool_call_id", "name")),
    ]
    return [change for change in found if change is not None]


def _role_change(old: Any, new: Any) -> Change | None:
    was, now = role_of(old), role_of(new)
    if was == now:
        return None
    return Change("history-edited", 0.9, f"role {was} became {now}", "role")


def _thought_change(old: Any, new: Any) -> Change | None:
    was, now = thought_of(old), thought_of(new)
    if was == now or (not was and not now and (was is None) == (now is None)):
        return None
    blank, now_blank = not (was or "").strip(), not (now or "").strip()
    if blank and now_blank:
        return None
    if was is not None and now is not None and not blank and not now_blank:
        return _reworded(was, now)
    kept = now if blank else was
    inside = split_thinking(text_of(content_of(new if now_blank else old)))[0]
    if without_blanks(inside) == without_blanks(kept or ""):
        return Change("history-edited", 0.6, "thinking moved into or out of the text", "thinking")
    gone = "has come" if blank else "is gone"
    return Change(
        "thinking-stripped",
        0.9 if blank else 1.0,
        f"thinking {quoted(kept or '')} {gone}",
        "thinking",
    )


def _reworded(old: str, new: str) -> Change:
    if without_blanks(old) == without_blanks(new):
        return Change("whitespace", 0.95, f"only blanks differ: {became(old, new)}", "thinking")
    return Change("history-edited", 0.9, became(old, new), "thinking")


def _content_change(old: Any, new: Any, place: Place) -> Change | None:
    was, now = content_of(old), content_of(new)
    if was == now or (not was and not now):
        return None
    text, new_text = text_of(was), text_of(now)
    form, new_form = _form(was), _form(now)
    if form != new_form and without_blanks(text) == without_blanks(new_text):
        shown = f"content was {form} and is {new_form}"
        return Change("content-parts-vs-string", 1.0 if text == new_text else 0.9, shown, "content")
    found = media_change(was, now) or text_change(text, new_text, place)
    return None if found is None else found.at("content")


def _form(content: Any) -> str:
    if content is None:
        return "null"
    if isinstance(content, str):
        return "a text"
    return f"a list of {len(content)} parts" if isinstance(content, Sequence) else "no text"


def _calls_change(old: Any, new: Any, place: Place) -> Change | None:
    was, now = calls_of(old), calls_of(new)
    for i, (call, new_call) in enumerate(zip(was, now, strict=False)):
        if found := _call_change(call, new_call, place):
            return found.at(f"tool call {i}")
    if len(was) > len(now):
        return Change(
            "history-pruned", 0.8, f"{len(was)} tool calls became {len(now)}", "tool calls"
        )
    if len(was) < len(now):
        return Change(
            "history-edited", 0.9, f"{len(was)} tool calls became {len(now)}", "tool calls"
        )
    return None


def _call_change(old: Any, new: Any, place: Place) -> Change | None:
    function, new_function = _function(old), _function(new)
    if found := _id_change(old, new, "id"):
        return found
    name, new_name = function.get("name"), new_function.get("name")
    if name != new_name:
        return Change("history-edited", 0.9, f"{name} became {new_name}", "name")
    found = arguments_change(function.get("arguments"), new_function.get("arguments"), place)
    return None if found is None else found.at(f"arguments of {name}")


def _function(call: Any) -> Mapping[str, Any]:
    function = call.get("function", call) if isinstance(call, Mapping) else None
    return function if isinstance(function, Mapping) else {}


def _id_change(old: Any, new: Any, name: str) -> Change | None:
    was, now = (each.get(name) if isinstance(each, Mapping) else None for each in (old, new))
    if was == now:
        return None
    if was is None or now is None:
        return Change("history-edited", 0.5, f"{name} {was!r:.60} became {now!r:.60}", name)
    cause = "history-edited" if name == "name" else "uuid-or-hash"
    return Change(cause, 0.8, f"{was!r:.60} became {now!r:.60}", name)  # type: ignore[arg-type]
