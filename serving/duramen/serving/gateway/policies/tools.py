"""Tool definitions in one order, so that a client that shuffles them keeps its prefix."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

Tool = Mapping[str, Any]

TOOL_KEYS = ("type", "function")
FUNCTION_KEYS = ("name", "description", "parameters", "strict")


def freeze(tools: list[Tool], frozen: Sequence[Tool] | None) -> tuple[list[Tool], str | None]:
    """The session's `frozen` tools where `tools` are the same but for their order and that of their
    keys, else `tools` in canonical order; and a line where that is not what the client sent.

    Tools that are no function definitions, or no JSON, are left alone. With a grammar (tool_choice
    required or named, strict) vLLM has a model write its arguments in the order of `properties`.
    """
    if not tools and not frozen:
        return tools, None
    try:
        return _freeze(tools, frozen)
    except (RecursionError, ValueError):  # nested too deeply, or a number too long to be written
        return tools, "tools left alone: they cannot be written as JSON"


def _freeze(tools: list[Tool], frozen: Sequence[Tool] | None) -> tuple[list[Tool], str | None]:
    names = [_name(tool) for tool in tools]
    if None in names:
        return tools, "tools left alone: not all of them are function definitions"
    if frozen is not None and json.dumps(tools) == json.dumps(frozen):
        return list(frozen), None
    canonical = sorted(map(_canonical, tools), key=lambda tool: (_name(tool), json.dumps(tool)))
    if frozen is not None:
        if line := _changes(frozen, canonical):
            return canonical, line
        return list(frozen), "tools frozen: order or keys were another"
    if json.dumps(tools) == json.dumps(canonical):
        return tools, None
    return canonical, "tools put into canonical order"


def _changes(frozen: Sequence[Tool], canonical: Sequence[Tool]) -> str | None:
    """Counts, without names: names are content."""
    old, new = _by_name(frozen), _by_name(canonical)
    if old == new:
        return None
    num_changed = sum(old[name] != new[name] for name in old.keys() & new.keys())
    counts = (
        (len(new.keys() - old.keys()), "added"),
        (len(old.keys() - new.keys()), "removed"),
        (num_changed, "changed"),
    )
    return "tools changed: " + ", ".join(f"{n} {what}" for n, what in counts if n)


def _by_name(tools: Sequence[Tool]) -> dict[str | None, list[str]]:
    """The definitions of each name, written in canonical order."""
    found: dict[str | None, list[str]] = {}
    for tool in tools:
        found.setdefault(_name(tool), []).append(json.dumps(_canonical(tool)))
    return {name: sorted(written) for name, written in found.items()}


def _name(tool: Any) -> str | None:
    function = tool.get("function") if isinstance(tool, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    return name if isinstance(name, str) else None


def _canonical(tool: Tool) -> Tool:
    ordered = _first(_sorted(tool), TOOL_KEYS)
    if isinstance(ordered.get("function"), dict):
        ordered["function"] = _first(ordered["function"], FUNCTION_KEYS)
    return ordered


def _sorted(value: Any) -> Any:
    """Keys sorted on all levels; lists keep their order."""
    if isinstance(value, Mapping):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(each) for each in value] if isinstance(value, list) else value


def _first(value: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    return {key: value[key] for key in (*(k for k in keys if k in value), *value)}
