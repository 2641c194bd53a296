"""One Codex rollout as it grows: the history, and the calls found on the way."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from duramen.experiments.importers.body import options_in, text_in
from duramen.experiments.importers.messages import (
    check_list,
    check_messages,
    check_object,
    check_reply,
    check_usage,
)
from duramen.experiments.importers.responses_body import Items, messages_of_items
from duramen.experiments.importers.times import between, offsets_of
from duramen.experiments.trajectory import Call, Message, Origin, Sending, Session, Usage

NO_TOOLS = "Codex logs no tools: prompts are shorter than were sent"
NO_SYSTEM = "Codex logs no tools, and this version no system prompt: prompts are shorter than sent"
COUNTS = (
    "input_tokens",
    "cached_input_tokens",
    "output_tokens",
    "prompt",
    "completion",
)


@dataclass
class _Made:
    call: Call
    asked_s: float | None


class Run:
    """`num_counted`: usage reports that belong to no call."""

    def __init__(self) -> None:
        self.num_counted = 0
        self._session_id: str | None = None
        self._system: Message | None = None
        self._is_compacted = False
        self._history: list[Message] = []
        self._made: list[_Made] = []
        self._sending = Sending(provider="openai")
        self._items: Items | None = None  # what the model is making
        self._asked_s: float | None = None
        self._replied_s: float | None = None
        self._total: Mapping[str, Any] | None = None
        self._last_call_id: str | None = None

    def set_meta(self, meta: Mapping[str, Any]) -> bool:
        """The first one counts: a forked rollout repeats that of its origin."""
        if self._session_id is not None:
            return True
        self._session_id = text_in(meta, "id") or ""
        base = meta.get("base_instructions")
        text = (
            text_in(base, "text") if isinstance(base, dict) else text_in(meta, "base_instructions")
        )
        if text is not None:
            self._system = {"role": "system", "content": text}
        self._sending = replace(
            self._sending, provider=text_in(meta, "model_provider") or self._sending.provider
        )
        return True

    def set_context(self, context: Mapping[str, Any]) -> bool:
        self._sending = replace(
            self._sending,
            model=text_in(context, "model") or self._sending.model,
            options=options_in(context, ("effort", "summary")),
        )
        return True

    def add_item(self, item: Mapping[str, Any], time_s: float | None, where: str) -> bool:
        """Whether the item is of a known kind."""
        item = self._in_form(item)
        items = Items(where) if self._items is None else self._items
        num_before = len(items.messages)
        if not items.add(item, "payload"):
            return item.get("type") in ("ghost_snapshot", "compaction", "compaction_summary")
        model = text_in(item, "model")
        if model is not None:
            self._sending = replace(self._sending, model=model)
        ended = items.messages[num_before:]
        if items.is_gathering:
            self._items = items
        replies = [m for m in ended if m["role"] == "assistant"]
        for message in replies:
            self._end_call(message, where)
        others = [m for m in ended if m["role"] != "assistant"]
        self._history += check_messages(others, where, "payload")
        if others:
            self._items = None
            self._asked_s = time_s
        else:
            self._replied_s = time_s
        return True

    def end_reply(self, where: str) -> None:
        if self._items is not None:
            items, self._items = self._items, None
            num_before = len(items.messages)
            items.end_reply()
            for message in items.messages[num_before:]:
                self._end_call(message, where)

    def add_token_count(self, info: Any, where: str) -> None:
        """Counts for the call that the model has just made, once: see importers.codex."""
        if not isinstance(info, dict):
            return
        total = info.get("total_token_usage")
        last = info.get("last_token_usage")
        if isinstance(total, dict) and total == self._total:
            return
        usage = self._usage_of(last, total, info, where)
        self._total = total if isinstance(total, dict) else self._total
        self.end_reply(where)
        if usage == Usage():
            return
        if self._made and self._made[-1].call.usage == Usage():
            self._made[-1].call = replace(self._made[-1].call, usage=usage)
        else:
            self.num_counted += 1

    def compact(self, item: Mapping[str, Any], time_s: float | None, where: str) -> bool:
        self.end_reply(where)
        replacement = item.get("replacement_history")
        self._history = []
        self._asked_s = time_s
        if replacement is None:
            self._is_compacted = True
            summary = text_in(item, "message")
            self._history = [] if summary is None else [{"role": "user", "content": summary}]
            return True
        field = "payload.replacement_history"
        items = check_list(replacement, where, field)
        known = [i for i in items if isinstance(i, dict) and i.get("type") != "compaction"]
        self._history += check_messages(messages_of_items(known, where, field), where, field)
        return True

    def roll_back(self, num_turns: Any, where: str) -> None:
        """Takes the last turns of the user out of the history."""
        self.end_reply(where)
        if isinstance(num_turns, bool) or not isinstance(num_turns, int) or num_turns < 1:
            return
        turns = [i for i, message in enumerate(self._history) if message["role"] == "user"]
        if turns:
            del self._history[turns[-min(num_turns, len(turns))] :]

    def session(self, name: str, notes: tuple[str, ...]) -> Session:
        self.end_reply("the last line")
        start_s, offsets = offsets_of([made.asked_s for made in self._made])
        calls = tuple(
            replace(made.call, time_s=time_s)
            for made, time_s in zip(self._made, offsets, strict=True)
        )
        is_known = self._system is not None and not self._is_compacted
        origins = {
            "messages": Origin.DERIVED if is_known else Origin.ASSUMED,
            "reply": Origin.RECORDED,
        }
        if start_s is not None:
            origins |= {"time_s": Origin.DERIVED, "start_time_s": Origin.DERIVED}
        if any(call.usage != Usage() for call in calls):
            origins["usage"] = Origin.RECORDED
        notes = (NO_SYSTEM if self._system is None else NO_TOOLS, *notes)
        if self.num_counted:
            notes += (f"{self.num_counted} reports of usage belong to no reply of the log",)
        return Session(
            self._session_id or name, calls, start_time_s=start_s, origins=origins, notes=notes
        )

    def _end_call(self, message: dict[str, Any], where: str) -> None:
        reply = check_reply(message, where, "payload")
        asked_s = self._replied_s if self._asked_s is None else self._asked_s
        sending = replace(self._sending, duration_s=between(self._asked_s, self._replied_s))
        system = [] if self._system is None else [self._system]
        call = Call((*system, *self._history), reply, sending=sending)
        self._made.append(_Made(call, asked_s))
        self._history.append(reply)
        self._asked_s = self._replied_s

    def _in_form(self, item: Mapping[str, Any]) -> Mapping[str, Any]:
        """The oldest form of a call and its result, which name no call, as the later one."""
        if item.get("type") == "tool_call":
            function = item.get("function")
            name = text_in(function, "name") if isinstance(function, dict) else None
            self._last_call_id = f"call_{len(self._history)}_{len(self._made)}"
            return {
                "type": "function_call",
                "call_id": self._last_call_id,
                "name": name or text_in(item, "name"),
                "arguments": item.get("arguments", ""),
            }
        if item.get("type") == "tool_result":
            output = item.get("result")
            return {
                "type": "function_call_output",
                "call_id": self._last_call_id,
                "output": output,
            }
        return item

    def _usage_of(self, last: Any, total: Any, info: Mapping[str, Any], where: str) -> Usage:
        if last is None and isinstance(total, dict):
            before = self._total or {}
            last = {
                key: total[key] - (before.get(key) or 0)
                if isinstance(total[key], int) and isinstance(before.get(key, 0), int)
                else total[key]
                for key in COUNTS
                if key in total
            }
        if last is None:
            last = {key: info[key] for key in COUNTS if key in info}
        return check_usage(check_object(last, where, "payload.info"), where, "payload.info")
