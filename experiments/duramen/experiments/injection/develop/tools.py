"""Tool lists in another order, and other tools, of the half to develop on."""

from typing import Any

from duramen.experiments.injection.cases import Variant
from duramen.experiments.injection.tool_sets import changed_tools, tool

SEARCH = tool(
    "search_docs",
    "Search the manual.",
    query={"type": "string", "description": "words"},
    limit={"type": "integer", "minimum": 1, "maximum": 20},
)
PING = tool("ping", "Answer with pong.")
NOTE = tool("add_note", "Keep a note for later.", text={"type": "string"})


def _moved(tools: list[Any], start: int, to: int) -> list[Any]:
    chosen = tools.pop(start)
    tools.insert(to if to >= 0 else len(tools) + to + 1, chosen)
    return tools


def _order(name: str, change: Any, **more: Any) -> Variant:
    given = (SEARCH, NOTE, PING)
    return Variant("tool-order", name, changed_tools("tool-order", change, more=given, **more))


TOOL_ORDER = [
    _order("reversed", lambda tools, rng: tools[::-1]),
    _order("by name", lambda tools, rng: sorted(tools, key=lambda t: str(t["function"]["name"]))),
    _order("first to the end", lambda tools, rng: _moved(tools, 0, -1)),
    _order("last to the front", lambda tools, rng: _moved(tools, -1, 0)),
    _order("last two swapped", lambda tools, rng: [*tools[:-2], tools[-1], tools[-2]]),
    _order("first two swapped", lambda tools, rng: [tools[1], tools[0], *tools[2:]]),
    _order("shuffled", lambda tools, rng: rng.sample(tools, len(tools))),
    _order("rotated by two", lambda tools, rng: [*tools[2:], *tools[:2]]),
    _order(
        "shuffled between sessions", lambda tools, rng: rng.sample(tools, len(tools)), across=True
    ),
    _order("by length of the name", lambda tools, rng: sorted(tools, key=_name_length)),
]


def _name_length(definition: Any) -> tuple[int, str]:
    name = str(definition["function"]["name"])
    return len(name), name


def _with(tools: list[Any], index: int, **fields: Any) -> list[Any]:
    tools[index]["function"].update(fields)
    return tools


def _set(name: str, change: Any, **more: Any) -> Variant:
    more.setdefault("more", (SEARCH, PING))
    return Variant("tool-set-changed", name, changed_tools("tool-set-changed", change, **more))


TOOL_SET = [
    _set("added at the end", lambda tools, rng: [*tools, NOTE]),
    _set("added in front", lambda tools, rng: [NOTE, *tools]),
    _set("added in the middle", lambda tools, rng: [*tools[:1], NOTE, *tools[1:]]),
    _set("first removed", lambda tools, rng: tools[1:]),
    _set("last removed", lambda tools, rng: tools[:-1]),
    _set("renamed", lambda tools, rng: _with(tools, 0, name="lookup_v2")),
    _set("another description", lambda tools, rng: _with(tools, -1, description="Check liveness.")),
    _set(
        "one parameter more",
        lambda tools, rng: _with(
            tools,
            -2,
            parameters={
                **SEARCH["function"]["parameters"],
                "properties": {
                    **SEARCH["function"]["parameters"]["properties"],
                    "language": {"type": "string"},
                },
            },
        ),
    ),
    _set("replaced by others", lambda tools, rng: [NOTE, tool("submit", "Hand in the work.")]),
    _set("all removed", lambda tools, rng: [], also=("template-option",)),
    _set("added between sessions", lambda tools, rng: [*tools[:1], NOTE, *tools[1:]], across=True),
]


VARIANTS = [*TOOL_ORDER, *TOOL_SET]
