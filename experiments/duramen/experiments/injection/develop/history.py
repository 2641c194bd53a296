"""Edits, prunings and summaries of the half to develop on."""

from duramen.experiments.injection.cases import Variant
from duramen.experiments.injection.history import (
    Edited,
    Summary,
    compacted,
    dropped,
    edited,
    output_cut,
    outputs_replaced,
    pruned,
)

EDITED = [
    Variant("history-edited", name, edited(edit))
    for name, edit in {
        "date corrected in a sentence": Edited(
            "user tail",
            "I would like to leave on 2026-05-14 and come back a week later.",
            "I would like to leave on 2026-05-17 and come back a week later.",
        ),
        "number corrected in a sentence": Edited(
            "user tail",
            "We are a party of 4 and need two rooms with a view.",
            "We are a party of 6 and need two rooms with a view.",
        ),
        "name corrected": Edited(
            "user head", "Ask for Mr Petersen at the desk.", "Ask for Ms Pedersen at the desk."
        ),
        "typo mended in a reply": Edited(
            "reply", "The funtion returns the wrong sign.", "The function returns the wrong sign."
        ),
        "sentence added to a rule": Edited(
            "system tail",
            "Never send mail.",
            "Never send mail. Ask before you delete anything.",
        ),
        "rule reworded": Edited(
            "system middle",
            "Answer in at most three sentences.",
            "Keep every answer under sixty words, whatever is asked.",
        ),
        "tool result corrected by hand": Edited(
            "tool result", "status: failed, 3 tests red", "status: passed, all tests green"
        ),
        "code edited": Edited(
            "user tail",
            "def area(r):\n    return 3.14 * r * r",
            "def area(radius: float) -> float:\n    return math.pi * radius**2",
        ),
        "secret blacked out": Edited(
            "user tail",
            "My password is hunter2-blue-horse, please log in.",
            "My password is [REDACTED], please log in.",
        ),
        "prose list in another order": Edited(
            "system tail",
            "Priorities: correctness, then clarity, then speed.",
            "Priorities: clarity, then correctness, then speed.",
        ),
        "sentence taken out": Edited(
            "user head",
            "I am in a hurry. My cat walked over the keyboard. Please fix the build.",
            "I am in a hurry. Please fix the build.",
            ("history-pruned",),
        ),
        "mode named in a list": Edited(
            "system middle",
            "<agent>\n<name>Plan</name>\n</agent>",
            "<agent>\n<name>Ask</name>\n</agent>",
        ),
        "other file named": Edited(
            "reply", "I will open src/parser/lexer.py next.", "I will open docs/README.rst next."
        ),
    }.items()
]

PRUNED = [
    Variant("history-pruned", name, pruned(rewrite))
    for name, rewrite in {
        "cleared, newest kept": outputs_replaced("[Old tool result content cleared]", keep=1),
        "cleared, all": outputs_replaced("[Old tool result content cleared]", keep=0),
        "left out with length": outputs_replaced("(output omitted, {} characters)", keep=1),
        "emptied": outputs_replaced("", keep=1),
        "oldest turn dropped": dropped(0, 1),
        "two oldest turns dropped": dropped(0, 2),
        "middle turn dropped": dropped(1, 2),
        "last but one turn dropped": dropped(-2, -1),
        "head of an output kept": output_cut(60, 0, "\n... [truncated]"),
        "head and tail kept": output_cut(40, 40, "\n[... {} characters left out ...]\n", which=-1),
        "marked as stale": outputs_replaced("(stale, superseded by a later read)", keep=2),
        "cut in the middle": output_cut(100, 20, " <snip {}> "),
        "user's pasted outputs elided": outputs_replaced(
            "Observation elided to save context.", keep=1, roles=("tool", "user")
        ),
    }.items()
]

SUMMARY = (
    "Summary of the conversation so far: the user asked for help with a task. The relevant files "
    "were read, one fault was found and mended, and the tests were run once. Still open: the last "
    "check and a short report."
)
COMPACTED = [
    Variant("compaction", name, compacted(summary))
    for name, summary in {
        "user, nothing kept": Summary(SUMMARY, "user"),
        "user, four kept": Summary(SUMMARY, "user", 4),
        "system, two kept": Summary(SUMMARY, "system", 2),
        "assistant": Summary(f"Here is where we stand.\n\n{SUMMARY}", "assistant"),
        "behind the first user message": Summary(SUMMARY, "first user", 2),
        "between tags": Summary(f"<summary>\n{SUMMARY}\n</summary>", "user", 2),
        "continued session": Summary(
            "This session is being continued from a previous conversation that ran out of "
            f"context. The conversation is summarized below:\n{SUMMARY}",
            "user",
        ),
        "headings": Summary(
            "## Goal\nMend the reported fault.\n\n## Done\n- read the code\n- found the cause\n\n"
            "## Next\n- run the tests\n- report",
            "user",
            2,
        ),
        "JSON state": Summary(
            '{"summary": "fault found and mended", "open": ["tests", "report"], "notes": []}',
            "user",
        ),
        "German": Summary(
            "Zusammenfassung des bisherigen Verlaufs: Die Dateien wurden gelesen, der Fehler ist "
            "gefunden und behoben, offen ist noch der abschließende Testlauf.",
            "user",
            2,
        ),
        "by the assistant, asked for": Summary(
            "I was asked to condense our work. We set out to mend a report. The query is right, "
            "the grouping was not, and that is changed. What is left is to run it once more.",
            "assistant",
            2,
        ),
        "behind the task, terse": Summary(
            "(12 turns condensed) cause found, patch in.", "first user"
        ),
        "end of the system text": Summary(f"[Context so far] {SUMMARY}", "end of system", 2),
    }.items()
]

VARIANTS = [*EDITED, *PRUNED, *COMPACTED]
