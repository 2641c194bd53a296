"""Two breaks at once, and look-alikes, of the half to develop on."""

from duramen.experiments.injection.cases import Variant
from duramen.experiments.injection.develop.tools import NOTE, SEARCH
from duramen.experiments.injection.develop.values import CLOCKS, COUNTERS, IDS
from duramen.experiments.injection.forms import argument_keys, rewritten, schema_keys
from duramen.experiments.injection.history import Edited, edited, outputs_replaced, pruned
from duramen.experiments.injection.mixes import (
    again,
    delivered,
    followed,
    led,
    same_text,
    then,
    unbroken,
)
from duramen.experiments.injection.tool_sets import changed_tools
from duramen.experiments.injection.values import stamped
from duramen.experiments.spellings import (
    Message,
    as_parts,
    reasoning_renamed,
    reordered,
    with_more_fields,
    with_other_call_ids,
)

CLOCK = stamped("clock", CLOCKS["second, system head"])
CLEARED = pruned(outputs_replaced("[Old tool result content cleared]", keep=0))
REQUEST = stamped("uuid-or-hash", IDS["uuid, system head"])
TURNED = changed_tools("tool-order", lambda tools, rng: tools[::-1], more=(SEARCH, NOTE))
TOLD = edited(Edited("reply", "The log is empty.", "The log has four lines."))


def _thought(message: Message) -> Message:
    thought = {"reasoning": "I look first."} if message["role"] == "assistant" else {}
    return {**message, **thought}


VARIANTS = [
    Variant("clock", "then pruned history", then(CLOCK, CLEARED)),
    Variant("clock", "then an edited reply", then(CLOCK, TOLD)),
    Variant(
        "uuid-or-hash",
        "then other argument keys",
        then(REQUEST, argument_keys("reversed")),
    ),
    Variant(
        "counter",
        "then pruned history",
        then(stamped("counter", COUNTERS["step of, system head"]), CLEARED),
    ),
    Variant("json-key-order", "then an edited reply", then(schema_keys("reversed", 0), TOLD)),
    Variant(
        "history-edited",
        "then pruned history",
        then(edited(Edited("user head", "Use port 80.", "Use the other port.")), CLEARED),
    ),
    Variant(
        "whitespace",
        "then an edited reply",
        then(rewritten("whitespace", "system tail", lambda t: t + " \n"), TOLD),
    ),
    Variant("clock", "in a longer session", led(CLOCK)),
    Variant("clock", "then tools in another order", then(CLOCK, TURNED)),
    Variant(
        "uuid-or-hash",
        "then a clock",
        then(REQUEST, stamped("clock", CLOCKS["German, system tail"])),
    ),
    Variant("history-pruned", "in a longer session", led(CLEARED)),
    Variant("tool-order", "in a longer session", led(TURNED)),
    Variant("history-edited", "in a longer session", led(TOLD)),
    Variant(None, "after a clock moved", followed(CLOCK)),
    Variant(None, "after a reply was edited", followed(TOLD)),
    Variant(None, "after outputs were cleared", followed(CLEARED)),
    Variant(None, "content as parts", unbroken(as_parts)),
    Variant(None, "message keys in another order", unbroken(reordered)),
    Variant(None, "fields added", unbroken(with_more_fields)),
    Variant(None, "reasoning renamed", unbroken(reasoning_renamed, first=_thought)),
    Variant(None, "other tool call ids", unbroken(with_other_call_ids)),
    Variant(None, "the same prompt again", again(16, reported=False)),
    Variant(None, "the same prompt again, reported", again(16, reported=True)),
    Variant(None, "all delivered", delivered(16, {})),
    Variant(None, "all delivered by one replica", delivered(32, {"replica": "r", "salt": "s"})),
    Variant(
        None,
        "composed and decomposed, one to the tokenizer",
        same_text("Größe prüfen", "chatml@qwen2"),
        published=True,
    ),
]
