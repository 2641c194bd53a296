"""Edits, prunings and summaries of the half that is only scored on."""

from collections.abc import Sequence
from random import Random

from duramen.experiments.injection.cases import Variant
from duramen.experiments.injection.edits import text_of
from duramen.experiments.injection.history import (
    Edited,
    Rewrite,
    Summary,
    compacted,
    dropped,
    edited,
    output_cut,
    outputs_replaced,
    pruned,
)
from duramen.experiments.trajectory import Message

EDITED = [
    Variant("history-edited", name, edited(edit))
    for name, edit in {
        "order number corrected by the customer": Edited(
            "user head",
            "My order DE-204417 has not come, and I need it for a birthday.",
            "My order DE-204471 has not come, and I need it for a birthday.",
        ),
        "customer's name masked": Edited(
            "user tail",
            "Regards, Katarzyna Nowak, Kraków",
            "Regards, <PERSON>, <LOCATION>",
        ),
        "card number masked": Edited(
            "user tail",
            "Please charge 4111 1111 1111 1111 instead.",
            "Please charge **** **** **** 1111 instead.",
        ),
        "message edited and sent again": Edited(
            "user tail",
            "Plot revenue by month for all regions.",
            "Plot revenue by quarter, for the two largest regions only.",
        ),
        "tone of voice of another brand": Edited(
            "system head",
            "You answer for Nordlicht Reisen. Be warm and informal.",
            "You answer for Atlas Business Travel. Be brief and formal.",
        ),
        "limit in the policy raised": Edited(
            "system tail",
            "Agents may refund up to 50 EUR without asking.",
            "Agents may refund up to 80 EUR without asking, if the order is older than a week.",
        ),
        "memory updated in the system text": Edited(
            "system middle",
            "<memory>\n- prefers e-mail\n- lives in Lyon\n</memory>",
            "<memory>\n- prefers to be called\n- lives in Lyon\n- owns a dog\n</memory>",
        ),
        "todo list updated in the first message": Edited(
            "user head",
            "Todo:\n[x] reproduce the bug\n[ ] write a fix\n[ ] run the linter",
            "Todo:\n[x] reproduce the bug\n[x] write a fix\n[ ] run the linter",
        ),
        "retrieved passage replaced": Edited(
            "system tail",
            "Context: Tickets can be rebooked free of charge until the day before departure.",
            "Context: Luggage that is delayed by more than six hours entitles to compensation.",
        ),
        "open files of the editor": Edited(
            "user tail",
            "Open tabs: src/cart/total.ts, src/cart/total.test.ts",
            "Open tabs: src/cart/total.ts, src/cart/voucher.ts, README.md",
        ),
        "file shown as it is now": Edited(
            "user tail",
            "services/tax.py\n```\ndef vat(net):\n    return net * 0.19\n```",
            "services/tax.py\n```\ndef vat(net, rate=0.19):\n    return round(net * rate, 2)\n```",
        ),
        "reply softened by a guardrail": Edited(
            "reply",
            "We lost your parcel, and it is our fault.",
            "I am sorry that your parcel has not arrived yet.",
        ),
        "wrong figure put right in a reply": Edited(
            "reply",
            "Revenue in the south fell, mostly because of returns.",
            "Revenue in the south rose, mostly because of fewer returns.",
        ),
        "reply translated for the log": Edited(
            "reply",
            "Ihre Bestellung wurde gestern versandt.",
            "Your order was shipped yesterday.",
        ),
        "tool result after a human looked at it": Edited(
            "tool result",
            "fraud_check: suspicious, address does not match",
            "fraud_check: accepted, confirmed by phone",
        ),
        "branch in the environment": Edited(
            "system tail",
            "Current branch: main\nStatus: clean",
            "Current branch: fix/rounding\nStatus: modified: services/tax.py",
        ),
    }.items()
]


