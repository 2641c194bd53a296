"""Tool definitions of two requests: another order, another set, or definitions that changed."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from duramen.layout.diagnose import json_text
from duramen.layout.diagnose.change import Change, became, quoted
from duramen.layout.diagnose.place import ROOT
from duramen.layout.diagnose.texts import text_change

_VALUES = frozenset(["clock", "uuid-or-hash", "counter", "whitespace", "unicode-normalisation"])


def tools_change(old: Sequence[Any], new: Sequence[Any]) -> Change | None:
    """Why the tools differ, by the first tool that does; None where they are equal."""
    first = next(
        (i for i, (a, b) in enumerate(zip(old, new, strict=False)) if _text(a) != _text(b)), None
    )
    if first is None and len(old) == len(new):
        return None
    if not old or not new:
        gone, none = ("are left out", len(old)) if old else ("have come", len(new))
        shown, mend = f"tools on/off: all {none} tools {gone}", "send the same tools in every call"
        return Change("template-option", 0.9, shown, "the tools", mend)
    first = min(len(old), len(new)) if first is None else first
    names, new_names = [tool_name(t) for t in old], [tool_name(t) for t in new]
    was = names[first] if first < len(names) else None
    now = new_names[first] if first < len(new_names) else None
    if was == now:
        return _definition_change(old[first], new[first]).at(f"tool {first} ({was})")
    return _list_change(old, new, was, now, first)


def tool_name(tool: Any) -> str:
    """ "?" where a definition names none."""
    function = tool.get("function", tool) if isinstance(tool, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    return name if isinstance(name, str) else "?"


def _list_change(
    old: Sequence[Any], new: Sequence[Any], was: str | None, now: str | None, first: int
) -> Change:
    names, new_names = [tool_name(t) for t in old], [tool_name(t) for t in new]
    removed = [name for name in names if name not in set(new_names)]
    added = [name for name in new_names if name not in set(names)]
    if was not in removed and now not in added and was is not None and now is not None:
        shown = f"{quoted(', '.join(names))} became {quoted(', '.join(new_names))}"
        sure = 1.0 if not removed and not added else 0.9
        return Change("tool-order", sure, shown, f"the tools from {first} on")
    if was in removed and now in added and len(old) == len(new):
        found = text_change(str(was), str(now), ROOT)
        if found is not None and found.cause == "uuid-or-hash":
            return found.at(f"the name of tool {first}")
    parts = [f"removed {quoted(', '.join(removed))}"] if removed else []
    parts += [f"added {quoted(', '.join(added))}"] if added else []
    parts = parts or [f"{len(old)} tools became {len(new)}"]
    return Change("tool-set-changed", 1.0, " and ".join(parts), f"the tools from {first} on")


def _definition_change(old: Any, new: Any) -> Change:
    shown = became(_text(old), _text(new))
    if json_text.alike(old, new):
        if not json_text.same_order(old, new):
            return Change("json-key-order", 1.0, f"the same definition: {shown}")
        return Change("re-serialised-arguments", 0.7, f"the same definition: {shown}")
    if json_text.alike(json_text.sorted_words(old), json_text.sorted_words(new)):
        shown = f"a list in another order: {shown}"
        return Change("json-key-order", 0.7, shown, mend="keep the list's order")
    path, was, now = first_difference(old, new)
    where = ".".join(path) or "the definition"
    if path and path[-1] == "(keys)":
        where = ".".join(path[:-1]) or "the definition"
        if set(was) == set(now):
            return Change("json-key-order", 0.9, f"the same keys: {shown}", where)
    if isinstance(was, str) and isinstance(now, str):
        found = text_change(was, now, ROOT)
        if found is not None and found.cause in _VALUES | {"json-key-order"}:
            return found.at(where)
        shown = became(was, now)
    elif _is_number(was) and _is_number(now):
        shown = f"{was} became {now}"
        found = text_change(f"{path[-1]}: {was}", f"{path[-1]}: {now}", ROOT) if path else None
        if found is not None and found.cause == "clock":
            return found.at(where)
    mend = "keep the definition of the first call; put what changes into the newest message"
    return Change("tool-set-changed", 1.0, shown, where, mend)


def first_difference(old: Any, new: Any) -> tuple[list[str], Any, Any]:
    """The path to the first value that differs, in the order of the old keys, and both values;
    "(keys)" ends it where the keys themselves differ there."""
    path: list[str] = []
    while True:
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            for (key, was), (other, now) in zip(old.items(), new.items(), strict=False):
                if key != other:
                    return [*path, "(keys)"], list(old), list(new)
                if _text(was) != _text(now):
                    path, old, new = [*path, str(key)], was, now
                    break
            else:
                return [*path, "(keys)"], list(old), list(new)
        elif isinstance(old, list) and isinstance(new, list):
            both = enumerate(zip(old, new, strict=False))
            step = next(((i, a, b) for i, (a, b) in both if _text(a) != _text(b)), None)
            if step is None:
                return path, old, new
            path, old, new = [*path, str(step[0])], step[1], step[2]
        else:
            return path, old, new


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return repr(value)[:100_000]
