"""Logs of requests and responses, a line each: Anthropic Messages, OpenAI Responses, chat pairs.

A line is {"request": body, "response": response, ...}, where each may be {"body": ..., "headers":
..., "timestamp": ...} as HTTP loggers write it, or a body alone with its `response` beside it or
missing. A body or response may be JSON text; a response may be the text of its event stream.
Messages are recorded. Time: `timestamp` of the line or of its request (Unix seconds or
milliseconds, or ISO). Session: `session_id` or `conversation_id` of the line or of the body's
`metadata`, or the one that Claude Code writes into metadata.user_id; else importers.grouping finds
it.

Of Responses, a body with `previous_response_id` or `conversation` gets the history that the log has
of it in front: that makes its messages derived, or assumed where the log does not have it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from duramen.experiments.importers.anthropic_body import (
    is_anthropic_body,
    is_anthropic_reply,
    read_anthropic_body,
)
from duramen.experiments.importers.bodies import (
    is_body,
    read_body,
    read_reply,
    with_answer,
)
from duramen.experiments.importers.body import Body, text_in, without_log
from duramen.experiments.importers.documents import Document
from duramen.experiments.importers.event_stream import answer_of
from duramen.experiments.importers.grouping import Logged, grouped
from duramen.experiments.importers.messages import check_object, check_usage, fail
from duramen.experiments.importers.otlp import decoded
from duramen.experiments.importers.responses_body import is_responses_body, is_responses_reply
from duramen.experiments.importers.times import between, time_or_none
from duramen.experiments.trajectory import Message, Origin, Session

SESSION_KEYS = ("session_id", "conversation_id")
TIME_KEYS = ("timestamp", "time", "created_at", "logged_at", "start_time", "startTime")


def is_api_log(value: Mapping[str, Any]) -> bool:
    """Chat bodies without `request` around them are importers.chat's; so are conversations with
    nothing that a request has beside its text."""
    if is_body(_body_in(value.get("request"))):
        return True
    if "messages" in value:
        is_sent = bool({"model", "max_tokens", "anthropic_version", "response"} & value.keys())
        is_its = is_anthropic_body(value) or is_anthropic_reply(value.get("response"))
        return is_sent and is_its
    return is_responses_body(value)


def read_api_log(documents: Iterator[Document], name: str) -> Iterator[Session]:
    kept = _Kept()
    yield from grouped((_logged(where, line, kept) for where, line in _lines(documents)), name)


def _lines(documents: Iterator[Document]) -> Iterator[tuple[str, dict[str, Any]]]:
    for where, value in documents:
        for line in value if isinstance(value, list) else [value]:
            yield where, check_object(line, where, "the line")


def _logged(where: str, line: dict[str, Any], kept: "_Kept") -> Logged:
    request = line.get("request")
    given = request if isinstance(request, dict) else {}
    body = _body_in(request) if request is not None else without_log(line)
    if not is_body(body):
        raise fail(where, "request", body, "a body with messages or input")
    answered = line.get("response")
    response = answer_of(_body_in(answered))
    made = read_anthropic_body(body, where) if _is_anthropic(body, response) else None
    made = made or read_body(body, where)
    reply = read_reply(response, where, "response")
    messages, origins = kept.complete(body, made, reply, response)
    if not messages:
        raise fail(where, "messages", [], "at least one message")
    time_s = _time(line) or _time(given)
    end_s = _time(answered) if isinstance(answered, dict) and answered is not response else None
    usage = response.get("usage") if isinstance(response, dict) else None
    return Logged(
        messages,
        session_id=_session_id(line, body) or kept.conversation_of(body),
        tools=made.tools,
        reply=reply,
        time_s=time_s,
        usage=check_usage(line.get("usage") if usage is None else usage, where),
        sending=replace(
            with_answer(made.sending, response, answered), duration_s=between(time_s, end_s)
        ),
        origins=origins,
    )


def _body_in(value: Any) -> Any:
    """The body of what an HTTP logger wrote, or the value itself; JSON text is read."""
    if isinstance(value, dict) and not (is_body(value) or _is_answer(value)):
        for key in ("body", "json", "body_raw"):
            if value.get(key) is not None:
                return decoded(value[key])
    return decoded(value)


def _is_answer(value: Mapping[str, Any]) -> bool:
    return "choices" in value or is_anthropic_reply(value) or is_responses_reply(value)


def _is_anthropic(body: Mapping[str, Any], response: Any) -> bool:
    return "messages" in body and (is_anthropic_body(body) or is_anthropic_reply(response))


def _time(value: Mapping[str, Any]) -> float | None:
    found = (time_or_none(value.get(key)) for key in TIME_KEYS)
    return next((time_s for time_s in found if time_s is not None), None)


def _session_id(line: Mapping[str, Any], body: Mapping[str, Any]) -> str | None:
    metadata = body.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    found = text_in(line, *SESSION_KEYS) or text_in(metadata, *SESSION_KEYS)
    user = decoded(metadata.get("user_id"))
    if found is None and isinstance(user, dict):
        return text_in(user, "session_id")
    if found is None and isinstance(user, str) and "_session_" in user:
        return user.rpartition("_session_")[2] or None
    return found


class _Kept:
    """What OpenAI's server keeps of earlier responses, as far as the log shows it."""

    def __init__(self) -> None:
        self._histories: dict[str, tuple[Message, ...]] = {}

    def conversation_of(self, body: Mapping[str, Any]) -> str | None:
        given = body.get("conversation")
        found = text_in(given, "id") if isinstance(given, dict) else given
        return found if isinstance(found, str) and found else None

    def complete(
        self, body: Mapping[str, Any], made: Body, reply: Message | None, response: Any
    ) -> tuple[tuple[Message, ...], dict[str, Origin]]:
        """The whole prompt of `body`, and its origin if that is not the log."""
        if not is_responses_body(body):
            return made.messages, {}
        num_instructions = 1 if isinstance(body.get("instructions"), str) else 0
        head, new = made.messages[:num_instructions], made.messages[num_instructions:]
        conversation = self.conversation_of(body)
        before = text_in(body, "previous_response_id") or conversation
        history = self._histories.get(before, ()) if before is not None else ()
        whole = (*history, *new) if reply is None else (*history, *new, reply)
        response_id = text_in(response, "id") if isinstance(response, dict) else None
        for key in (response_id, conversation):
            if key is not None:
                self._histories[key] = whole
        if before is None or (before == conversation and not history):
            return made.messages, {}
        origin = Origin.DERIVED if history else Origin.ASSUMED
        return (*head, *history, *new), {"messages": origin}