def first_lines(num: int, mark: str) -> Rewrite:
    """Every tool output keeps its first `num` lines, and says so."""

    def rewrite(messages: Sequence[Message], end: int, rng: Random) -> Sequence[Message] | None:
        return [
            {**m, "content": "\n".join([*text_of(m).split("\n")[:num], mark])}
            if i < end and m.get("role") == "tool" and text_of(m).count("\n") > num + 3
            else m
            for i, m in enumerate(messages)
        ]

    return rewrite


PRUNED = [
    Variant("history-pruned", name, pruned(rewrite))
    for name, rewrite in {
        "micro-compacted, two kept": outputs_replaced(
            "[tool result removed to free context]", keep=2
        ),
        "query results forgotten": outputs_replaced(
            "(result set of {} characters dropped, run the query again)", keep=1
        ),
        "German stub": outputs_replaced("[Ausgabe entfernt]", keep=1),
        "None in place of all": outputs_replaced("None", keep=0),
        "file contents replaced by a hint": outputs_replaced(
            "<file content no longer shown: use read_file>", keep=1, roles=("tool", "user")
        ),
        "first three lines of each": first_lines(3, "... (more lines)"),
        "first line of each": first_lines(1, "[…]"),
        "first 200 characters of an output": output_cut(200, 0, "\n[output truncated]"),
        "middle of an output left out": output_cut(
            80, 80, "\n\n... {} characters truncated ...\n\n", which=1
        ),
        "window of the newest two turns": dropped(0, -2),
        "failed attempt taken out": dropped(2, 3),
        "two turns before the newest": dropped(-3, -1),
        "all but the first and the newest": dropped(1, -1),
    }.items()
]

NOTES = (
    "1. Request: see the first message.\n2. Established: totals are rounded per line, not per "
    "invoice.\n3. Done: one function changed, its tests adapted.\n4. Next: run everything, report."
)
COMPACTED = [
    Variant("compaction", name, compacted(summary))
    for name, summary in {
        "numbered notes": Summary(f"Summary of our work up to here:\n{NOTES}", "user"),
        "context checkpoint, four kept": Summary(
            f"CONTEXT CHECKPOINT. What an engineer must know to go on:\n{NOTES}", "user", 4
        ),
        "state snapshot tags": Summary(f"<state_snapshot>\n{NOTES}\n</state_snapshot>", "user", 2),
        "running summary as system": Summary(
            f"Running summary of the conversation: {NOTES}", "system", 2
        ),
        "condensed by the assistant": Summary(
            f"Summary of what I have done so far:\n{NOTES}", "assistant", 2
        ),
        "under the request": Summary(
            f"(The conversation was condensed to save room.)\n{NOTES}", "first user", 2
        ),
        "case notes of a service desk": Summary(
            "Case notes: The customer reported a missing parcel, was identified by postcode, and "
            "has been told that the carrier is looking for it. A voucher was offered and refused. "
            "Open: refund or second delivery, to be decided with the customer.",
            "user",
            2,
        ),
        "Spanish": Summary(
            "Resumen de la conversación hasta ahora: el cliente pidió cambiar la reserva, se "
            "comprobó la tarifa y falta confirmar la nueva fecha.",
            "user",
            2,
        ),
        "Japanese": Summary(
            "これまでの会話の要約：原因は端数処理の不一致と判明し、関数を修正済み。残りはテストの実行と報告。",
            "system",
            2,
        ),
        "findings of an analysis": Summary(
            "# Findings so far\n* net revenue fell by 4 % in the south\n* returns explain two "
            "thirds of it\n* the March export lacks one day\n\n# Still to check\n* price changes",
            "user",
            4,
        ),
        "summary at the end of the system text": Summary(
            f"## Summary of earlier messages\n{NOTES}", "end of system", 2
        ),
        "YAML state by the assistant": Summary(
            "session_summary:\n  intent: correct the invoice totals\n  changed: [tax.py]\n"
            "  tests: 14 passed, 1 to go",
            "assistant",
        ),
    }.items()
]

VARIANTS = [*EDITED, *PRUNED, *COMPACTED]
