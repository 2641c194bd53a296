"""Tool lists in another order, and other tools, of the half that was scored on, and then opened."""

from typing import Any

from duramen.experiments.injection.cases import Variant
from duramen.experiments.injection.tool_sets import changed_tools, tool

WEATHER = tool(
    "get_weather",
    "Current weather of a city, in degrees Celsius.",
    city={"type": "string", "description": "City, with its country."},
    units={"type": "string", "enum": ["metric", "imperial"], "default": "metric"},
)
SHELL = tool("shell", "Run a command.", command={"type": "array", "items": {"type": "string"}})
FINISH = tool("finish", "Say that the task is done.", success={"type": "boolean"})


def _tool_name(definition: Any) -> str:
    return str(definition["function"]["name"])


def _order(name: str, change: Any, **more: Any) -> Variant:
    given = (WEATHER, SHELL, FINISH)
    return Variant("tool-order", name, changed_tools("tool-order", change, more=given, **more))


TOOL_ORDER = [
    _order("by name, falling", lambda tools, rng: sorted(tools, key=_tool_name, reverse=True)),
    _order(
        "halves swapped", lambda tools, rng: [*tools[len(tools) // 2 :], *tools[: len(tools) // 2]]
    ),
    _order("first and last swapped", lambda tools, rng: [tools[-1], *tools[1:-1], tools[0]]),
    _order("all but the first turned", lambda tools, rng: [tools[0], *tools[:0:-1]]),
    _order("second to the front", lambda tools, rng: [tools[1], tools[0], *tools[2:]], undone=True),
    _order("odd ones first", lambda tools, rng: [*tools[1::2], *tools[::2]]),
    _order("by size", lambda tools, rng: sorted(tools, key=lambda t: -len(str(t)))),
    _order("last one up by one", lambda tools, rng: [*tools[:-2], tools[-1], tools[-2]]),
    _order("turned between sessions", lambda tools, rng: tools[::-1], across=True),
    _order("drawn anew", lambda tools, rng: sorted(tools, key=lambda t: rng.random())),
]


def _edited(tools: list[Any], index: int, path: tuple[str, ...], value: Any) -> list[Any]:
    inner = tools[index]["function"]
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return tools


def _set(name: str, change: Any, **more: Any) -> Variant:
    more.setdefault("more", (SHELL, WEATHER))
    return Variant("tool-set-changed", name, changed_tools("tool-set-changed", change, **more))


UNITS = ("parameters", "properties", "units")
TOOL_SET = [
    _set("two added", lambda tools, rng: [*tools, FINISH, tool("noop", "Do nothing.")]),
    _set("second removed", lambda tools, rng: [tools[0], *tools[2:]]),
    _set(
        "enum longer",
        lambda tools, rng: _edited(tools, -1, (*UNITS, "enum"), ["metric", "imperial", "si"]),
    ),
    _set("default changed", lambda tools, rng: _edited(tools, -1, (*UNITS, "default"), "imperial")),
    _set("type changed", lambda tools, rng: _edited(tools, -1, (*UNITS, "type"), "integer")),
    _set(
        "no longer required",
        lambda tools, rng: _edited(tools, -1, ("parameters", "required"), ["city"]),
    ),
    _set(
        "sentence added to a description",
        lambda tools, rng: _edited(
            tools,
            0,
            ("description",),
            f"{tools[0]['function'].get('description')} Use it sparingly.",
        ),
    ),
    _set("only the last kept", lambda tools, rng: tools[-1:]),
    _set("tools come later", lambda tools, rng: [], undone=True, also=("template-option",)),
    _set("one swapped for another", lambda tools, rng: [*tools[:-1], FINISH]),
    _set("removed between sessions", lambda tools, rng: tools[1:], across=True),
]


VARIANTS = [*TOOL_ORDER, *TOOL_SET]
