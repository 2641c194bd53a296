"""tau-bench results: one JSON list with a trajectory per task and trial.

A trajectory is the list of messages as it stood at the end, so what each call sent is derived from
it. Replies are derived too: tau-bench keeps only the first tool call of a reply. The tools that the
agent was given, times and usage are not in the file. A run that ended in an error has no messages
and becomes a session without calls.
"""

from collections.abc import Iterator
from typing import Any

from duramen.experiments.importers.documents import Document
from duramen.experiments.importers.messages import (
    check_list,
    check_messages,
    check_object,
    conversation_calls,
    fail,
)
from duramen.experiments.trajectory import Origin, Session


def read_tau_bench(documents: Iterator[Document], name: str) -> Iterator[Session]:
    for where, value in documents:
        for index, result in enumerate(check_list(value, where, "the document")):
            yield _session(result, where, f"[{index}]")


def _session(value: Any, where: str, field: str) -> Session:
    result = check_object(value, where, field)
    for key in ("task_id", "trial"):
        if not isinstance(result.get(key), int):
            raise fail(where, f"{field}.{key}", result.get(key), "a number")
    messages = check_messages(result.get("traj"), where, f"{field}.traj")
    return Session(
        session_id=f"task-{result['task_id']}-trial-{result['trial']}",
        calls=conversation_calls(messages),
        origins={"messages": Origin.DERIVED, "reply": Origin.DERIVED},
    )
