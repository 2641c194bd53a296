"""Two breaks at once, and look-alikes, of the half that is only scored on."""

import json
from dataclasses import replace
from random import Random
from typing import Any

from duramen.experiments.injection.cases import Case, Make, Scene, Variant, parted
from duramen.experiments.injection.edits import text_of, with_message
from duramen.experiments.injection.forms import argument_keys, json_text, rewritten
from duramen.experiments.injection.held_out.forms import CUSTOMER
from duramen.experiments.injection.held_out.history import first_lines
from duramen.experiments.injection.held_out.more_values import COUNTERS, IDS
from duramen.experiments.injection.held_out.tools import CHART, HANDOFF, ORDER, SQL, given_tools
from duramen.experiments.injection.held_out.values import CLOCKS
from duramen.experiments.injection.history import (
    Edited,
    dropped,
    edited,
    output_cut,
    outputs_replaced,
    pruned,
)
from duramen.experiments.injection.lab import Lab
from duramen.experiments.injection.mixes import (
    again,
    delivered,
    followed,
    led,
    same_text,
    then,
    unbroken,
)
from duramen.experiments.injection.oracle import part_of
from duramen.experiments.injection.tool_sets import changed_tools
from duramen.experiments.injection.values import stamped
from duramen.experiments.spellings import Message

GERMAN_CLOCK = stamped("clock", CLOCKS["German service desk, system head"])
SYSTEM_TIME = stamped("clock", CLOCKS["graph agent's system time, system tail"])
FINGERPRINT = stamped("uuid-or-hash", IDS["crew member's fingerprint, system head"])
STEPS_LEFT = stamped("counter", COUNTERS["German steps left, system tail"])
POLICY = edited(
    Edited("system head", "Returns: 14 days.", "Returns: 30 days, unused and in the box.")
)
OWNED = edited(Edited("reply", "I have booked it.", "I have not booked anything yet."))
SWAPPED = changed_tools(
    "tool-order", lambda tools, rng: [*tools[-2:], *tools[:-2]], more=(ORDER, SQL, HANDOFF)
)
NEW_TOOL = changed_tools("tool-set-changed", lambda tools, rng: [*tools, CHART], more=(ORDER,))
STUBS = pruned(outputs_replaced("[tool result removed to free context]", keep=0))
TRIMMED = rewritten("whitespace", "system tail", lambda text: f"{text}\n\n")
RECORD = json_text(CUSTOMER, "Contact on file: {}", "system head", "shuffled")


def newest_only(line: str, first: str, later: str) -> Make:
    """A value that moves on, in the newest message of each call alone, where it belongs."""

    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        before, after = scene.calls
        old, new = len(before.messages) - 1, len(after.messages) - 1
        if not text_of(before.messages[old]) or not text_of(after.messages[new]):
            return None
        said = f"{text_of(before.messages[old])}\n\n{line.replace('{}', first)}"
        newest = f"{text_of(after.messages[new])}\n\n{line.replace('{}', later)}"
        before = with_message(before, old, content=said)
        after = with_message(with_message(after, old, content=said), new, content=newest)
        case = parted(scene, before, after, None)
        return replace(case, parts=False) if part_of(lab, case) is None else None

    return make


def _streamed(message: Message) -> Message:
    """As a client that collects a stream keeps it: an index on each call."""
    calls = message.get("tool_calls")
    if not calls:
        return {**message, "function_call": None} if message["role"] == "assistant" else message
    return {**message, "tool_calls": [{"index": i, **call} for i, call in enumerate(calls)]}


def _routed(message: Message) -> Message:
    """As a router library returns it."""
    if message["role"] != "assistant":
        return message
    return {**message, "provider_specific_fields": {"refusal": None}, "images": []}


