"""SWE-agent trajectories (.traj), v0.7 and v1, and demonstrations that hold only a history.

`history` is the final list of messages. A call's prompt is derived from it: all messages of the
same agent before the assistant message. SWE-agent may have shortened old observations when it sent
them, which the history does not show. Where the steps of `trajectory` record what was sent
(`query`, or `messages` in early v1), that is used instead and is recorded.

Bookkeeping left out of messages: agent, is_demo, thought, action, message_type, tags,
cache_control, and null values. `tool_call_ids` of a tool message becomes `tool_call_id`, as
SWE-agent itself sends it. An assistant message marked `is_demo` belongs to the prompt and is no
call. Each agent of a history is a session of its own. Tools, times and usage per call are not
recorded.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from duramen.experiments.importers.documents import Document
from duramen.experiments.importers.messages import (
    check_list,
    check_message,
    check_object,
    check_reply,
    fail,
)
from duramen.experiments.trajectory import Call, Message, Origin, Session

BOOKKEEPING = {
    "agent",
    "is_demo",
    "thought",
    "action",
    "message_type",
    "tags",
    "cache_control",
    "tool_call_ids",
}


def read_swe_agent(documents: Iterator[Document], name: str) -> Iterator[Session]:
    for where, value in documents:
        run = check_object(value, where, "the document")
        attempts = run.get("attempts") or []  # a retried run repeats its best attempt at the top
        for index, attempt in enumerate(check_list(attempts, where, "attempts")):
            attempt = check_object(attempt, where, f"attempts[{index}]")
            yield from _sessions(attempt, where, f"{name}:attempt-{index}")
        if not attempts:
            yield from _sessions(run, where, name)


def _sessions(run: dict[str, Any], where: str, session_id: str) -> Iterator[Session]:
    history = check_list(run.get("history", []), where, "history")
    steps = check_list(run.get("trajectory", []), where, "trajectory")
    sent = list(_recorded_queries(steps, where))
    if not history and not sent:
        raise fail(where, "history", run.get("history"), "a list of messages")
    if sent:
        replies = _Replies(history, where)
        calls = tuple(Call(query, replies.next(response)) for query, response in sent)
        origins = {"messages": Origin.RECORDED, "reply": replies.origin}
        yield Session(session_id, calls, origins=origins)
        return
    origins = {"messages": Origin.DERIVED, "reply": Origin.RECORDED}
    for index, (agent, items) in enumerate(_by_agent(history, where).items()):
        suffix = f":{agent}" if index else ""
        yield Session(session_id + suffix, _history_calls(items), origins=origins)


def _recorded_queries(steps: list[Any], where: str) -> Iterator[tuple[tuple[Message, ...], str]]:
    """What each step sent and its response; equal messages become one object."""
    seen: dict[bytes, Message] = {}
    for index, value in enumerate(steps):
        field = f"trajectory[{index}]"
        step = check_object(value, where, field)
        query = check_list(step.get("query", step.get("messages", [])), where, f"{field}.query")
        if not any(query):
            continue  # no model was asked: SWE-agent writes [] or [{}] when it submits by itself
        if not isinstance(step.get("response"), str):
            raise fail(where, f"{field}.response", step.get("response"), "text")
        messages = (_message(m, where, f"{field}.query[{i}]") for i, m in enumerate(query))
        shared = tuple(seen.setdefault(msgspec.json.encode(m), m) for m in messages)
        yield shared, step["response"]


def _by_agent(history: list[Any], where: str) -> dict[str, list[tuple[Message, bool]]]:
    """Each agent's messages in order, with whether the message is a demonstration."""
    agents: dict[str, list[tuple[Message, bool]]] = {}
    for index, item in enumerate(history):
        message = _message(item, where, f"history[{index}]")
        is_demo = bool(item.get("is_demo"))
        agents.setdefault(str(item.get("agent", "main")), []).append((message, is_demo))
    return agents


def _history_calls(items: Sequence[tuple[Message, bool]]) -> tuple[Call, ...]:
    messages = [message for message, _ in items]
    return tuple(
        Call(tuple(messages[:index]), message)
        for index, (message, is_demo) in enumerate(items)
        if message["role"] == "assistant" and not is_demo
    )


def _message(value: Any, where: str, field: str) -> Message:
    item = check_object(value, where, field)
    message = {k: v for k, v in item.items() if k not in BOOKKEEPING}
    for key in ("tool_calls", "thinking_blocks"):
        if message.get(key, ...) is None:
            del message[key]
    if item.get("role") == "tool" and item.get("tool_call_ids"):
        message["tool_call_id"] = check_list(item["tool_call_ids"], where, field)[0]
    return check_message(message, where, field)


class _Replies:
    """Finds each step's whole reply in the history: a step itself keeps only its text.

    A reply that SWE-agent rejected and asked for again is not in the history; its text alone is
    then taken, and `origin` says derived.
    """

    def __init__(self, history: list[Any], where: str) -> None:
        self.origin = Origin.RECORDED
        self._left = [
            check_reply(_message(item, where, f"history[{index}]"), where, f"history[{index}]")
            for index, item in enumerate(history)
            if isinstance(item, dict)
            and item.get("role") == "assistant"
            and not item.get("is_demo")
        ]

    def next(self, response: str) -> Message:
        for index, reply in enumerate(self._left):
            if reply.get("content") == response:
                del self._left[: index + 1]
                return reply
        self.origin = Origin.DERIVED
        return {"role": "assistant", "content": response}
