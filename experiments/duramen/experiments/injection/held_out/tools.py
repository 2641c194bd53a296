"""Tool lists in another order, and other tools, of the half that is only scored on."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any
from zlib import crc32

from duramen.experiments.injection.cases import Case, Make, Scene, Variant
from duramen.experiments.injection.lab import Lab
from duramen.experiments.injection.tool_sets import changed_tools, tool

ORDER = tool(
    "lookup_order",
    "Find an order of the customer by its number.",
    order_id={"type": "string", "pattern": "^[A-Z]{2}-[0-9]{6}$"},
    country={"type": "string", "enum": ["DE", "FR", "PL"]},
)
REFUND = tool(
    "issue_refund",
    "Refund all or part of an order to the original means of payment.",
    order_id={"type": "string"},
    amount={"type": "number", "minimum": 0.01, "maximum": 500},
    reason={"type": "string", "description": "One sentence, in the customer's language."},
)
SQL = tool(
    "run_sql",
    "Run a read-only query against the warehouse and return at most 200 rows.",
    query={"type": "string", "description": "A single SELECT statement."},
    timeout_s={"type": "integer", "default": 30},
)
CHART = tool(
    "plot_chart",
    "Draw a chart of the last result.",
    kind={"type": "string", "enum": ["bar", "line", "scatter"]},
    x={"type": "string"},
    y={"type": "array", "items": {"type": "string"}},
)
HANDOFF = tool(
    "transfer_to_human", "Hand the conversation over to a colleague.", note={"type": "string"}
)
JIRA = tool(
    "jira_create_issue",
    "Create an issue in the team's project.",
    summary={"type": "string"},
    labels={"type": "array", "items": {"type": "string"}},
)

Tools = list[Any]


def given_tools(make: Make) -> Make:
    """The same for a scene without tools, which gets some."""

    def make_with_tools(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        return make(scene if scene.tools else replace(scene, tools=(ORDER, SQL, REFUND)), rng, lab)

    return make_with_tools


def _name(definition: Any) -> str:
    return str(definition["function"]["name"])


def _order(name: str, change: Callable[[Tools, Any], Tools], **more: Any) -> Variant:
    given = (REFUND, SQL, JIRA, ORDER, CHART)
    return Variant("tool-order", name, changed_tools("tool-order", change, more=given, **more))


def _swapped(tools: Tools, i: int, j: int) -> Tools:
    tools[i], tools[j] = tools[j], tools[i]
    return tools


TOOL_ORDER = [
    _order("second server's tools first", lambda tools, rng: [*tools[-5:], *tools[:-5]]),
    _order("as a set of names iterates", lambda tools, rng: sorted(tools, key=_hashed)),
    _order("sorted by description", lambda tools, rng: sorted(tools, key=_description)),
    _order("most parameters first", lambda tools, rng: sorted(tools, key=_num_parameters)),
    _order("last used to the front", lambda tools, rng: [tools[-2], *tools[:-2], tools[-1]]),
    _order("third last moved to the end", lambda tools, rng: [*tools[:-3], *tools[-2:], tools[-3]]),
    _order("two neighbours swapped", lambda tools, rng: _swapped(tools, -3, -4)),
    _order("swapped two places apart", lambda tools, rng: _swapped(tools, -2, -4)),
    _order("own half reversed", lambda tools, rng: [*tools[:2], *tools[:1:-1]]),
    _order("servers interleaved", lambda tools, rng: [*tools[0::3], *tools[1::3], *tools[2::3]]),
    _order("last three rotated", lambda tools, rng: [*tools[:-3], tools[-1], *tools[-3:-1]]),
    _order(
        "names without case, later unsorted",
        lambda tools, rng: sorted(tools, key=lambda t: _name(t).lower()),
        undone=True,
    ),
    _order(
        "servers answer in another order, between sessions",
        lambda tools, rng: [*tools[-5:], *tools[:-5]],
        across=True,
    ),
    _order("two swapped between sessions", lambda tools, rng: _swapped(tools, -1, -2), across=True),
    _order(
        "as a set iterates, between sessions", lambda t, rng: sorted(t, key=_hashed), across=True
    ),
]


def _hashed(definition: Any) -> int:
    return crc32(_name(definition).encode())


def _description(definition: Any) -> str:
    return str(definition["function"].get("description"))


def _num_parameters(definition: Any) -> int:
    return -len(definition["function"].get("parameters", {}).get("properties", {}))


def _set(name: str, change: Callable[[Tools, Any], Tools], **more: Any) -> Variant:
    more.setdefault("more", (ORDER, SQL, REFUND))
    return Variant("tool-set-changed", name, changed_tools("tool-set-changed", change, **more))


def _parameters(tools: Tools, index: int, edit: Callable[[Any], None]) -> Tools:
    edit(tools[index]["function"]["parameters"])
    return tools


def _prefixed(tools: Tools) -> Tools:
    for each in tools:
        each["function"]["name"] = f"mcp__crm__{_name(each)}"
    return tools


def _without_timeout(schema: Any) -> None:
    del schema["properties"]["timeout_s"]
    schema["required"].remove("timeout_s")


def _titled(schema: Any) -> None:
    for name, parameter in schema["properties"].items():
        parameter["title"] = name.replace("_", " ").title()


def _described(tools: Tools, index: int, text: str) -> Tools:
    tools[index]["function"]["description"] = text
    return tools


TOOL_SET = [
    _set("refunds allowed after sign-in", lambda tools, rng: [*tools, HANDOFF, JIRA]),
    _set("handoff offered first", lambda tools, rng: [HANDOFF, *tools]),
    _set("server reconnected with one more", lambda tools, rng: [*tools[:-2], CHART, *tools[-2:]]),
    _set("used once and gone", lambda tools, rng: [*tools[:-2], tools[-1]]),
    _set("only reading in plan mode", lambda tools, rng: tools[:-1]),
    _set(
        "three gone when a server dropped",
        lambda tools, rng: tools[:-3],
        more=(ORDER, SQL, JIRA, REFUND),
    ),
    _set(
        "limit of a parameter raised",
        lambda tools, rng: _parameters(
            tools, -1, lambda s: s["properties"]["amount"].update(maximum=1_000)
        ),
    ),
    _set(
        "country added to a choice",
        lambda tools, rng: _parameters(
            tools, -3, lambda s: s["properties"]["country"]["enum"].append("ES")
        ),
    ),
    _set(
        "parameter taken out",
        lambda tools, rng: _parameters(tools, -2, _without_timeout),
    ),
    _set(
        "titles of a new schema generator",
        lambda tools, rng: _parameters(tools, -1, _titled),
    ),
    _set(
        "no additional properties",
        lambda tools, rng: _parameters(tools, -2, lambda s: s.update(additionalProperties=False)),
    ),
    _set("names with a server's prefix", lambda tools, rng: _prefixed(tools)),
    _set(
        "description translated",
        lambda tools, rng: _described(tools, -3, "Sucht eine Bestellung anhand ihrer Nummer."),
    ),
    _set(
        "description grew",
        lambda tools, rng: _described(
            tools,
            -2,
            "Run a read-only query against the warehouse and return at most 200 rows. Dates are in "
            "UTC; money is in cents.",
        ),
    ),
    _set("another tool in its place", lambda tools, rng: [*tools[:-1], CHART]),
    _set("chosen for the question", lambda tools, rng: [tools[0], CHART, JIRA], undone=True),
    _set("released between sessions", lambda tools, rng: [*tools, CHART], across=True),
    _set(
        "reworded between sessions",
        lambda tools, rng: _described(tools, -1, "Gives money back, up to the order's total."),
        across=True,
    ),
]

VARIANTS = [*TOOL_ORDER, *TOOL_SET]