def _laid_out(message: Message) -> Message:
    """Arguments with other blanks, which no template sees."""
    calls = message.get("tool_calls")
    if not calls:
        return {**message, "metadata": {}}
    changed = []
    for call in calls:
        function = call["function"]
        try:
            arguments = json.dumps(json.loads(function["arguments"]), indent=4)
        except ValueError:
            arguments = function["arguments"]
        changed.append({**call, "function": {**function, "arguments": arguments}})
    return {**message, "tool_calls": changed}


def _results_as_parts(message: Message) -> Message:
    content = message.get("content")
    if message["role"] != "tool" or not isinstance(content, str) or not content:
        return {**message, "uuid": "b1f6"}
    return {**message, "content": [{"type": "text", "text": content}]}


def _tagged(tool: Any) -> Any:
    """Fields of a definition that are no part of what a model reads."""
    return {**tool, "cache_control": {"type": "ephemeral"}, "server": "crm"}


def _alike(name: str, make: Make, *, published: bool = False) -> Variant:
    return Variant(None, name, make, published)


VARIANTS = [
    Variant("clock", "then a corrected reply", then(GERMAN_CLOCK, OWNED)),
    Variant("clock", "then stubs for outputs", then(SYSTEM_TIME, STUBS)),
    Variant("clock", "then steps left", then(GERMAN_CLOCK, STEPS_LEFT)),
    Variant("clock", "late in a session", led(SYSTEM_TIME)),
    Variant("uuid-or-hash", "then tools in another order", then(FINGERPRINT, SWAPPED)),
    Variant("uuid-or-hash", "then a turn left out", then(FINGERPRINT, pruned(dropped(0, 1)))),
    Variant("uuid-or-hash", "late in a session", led(FINGERPRINT)),
    Variant("counter", "then an edited reply", then(STEPS_LEFT, OWNED)),
    Variant("counter", "late in a session", led(STEPS_LEFT)),
    Variant("json-key-order", "then stubs for outputs", then(RECORD, STUBS)),
    Variant("tool-order", "then argument keys", then(SWAPPED, argument_keys("reversed"))),
    Variant("tool-set-changed", "then an edited reply", then(NEW_TOOL, OWNED)),
    Variant("tool-set-changed", "late in a session", led(NEW_TOOL)),
    Variant("history-edited", "then first lines only", then(POLICY, pruned(first_lines(3, "...")))),
    Variant("history-edited", "late in a session", led(POLICY)),
    Variant("whitespace", "then stubs for outputs", then(TRIMMED, STUBS)),
    Variant(
        "history-pruned",
        "late in a session",
        led(pruned(output_cut(150, 0, "\n[output truncated]", which=-1))),
    ),
    _alike("after the clock of a desk moved", followed(GERMAN_CLOCK)),
    _alike("after a policy was changed", followed(POLICY)),
    _alike("after tools were swapped", followed(SWAPPED)),
    _alike("after outputs became stubs", followed(STUBS)),
    _alike("time in the newest message", newest_only("[sent at {}]", "2025-06-02 09:14", "09:15")),
    _alike("turns left in the newest message", newest_only("({} turns left)", "19", "18")),
    _alike("message id in the newest message", newest_only("<!-- {} -->", "m-71bc", "m-90fe")),
    _alike("calls with an index", unbroken(_streamed)),
    _alike("fields of a router", unbroken(_routed)),
    _alike("arguments laid out otherwise", unbroken(_laid_out)),
    _alike("tool results as one part", unbroken(_results_as_parts)),
    _alike(
        "marks on tool definitions", given_tools(unbroken(lambda message: message, tools=_tagged))
    ),
    _alike("asked twice, blocks of 24", again(24, reported=True)),
    _alike("asked twice, blocks of 64", again(64, reported=False)),
    _alike("all delivered, blocks of 48", delivered(48, {"salt": "desk-de"})),
    _alike("all delivered, blocks of 128", delivered(128, {"replica": "paris-1"})),
    _alike(
        "French accents, one to the tokenizer",
        same_text("Où est mon colis ? Déjà expédié à Nîmes.", "chatml@qwen2"),
        published=True,
    ),
]
