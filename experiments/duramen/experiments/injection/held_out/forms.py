"""JSON keys and merged messages, in the half that is only scored on; see more_forms."""

from random import Random
from typing import Any

from duramen.experiments.injection.cases import Case, Make, Scene, Variant, parted
from duramen.experiments.injection.edits import Place, copied, reordered
from duramen.experiments.injection.forms import (
    Order,
    argument_keys,
    json_text,
    keys_in,
    lines,
    merged,
    schema_keys,
)
from duramen.experiments.injection.held_out import more_forms
from duramen.experiments.injection.held_out.tools import CHART, ORDER, REFUND, SQL, given_tools
from duramen.experiments.injection.lab import Lab
from duramen.experiments.trajectory import Call

CUSTOMER = {
    "customer_id": "K-88213",
    "name": "Jürgen Weiß",
    "locale": "de-DE",
    "tier": "gold",
    "address": {"street": "Hauptstraße 5", "zip": "50667", "city": "Köln"},
    "open_tickets": 2,
}
FRAME = {
    "table": "sales_daily",
    "columns": [
        {"name": "day", "dtype": "date", "nulls": 0},
        {"name": "net", "dtype": "decimal(12,2)", "nulls": 14},
    ],
    "rows": 48_211,
    "partitioned_by": "day",
}
CHART_SPEC = {
    "mark": {"type": "bar", "tooltip": True},
    "encoding": {
        "x": {"field": "region", "type": "nominal"},
        "y": {"field": "net", "aggregate": "sum"},
    },
    "width": 480,
}
PARCELS = [
    {"tracking": "JD0146", "carrier": "DHL", "status": "in transit", "eta_days": 2},
    {"tracking": "CB2209", "carrier": "Colissimo", "status": "delivered", "eta_days": 0},
]
LINT = {"rule": "no-shadow", "severity": "warning", "file": "src/cart.ts", "line": 88, "fix": None}


def python_text(value: Any, line: str, place: Place, order: Order) -> Make:
    """A Python dictionary as str() writes it, its keys in another order."""

    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        first, later = (str(each) for each in (value, reordered(value, keys_in(order, rng))))
        before, after = (line.replace("{}", text) for text in (first, later))
        return lines(scene, place, before, after, "json-key-order")

    return make


def keys_of_one(order: Order, given: Any, which: int, depth: int = 0) -> Make:
    """Of the scene's tools and those `given` behind them, one has its schema's keys turned."""

    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        tools = [*copied(scene.tools), *copied(given)]
        turned = copied(tools)
        function = turned[which]["function"]
        function["parameters"] = reordered(function["parameters"], keys_in(order, rng), depth)
        before, after = (
            Call(call.messages, call.reply, tools=tuple(sent))
            for call, sent in zip(scene.calls, (tools, turned), strict=True)
        )
        return parted(scene, before, after, "json-key-order")

    return make


GIVEN = (ORDER, REFUND, SQL, CHART)
KEY_ORDER = [
    Variant("json-key-order", name, make)
    for name, make in {
        "schema, inside parameters, sorted": given_tools(schema_keys("sorted", 2)),
        "schema of one tool, sorted": keys_of_one("sorted", GIVEN, -3),
        "names of one tool's parameters": keys_of_one("shuffled", GIVEN, -3, 1),
        "inside the parameters of the last tool": keys_of_one("reversed", GIVEN, -1, 2),
        "schema of the first tool, reversed": keys_of_one("reversed", GIVEN, 0),
        "arguments of the last call, sorted": argument_keys("sorted", -1),
        "arguments of the second call, shuffled": argument_keys("shuffled", 1),
        "arguments of the last call but one": argument_keys("reversed", -2),
        "customer record in the system text": json_text(
            CUSTOMER, "Kundendaten (CRM):\n{}", "system tail", "sorted", indent=2
        ),
        "customer record between tags": json_text(
            CUSTOMER, "<customer_record>{}</customer_record>", "user head", "shuffled"
        ),
        "table schema, columns only": json_text(
            FRAME, "You may query: {}", "system middle", "reversed", 1
        ),
        "table schema, tight": json_text(
            FRAME, "schema={}", "user tail", "shuffled", separators=(",", ":")
        ),
        "chart as an example in a description": given_tools(
            json_text(CHART_SPEC, "A spec looks like {}.", "tool description", "reversed")
        ),
        "parcels in a tool result": json_text(
            PARCELS, '{"ok": true, "parcels": {}}', "tool result", "shuffled"
        ),
        "finding in a reply, fenced": json_text(
            LINT, "I found one:\n```json\n{}\n```", "reply", "sorted", indent=4
        ),
        "few-shot output in the system text": json_text(
            CHART_SPEC, "Example output:\n{}", "system head", "shuffled"
        ),
        "dictionary as Python prints it": python_text(
            CUSTOMER, "Profile of the caller: {}", "system tail", "shuffled"
        ),
    }.items()
]


def _said(role: str, *texts: str) -> list[Any]:
    return [{"role": role, "content": text} for text in texts]


def _calling(text: str, name: str, arguments: str) -> Any:
    function = {"name": name, "arguments": arguments}
    call = {"id": "toolu_m01", "type": "function", "function": function}
    return {"role": "assistant", "content": text, "tool_calls": [call]}


MERGED = [
    Variant("role-merge", name, make)
    for name, make in (
        (
            "two chat messages in Spanish",
            merged(_said("user", "Buenas tardes.", "¿Me pueden ayudar?"), "\n", at=2),
        ),
        (
            "three quick messages",
            merged(_said("user", "hi", "my parcel is late", "order DE-204417"), "\n", at=1),
        ),
        (
            "system reminder behind a user's text",
            merged(
                _said(
                    "user",
                    "Also check the tests.",
                    "<system-reminder>The todo list is empty.</system-reminder>",
                ),
                "\n\n",
                at=3,
            ),
        ),
        ("with a blank between", merged(_said("user", "Ja,", "bitte stornieren."), " ", at=4)),
        (
            "bulleted",
            merged(_said("user", "- Group by region.", "- Leave out refunds."), "\n", at=2),
        ),
        (
            "assistant's notice and answer",
            merged(_said("assistant", "One moment, please.", "Your parcel is here."), "\n\n", at=3),
        ),
        (
            "assistant, streamed in two",
            merged(_said("assistant", "The join is", " missing a key."), "", at=5),
        ),
        (
            "brand rules and country rules",
            merged(
                _said("system", "Use the formal Sie.", "Refunds above 100 EUR need a human."),
                "\n\n",
                at=1,
            ),
        ),
        (
            "three developer notes",
            merged(_said("developer", "Use pnpm.", "No force push.", "Small commits."), "\n", at=1),
        ),
        (
            "two chat messages, undone",
            merged(_said("user", "Bonjour !", "Ma commande ?"), "\n", at=2, undone=True),
        ),
        (
            "assistant in one, undone",
            merged(
                _said("assistant", "Query is running.", "It returned 12 rows."),
                "\n\n",
                at=3,
                undone=True,
            ),
        ),
        (
            "sentence in front of a call",
            merged(
                [
                    *_said("assistant", "I look up the order first."),
                    _calling("", "lookup_order", '{"order_id": "FR-118302"}'),
                ],
                "",
                at=2,
            ),
        ),
    )
]

VARIANTS = [*KEY_ORDER, *more_forms.VARIANTS, *MERGED]
