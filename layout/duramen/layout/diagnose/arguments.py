"""Arguments of a tool call, in two requests: spelled otherwise, or changed."""

import json
from typing import Any

from duramen.layout.diagnose import json_text
from duramen.layout.diagnose.change import Change, became
from duramen.layout.diagnose.place import Place
from duramen.layout.diagnose.texts import text_change


def arguments_change(old: Any, new: Any, place: Place) -> Change | None:
    """None where both are the same text or the same JSON with its keys in the same order."""
    if isinstance(old, str) and isinstance(new, str):
        return _texts_change(old, new, place)
    was, now = (
        json_text.read(each) if isinstance(each, str) else json_text.Json(each)
        for each in (old, new)
    )
    if was is not None and now is not None and json_text.alike(was.value, now.value):
        shown = became(_written(old), _written(new))
        if not json_text.same_order(was.value, now.value):
            return Change("json-key-order", 1.0, f"the same values: {shown}")
        if isinstance(old, str) or isinstance(new, str) or _written(old) != _written(new):
            return Change("re-serialised-arguments", 0.95, f"the same values: {shown}")
        return None
    return _texts_change(_written(old), _written(new), place)


def _texts_change(old: str, new: str, place: Place) -> Change | None:
    if old == new:
        return None
    how = json_text.spelling(old, new)
    shown = became(old, new)
    if how == "order":
        return Change("json-key-order", 1.0, f"the same values: {shown}")
    if how == "respelled":
        return Change("re-serialised-arguments", 1.0, f"the same values: {shown}")
    if new.strip() in ("", "{}") and len(old.strip()) > 2:
        return Change("history-pruned", 0.85, f"the arguments are gone: {shown}")
    found = text_change(old, new, place)
    if found is not None and found.cause == "whitespace":
        return Change("re-serialised-arguments", 0.95, f"other blanks: {shown}")
    return found


def _written(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return repr(value)[:1000]
