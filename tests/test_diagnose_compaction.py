"""A summary in the place of messages, in the forms in which agents write it, and what is none."""

from typing import Any

import pytest

from duramen.layout.diagnose.diagnose import diagnose
from duramen.layout.diagnose.sent import Request, Sent

Message = dict[str, Any]


def said(role: str, content: Any, **fields: Any) -> Message:
    return {"role": role, "content": content, **fields}


def call(number: int, name: str = "shell", arguments: str = "{}") -> Message:
    function = {"name": name, "arguments": arguments}
    made = {"id": f"call_{number}", "type": "function", "function": function}
    return said("assistant", f"Step {number}.", tool_calls=[made])


def result(number: int) -> Message:
    lines = "".join(f"{number}.{line}: some output of the command\n" for line in range(12))
    return said("tool", lines, tool_call_id=f"call_{number}")


SYSTEM = said("system", "You are a careful agent. Work in small steps.")
TASK = said("user", "The build of the parser fails on empty input. Please mend it.")
TURNS = [message for i in range(1, 7) for message in (call(i), result(i))]
PAST = [SYSTEM, TASK, *TURNS]
GO_ON = said("user", "Go on.")
FACTS = (
    "The user wants the parser mended. src/parse.py was read; the loop skips empty lines. A patch "
    "is in place and two of three tests pass. The last one still fails in test_empty."
)


def cause(new: list[Message], past: list[Message] = PAST) -> str:
    found = diagnose(Sent(Request(past)), Sent(Request(new)))
    assert found is not None
    return found.cause


def summed(role: str, text: str) -> list[Message]:
    return [SYSTEM, said(role, text), GO_ON]


@pytest.mark.parametrize(
    "new",
    [
        summed("user", f"Summary of our work:\n{FACTS}"),
        summed("user", FACTS),
        summed("assistant", FACTS),
        summed("system", FACTS),
        summed("developer", f"<context>\n{FACTS}\n</context>"),
        summed("user", f"<conversation_summary>{FACTS}</conversation_summary>"),
        summed("user", f"# Handoff\n## Goal\n{FACTS}\n## Next steps\nrun test_empty"),
        summed(
            "user", '{"goal": "mend the parser", "done": ["read", "patched"], "open": ["test"]}'
        ),
        summed("user", f"Résumé de la conversation : {FACTS}"),
        summed("user", f"Resumen de lo anterior: {FACTS}"),
        summed("user", f"以下是对话摘要：{FACTS}"),
        summed("user", [{"type": "text", "text": f"What happened until now: {FACTS}"}]),
        [SYSTEM, said("user", FACTS), *PAST[-2:], GO_ON],
        [SYSTEM, said("user", FACTS), *PAST[-4:]],
        [SYSTEM, said("user", FACTS), said("assistant", "Understood."), *PAST[-4:]],
        [SYSTEM, said("user", "What did we do so far?"), said("assistant", FACTS), GO_ON],
        [SYSTEM, TASK, said("user", FACTS), *PAST[-4:]],
        [SYSTEM, TASK, said("assistant", FACTS), *PAST[-4:]],
        [SYSTEM, TASK, said("system", FACTS), *PAST[-2:]],
        [SYSTEM, TASK, said("assistant", f"Progress so far. {FACTS}"), GO_ON],
        [SYSTEM, said("system", FACTS), TASK, *PAST[-4:]],
        [said("system", FACTS), SYSTEM, TASK, *PAST[-4:]],
        [SYSTEM, TASK, call(90, "compact"), said("tool", FACTS, tool_call_id="call_90"), GO_ON],
        [SYSTEM, TASK, *PAST[2:4], said("user", f"Recap: {FACTS}"), *PAST[-2:]],
        [SYSTEM, TASK, *PAST[2:4], said("user", FACTS), *PAST[-2:]],
        [said("system", f"{SYSTEM['content']}\n\n# Memory\n{FACTS}"), *PAST[-2:]],
        [said("system", f"{SYSTEM['content']}\n\n{FACTS}"), TASK, *PAST[-2:]],
        [SYSTEM, said("user", f"{TASK['content']}\n\n{FACTS}"), *PAST[-4:]],
        [SYSTEM, said("user", f"{TASK['content']}\n\n<state>{FACTS}</state>"), GO_ON],
    ],
)
def test_a_summary(new):
    assert cause(new) == "compaction"


@pytest.mark.parametrize(
    ("expected", "new"),
    [
        ("history-pruned", [SYSTEM, TASK, *PAST[4:], GO_ON]),
        ("history-pruned", [SYSTEM, *PAST[-4:], GO_ON]),
        ("history-pruned", [SYSTEM, TASK, *PAST[-2:], said("user", "Now summarise it.")]),
        (
            "history-pruned",
            [SYSTEM, TASK, said("user", "[10 earlier messages removed]"), *PAST[-2:]],
        ),
        ("history-pruned", [SYSTEM, TASK, said("system", "(messages omitted)"), *PAST[-2:]]),
        ("history-pruned", PAST[:-4]),
        ("history-edited", [SYSTEM, said("user", "The build of the lexer fails."), *PAST[2:]]),
        ("history-edited", [said("system", f"{SYSTEM['content']} Be brief."), *PAST[1:]]),
        ("history-edited", [SYSTEM, TASK, said("assistant", "I shall look."), *PAST[3:]]),
        ("history-edited", [SYSTEM, TASK, *PAST[2:4], said("user", "Stop, try again."), *PAST[4:]]),
    ],
)
def test_no_summary(expected, new):
    assert cause(new) == expected
