"""LiteLLM logs: StandardLoggingPayload, alone or as `standard_logging_object`, and spend logs.

Form: docs.litellm.ai/docs/proxy/logging_spec: {"id", "trace_id", "call_type", "model", "messages",
"model_parameters", "response", "startTime", "endTime", "prompt_tokens", "completion_tokens",
"custom_llm_provider", "model_id", "metadata", "status", "cache_hit", ...}; rows of spend logs name
request_id for id, bear session_id, and keep the body in proxy_server_request. Tools and options are
those of model_parameters (or optional_params), so the order of the body's keys is not known.

A call is recorded; one answered from LiteLLM's own cache (cache_hit) asked no model and is left
out. LiteLLM gives each request a trace_id of its own where the client sends none, so one that
stands on a single line names no session. Its counts are 0 where a call failed: not reported.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from duramen.experiments.importers.bodies import is_body, read_body, read_reply, with_answer
from duramen.experiments.importers.body import text_in
from duramen.experiments.importers.documents import Document
from duramen.experiments.importers.grouping import Logged, Texts, grouped
from duramen.experiments.importers.messages import check_object, check_usage, fail
from duramen.experiments.importers.otlp import decoded
from duramen.experiments.importers.times import between, time_or_none
from duramen.experiments.trajectory import Session, Usage
from duramen.layout.errors import TrajectoryError

PARAMETERS = ("model_parameters", "optional_params")
METADATA = ("metadata", "requester_metadata", "spend_logs_metadata")
COUNTS = ("prompt_tokens", "completion_tokens")
HIT = (True, "True", "true")


def is_litellm(value: Any) -> bool:
    payload = _payload(value)
    return isinstance(payload, dict) and (
        {"call_type", "startTime", "messages"} <= payload.keys()
        or {"standard_logging_object"} <= payload.keys()
    )


def read_litellm(documents: Iterator[Document], name: str) -> Iterator[Session]:
    """Raises TrajectoryError where a line is broken, or none bears messages."""
    texts = Texts()
    found: list[tuple[Logged, str | None]] = []
    num_lines = num_hits = 0
    first = ""
    for where, payload in _payloads(documents):
        first = first or where
        num_lines += 1
        num_hits += payload.get("cache_hit") in HIT
        logged = None if payload.get("cache_hit") in HIT else _logged(payload, where, texts)
        found += [] if logged is None else [(logged, text_in(payload, "trace_id"))]
    if not found:
        raise TrajectoryError(
            f"{first or name}: LiteLLM logs without messages; expected logs with content "
            "(store_prompts_in_spend_logs, turn_off_message_logging: false)"
        )
    notes = []
    if num_hits:
        notes.append(f"{num_hits} lines were answered from LiteLLM's own cache")
    if num_empty := num_lines - num_hits - len(found):
        notes.append(f"{num_empty} lines without messages were left out")
    yield from grouped(_with_traces(found), name, tuple(notes))


def _with_traces(found: Sequence[tuple[Logged, str | None]]) -> Iterator[Logged]:
    traces = Counter(trace_id for _, trace_id in found)
    for logged, trace_id in found:
        if logged.session_id is None and traces[trace_id] > 1:
            yield replace(logged, session_id=trace_id)
        else:
            yield logged


def _payload(value: Any) -> Any:
    inner = value.get("standard_logging_object") if isinstance(value, dict) else None
    return inner if isinstance(inner, dict) else value


def _payloads(documents: Iterator[Document]) -> Iterator[tuple[str, dict[str, Any]]]:
    for where, value in documents:
        items = value if isinstance(value, list) else [value]
        for item in items:
            yield where, check_object(_payload(item), where, "the line")


def _logged(payload: dict[str, Any], where: str, texts: Texts) -> Logged | None:
    body = _body(payload)
    if body is None:
        return None
    made = read_body(body, where)
    if not made.messages:
        raise fail(where, "messages", [], "at least one message")
    response = decoded(payload.get("response"))
    response = None if response in ({}, "", []) else response
    has_failed = text_in(payload, "status") == "failure"
    start_s, end_s = (time_or_none(payload.get(key)) for key in ("startTime", "endTime"))
    sending = with_answer(made.sending, response)
    return Logged(
        texts.shared(made.messages),
        session_id=_session_id(payload),
        tools=made.tools,
        reply=None if has_failed else read_reply(response, where, "response"),
        time_s=start_s,
        usage=Usage() if has_failed else _usage(payload, response, where),
        sending=replace(
            sending,
            keys=(),
            provider=text_in(payload, "custom_llm_provider") or sending.provider,
            model=text_in(payload, "model") or sending.model,
            replica=text_in(payload, "model_id") or sending.replica,
            duration_s=between(start_s, end_s),
        ),
    )


def _body(payload: dict[str, Any]) -> dict[str, Any] | None:
    """The body that was sent, as far as the log has it; None where it has no messages."""
    sent = decoded(payload.get("proxy_server_request"))
    sent = sent.get("body", sent) if isinstance(sent, dict) else None
    messages = decoded(payload.get("messages"))
    if not messages:
        return sent if is_body(sent) else None
    parameters: dict[str, Any] = {}
    for key in PARAMETERS:
        given = decoded(payload.get(key))
        parameters |= given if isinstance(given, dict) else {}
    kind = text_in(payload, "call_type") or ""
    model = {"model": payload.get("model") or ""}
    if "responses" in kind:
        return {**model, **parameters, "input": messages}
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    if isinstance(messages, dict):
        messages = messages.get("messages", messages)
    return {**model, **parameters, "messages": messages}


def _usage(payload: Mapping[str, Any], response: Any, where: str) -> Usage:
    usage = response.get("usage") if isinstance(response, dict) else None
    metadata = decoded(payload.get("metadata"))
    if usage is None and isinstance(metadata, dict):
        usage = metadata.get("usage_object")
    if usage is None:
        usage = {key: payload[key] for key in COUNTS if payload.get(key)}
    return check_usage(usage, where)


def _session_id(payload: Mapping[str, Any]) -> str | None:
    places: list[Any] = [payload]
    for key in METADATA:
        found = [decoded(place.get(key)) for place in places]
        places += [place for place in found if isinstance(place, dict)]
    for place in places:
        if session_id := text_in(place, "session_id", "litellm_session_id"):
            return session_id
    return None
