"""Codex rollouts (~/.codex/sessions/**/rollout-*.jsonl): items of the Responses API and events.

Form: openai/codex, codex-rs/protocol/src/protocol.rs (RolloutItem) and models.rs (ResponseItem);
fixtures of versions 0.9 to 0.114. A line is {"timestamp", "type", "payload"} of type session_meta,
response_item, compacted, turn_context or event_msg; before 0.32 it was the bare item, and still
before {"role", "content"} and {"type": "tool_call" | "tool_result"}.

What the model made in a row is one call, ended by an item that is not the model's, or by a
token_count whose total has moved on: that event stands behind each response, and comes again
unchanged with new rate limits. Its `last_token_usage` is the call's usage; where only a total is
given, the difference to the one before. Messages of events (user_message, agent_message) repeat
items and count only in a file without any. `compacted` begins the history anew: with its
`replacement_history`, else with its summary. thread_rolled_back takes turns of the user back.

System prompt: base_instructions of session_meta, where it is given. (`instructions` there are the
user's own, which a message repeats.) Tools are not in the log, so the messages count as derived, or
as assumed without a system prompt. Events of other kinds are passed over; unknown ones are counted.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from duramen.experiments.importers.codex_run import Run
from duramen.experiments.importers.documents import Document
from duramen.experiments.importers.messages import check_object, fail
from duramen.experiments.importers.times import time_or_none
from duramen.experiments.trajectory import Session
from duramen.layout.errors import TrajectoryError

LINES = {"session_meta", "response_item", "event_msg", "turn_context", "compacted"}
ITEMS = {
    "message",
    "reasoning",
    "function_call",
    "function_call_output",
    "local_shell_call",
    "custom_tool_call",
    "custom_tool_call_output",
    "web_search_call",
    "tool_call",
    "tool_result",
}
OTHER_LINES = {"state", "world_state", "inter_agent_communication_metadata", "security_risk_score"}
TEXT_EVENTS = {"user_message": "user", "agent_message": "assistant"}
KNOWN_EVENTS = {  # of protocol.rs, EventMsg, as far as they are written; none changes a prompt
    "agent_reasoning",
    "agent_reasoning_raw_content",
    "agent_reasoning_section_break",
    "context_compacted",
    "entered_review_mode",
    "error",
    "exec_command_begin",
    "exec_command_end",
    "exited_review_mode",
    "item_completed",
    "mcp_tool_call_begin",
    "mcp_tool_call_end",
    "patch_apply_begin",
    "patch_apply_end",
    "plan_update",
    "stream_error",
    "task_complete",
    "task_started",
    "turn_aborted",
    "turn_complete",
    "turn_diff",
    "turn_started",
    "undo_completed",
    "view_image_tool_call",
    "warning",
    "web_search_begin",
    "web_search_end",
    "codex/event/raw_item",
}


def is_codex(value: Mapping[str, Any]) -> bool:
    if "messages" in value:
        return False
    kind = value.get("type")
    if isinstance(value.get("payload"), dict):
        return isinstance(kind, str) and kind in LINES
    is_item = isinstance(value.get("role"), str) and "content" in value
    if "record_type" in value or kind == "message":
        return kind != "message" or is_item
    if isinstance(kind, str) and kind in ITEMS:
        return True
    return (is_item and "timestamp" in value) or {"id", "timestamp", "instructions"} <= value.keys()


def read_codex(documents: Iterator[Document], name: str) -> Iterator[Session]:
    """Raises TrajectoryError at an item that is broken, or where nothing was said by the model."""
    lines = [(where, check_object(value, where, "the line")) for where, value in documents]
    has_items = any(_kind_and_item(line)[0] == "item" for _, line in lines)
    run = Run()
    unknown: Counter[str] = Counter()
    for where, line in lines:
        time_s = time_or_none(line.get("timestamp"))
        kind, payload = _kind_and_item(line)
        match kind:
            case "item":
                known = run.add_item(payload, time_s, where)
            case "session_meta":
                known = run.set_meta(payload)
            case "turn_context":
                known = run.set_context(payload)
            case "compacted":
                known = run.compact(payload, time_s, where)
            case "event_msg":
                known = _add_event(run, payload, time_s, where, has_items)
            case _:
                known = kind in OTHER_LINES
        if not known:
            unknown[str(payload.get("type", kind))[:40]] += 1
    session = run.session(name, _notes(unknown))
    if not session.calls:
        raise TrajectoryError(
            f"{lines[0][0]}: a Codex rollout without any text of the model "
            f"({run.num_counted} reports of usage alone): it cannot be laid out; expected a whole "
            "rollout with its response_item lines"
        )
    yield session


def _kind_and_item(line: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    kind = line.get("type")
    payload = line.get("payload")
    if isinstance(payload, dict) and isinstance(kind, str):
        return "item" if kind == "response_item" else kind, payload
    if line.get("record_type") == "state":
        return "state", line
    if (isinstance(kind, str) and kind in ITEMS) or (kind is None and "role" in line):
        return "item", line
    if kind is None and "instructions" in line:
        return "session_meta", line
    return str(kind), line


def _add_event(
    run: Run, event: dict[str, Any], time_s: float | None, where: str, has_items: bool
) -> bool:
    kind = event.get("type")
    if not isinstance(kind, str):
        return False
    if kind in TEXT_EVENTS:
        if has_items:
            return True
        text = event.get("message")
        if not isinstance(text, str):
            raise fail(where, "payload.message", text, "text")
        item = {"type": "message", "role": TEXT_EVENTS[kind], "content": text}
        return run.add_item(item, time_s, where)
    if kind == "token_count":
        run.add_token_count(event.get("info"), where)
    elif kind == "turn.completed":
        run.num_counted += isinstance(event.get("usage"), dict)
    elif kind == "thread_rolled_back":
        run.roll_back(event.get("num_turns"), where)
    else:
        return kind in KNOWN_EVENTS
    return True


def _notes(unknown: Counter[str]) -> tuple[str, ...]:
    if not unknown:
        return ()
    kinds = ", ".join(f"{kind} ({number})" for kind, number in unknown.most_common(5))
    return (f"{unknown.total()} lines of unknown kinds were left out: {kinds}",)
