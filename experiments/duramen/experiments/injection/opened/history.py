"""Edits, prunings and summaries of the half that was scored on, and then opened."""

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
        "day moved in a request": Edited(
            "user head",
            "Could you move my dentist from March 3rd to the week after Easter?",
            "Could you move my dentist from March 5th to the week after Easter?",
        ),
        "amount changed in a request": Edited(
            "user tail",
            "Transfer 250 euros to my sister and tell her it is for the concert.",
            "Transfer 350 euros to my sister and tell her it is for the concert.",
        ),
        "hour changed in a request": Edited(
            "user tail",
            "The plane must not land before 9:30, because nobody can pick us up earlier.",
            "The plane must not land before 11:15, because nobody can pick us up earlier.",
        ),
        "whole question replaced": Edited(
            "user tail",
            "Which of the two is cheaper in the long run?",
            "Forget that. What would a lawyer say about it?",
        ),
        "word in a reply": Edited(
            "reply", "That is certainly the cause.", "That is probably the cause."
        ),
        "persona changed": Edited(
            "system head", "You are Vera, a patient tutor.", "You are Max, a terse reviewer."
        ),
        "rule negated": Edited(
            "system tail", "You may push to main.", "You must not push to main."
        ),
        "result translated": Edited(
            "tool result",
            "Keine Treffer für diese Anfrage gefunden.",
            "No matches were found for this query.",
        ),
        "address masked": Edited(
            "user tail", "Send it to jo.miller@example.org.", "Send it to ***@***.org."
        ),
        "quoted error cut to its point": Edited(
            "user tail",
            "It says: fatal error while linking, undefined reference to `main'.",
            "It says: undefined reference to `main'.",
            ("history-pruned",),
        ),
        "git status in the system text": Edited(
            "system tail",
            "Git status:\n M src/reader.py\n?? notes.txt",
            "Git status:\n M src/reader.py\n M tests/test_reader.py\n?? notes.txt",
        ),
        "emphasis added": Edited(
            "system middle", "Do not touch the lock file.", "Do NOT touch the lock file!"
        ),
        "command corrected": Edited("reply", "Run `make test` first.", "Run `tox -e py311` first."),
    }.items()
]

PRUNED = [
    Variant("history-pruned", name, pruned(rewrite))
    for name, rewrite in {
        "stub, newest two kept": outputs_replaced("<stale/>", keep=2),
        "told to read again": outputs_replaced(
            "This result is no longer in context. Call the tool again if you need it.", keep=1
        ),
        "dash": outputs_replaced("-", keep=1),
        "size in bytes": outputs_replaced("[{} bytes snipped]", keep=0),
        "tail kept": output_cut(0, 90, "(… beginning cut off)\n"),
        "head of the newest kept": output_cut(120, 0, "…", which=-1),
        "head and tail, line between": output_cut(50, 50, "\n<{} chars removed>\n"),
        "three turns from the front": dropped(0, 3),
        "second and third turn": dropped(1, 3),
        "all but the last turn": dropped(0, -1),
        "older outputs, JSON": outputs_replaced(
            '{"pruned": true, "original_length": {}}', keep=1, roles=("tool", "user")
        ),
    }.items()
]

STATE = (
    "- Task: see the first message.\n- Findings: the value is dropped when the list is empty; the "
    "caller hides it.\n- Changed: one guard in the reader.\n- Not done yet: regression test."
)
COMPACTED = [
    Variant("compaction", name, compacted(summary))
    for name, summary in {
        "notes as user": Summary(f"Progress notes (earlier turns were folded):\n{STATE}", "user"),
        "notes as user, six kept": Summary(f"Earlier turns, in brief:\n{STATE}", "user", 6),
        "notes as system": Summary(f"# Conversation recap\n{STATE}", "system", 4),
        "handover by the assistant": Summary(f"Handover to myself:\n{STATE}", "assistant", 2),
        "under the task": Summary(f"What has happened since:\n{STATE}", "first user"),
        "checkpoint tag": Summary(f'<checkpoint turns="1-12">\n{STATE}\n</checkpoint>', "user", 4),
        "French": Summary(
            "Résumé de la conversation précédente : la cause a été trouvée dans le lecteur, un "
            "garde-fou a été ajouté, il reste à écrire le test de non-régression.",
            "user",
            2,
        ),
        "Chinese": Summary(
            "以上对话的摘要：已定位问题原因，修改了读取函数，剩余工作是补充回归测试并汇报结果。",
            "user",
        ),
        "long prose": Summary(
            "Before this point the two of us went through the code together. "
            "We first suspected the cache, ruled it out with a log line, then followed the value "
            "through the reader until we saw it vanish. " * 3,
            "user",
            2,
        ),
        "memory in the system text": Summary(f"<memory>\n{STATE}\n</memory>", "end of system", 4),
        "YAML": Summary(
            "recap:\n  goal: mend the reader\n  done: [guard]\n  todo: [test, report]", "user"
        ),
    }.items()
]

VARIANTS = [*EDITED, *PRUNED, *COMPACTED]
