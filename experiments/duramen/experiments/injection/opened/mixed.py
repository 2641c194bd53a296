"""Two breaks at once, and look-alikes, of the half that was scored on, and then opened."""

from typing import Any

from duramen.experiments.injection.cases import Variant
from duramen.experiments.injection.forms import argument_keys, rewritten
from duramen.experiments.injection.history import (
    Edited,
    dropped,
    edited,
    output_cut,
    outputs_replaced,
    pruned,
)
from duramen.experiments.injection.mixes import (
    again,
    delivered,
    followed,
    led,
    same_text,
    then,
    unbroken,
)
from duramen.experiments.injection.opened.tools import FINISH, SHELL
from duramen.experiments.injection.opened.values import CLOCKS, COUNTERS, IDS
from duramen.experiments.injection.tool_sets import changed_tools
from duramen.experiments.injection.values import stamped
from duramen.experiments.spellings import Message, arguments_as_objects

EDITED = edited(Edited("reply", "Two files match.", "Three files match, one of them twice."))
COUNTER = stamped("counter", COUNTERS["words around, system head"])
OFFSET = stamped("clock", CLOCKS["French, system head"])
MORE_TOOLS = changed_tools("tool-set-changed", lambda tools, rng: [*tools, FINISH], more=(SHELL,))
CRLF = rewritten("whitespace", "user tail", lambda text: text.replace("\n", "\r\n"))
STALE = pruned(outputs_replaced("<stale/>", keep=0))


def _named(message: Message) -> Message:
    return {**message, "timestamp": 1_770_000_123.5, "message_id": f"m-{len(message)}"}


def _turned(tool: Any) -> Any:
    """Keys of the definition, not of the schema: they are written in one order anyway."""
    function = dict(reversed(tool["function"].items()))
    return {"function": function, "type": tool["type"]}


def _one_part(message: Message) -> Message:
    content = message.get("content")
    if not isinstance(content, str) or message["role"] == "system":
        return message
    parts = [{"type": "text", "text": content, "cache_control": {"type": "ephemeral"}}]
    return {**message, "content": parts}


VARIANTS = [
    Variant(
        "clock",
        "then an edited reply",
        then(OFFSET, EDITED),
    ),
    Variant(
        "clock",
        "then cut outputs",
        then(
            stamped("clock", CLOCKS["milliseconds, system tail"]),
            pruned(output_cut(0, 90, "(… beginning cut off)\n")),
        ),
    ),
    Variant(
        "uuid-or-hash",
        "then dropped turns",
        then(stamped("uuid-or-hash", IDS["uuid 7, system tail"]), pruned(dropped(0, 2))),
    ),
    Variant(
        "counter",
        "then argument keys",
        then(COUNTER, argument_keys("sorted")),
    ),
    Variant(
        "tool-order",
        "then stale outputs",
        then(
            changed_tools("tool-order", lambda tools, rng: tools[::-1], more=(SHELL, FINISH)), STALE
        ),
    ),
    Variant(
        "history-edited",
        "then other blanks",
        then(
            edited(Edited("user head", "Ship it on Friday.", "Ship it on Monday.")),
            rewritten("whitespace", "tool result", lambda text: text.replace("\n", "\n\n")),
        ),
    ),
    Variant(
        "history-edited",
        "then stale outputs",
        then(edited(Edited("user tail", "Bring a friend.", "Bring your own lamp.")), STALE),
    ),
    Variant("counter", "in a longer session", led(COUNTER)),
    Variant("counter", "then another tool", then(COUNTER, MORE_TOOLS)),
    Variant(
        "clock",
        "then an id",
        then(OFFSET, stamped("uuid-or-hash", IDS["base64 nonce, system tail"])),
    ),
    Variant("history-pruned", "in a longer session", led(STALE)),
    Variant("tool-set-changed", "in a longer session", led(MORE_TOOLS)),
    Variant("whitespace", "in a longer session", led(CRLF)),
    Variant(None, "after a counter moved", followed(COUNTER)),
    Variant(None, "after a tool came", followed(MORE_TOOLS)),
    Variant(None, "after turns were dropped", followed(pruned(dropped(0, 2)))),
    Variant(None, "fields of a framework", unbroken(_named)),
    Variant(None, "keys of tool definitions", unbroken(lambda m: m, tools=_turned)),
    Variant(None, "one part with a mark", unbroken(_one_part)),
    Variant(None, "arguments as objects", unbroken(arguments_as_objects)),
    Variant(None, "the same prompt again, unit 48", again(48, reported=True)),
    Variant(None, "the same prompt again", again(128, reported=False)),
    Variant(None, "all delivered, unit 64", delivered(64, {"model": "m"})),
    Variant(None, "all delivered, unit 8", delivered(8, {"replica": "x", "model": "m"})),
    Variant(
        None,
        "accents, one to the tokenizer",
        same_text("à bientôt, Zoë", "chatml@qwen2"),
        published=True,
    ),
]
