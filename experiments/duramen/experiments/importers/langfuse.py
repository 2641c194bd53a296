"""Langfuse exports: observations in a list, in lines, under `data`, or with their trace.

Form: langfuse.com/docs/observability/data-model and the public API (api-reference, observations).
An observation of type GENERATION is a call: {"id", "traceId", "type", "startTime", "endTime",
"model", "modelParameters", "input", "output", "usageDetails" or "usage"}; a blob export writes
trace_id for traceId, and JSON text for input and output. `input` is what the client logged: a list
of messages, {"messages", "tools"}, a message or text; so is `output`. Other observations (spans,
events) are no calls. A session is `sessionId` where it is given, of the observation or of its
trace, else the trace.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

from duramen.experiments.importers.bodies import CHAT_OPTIONS, read_body, read_reply
from duramen.experiments.importers.body import options_in, text_in
from duramen.experiments.importers.documents import Document
from duramen.experiments.importers.grouping import Logged, Texts, grouped
from duramen.experiments.importers.messages import check_list, check_object, check_usage, fail
from duramen.experiments.importers.otlp import decoded
from duramen.experiments.importers.times import between, time_or_none
from duramen.experiments.trajectory import Session, Usage
from duramen.layout.errors import TrajectoryError

TYPES = {
    "GENERATION",
    "SPAN",
    "EVENT",
    "AGENT",
    "TOOL",
    "CHAIN",
    "RETRIEVER",
    "EVALUATOR",
    "EMBEDDING",
    "GUARDRAIL",
}
OLD_COUNTS = {"promptTokens": "prompt_tokens", "completionTokens": "completion_tokens"}


def is_langfuse(value: Any) -> bool:
    """Whether a document, or an item of a list, is such an export."""
    if not isinstance(value, dict):
        return False
    if _is_observation(value):
        return True
    for key in ("observations", "data"):
        items = value.get(key)
        if isinstance(items, list) and (not items or _is_observation(items[0])):
            return key == "observations" or bool(items)
    return False


def _is_observation(value: Any) -> bool:
    if not isinstance(value, dict) or not {"traceId", "trace_id"} & value.keys():
        return False
    return isinstance(value.get("type"), str) and value["type"].upper() in TYPES


def read_langfuse(documents: Iterator[Document], name: str) -> Iterator[Session]:
    """Raises TrajectoryError where a call is broken, or there is none."""
    texts = Texts()
    found: list[Logged] = []
    num_observations = num_calls = 0
    first = ""
    for where, observation, session_id in chain.from_iterable(map(_observations, documents)):
        first = first or where
        num_observations += 1
        if str(observation.get("type")).upper() == "GENERATION":
            num_calls += 1
            logged = _logged(observation, session_id, where, texts)
            found += [] if logged is None else [logged]
    if not found:
        raise TrajectoryError(
            f"{first or name}: a Langfuse export of {num_observations} observations, none of them "
            "a GENERATION with input; expected model calls with their input"
        )
    num_empty = num_calls - len(found)
    notes = (f"{num_empty} calls without input were left out",) if num_empty else ()
    yield from grouped(found, name, notes)


def _observations(document: Document) -> Iterator[tuple[str, dict[str, Any], str | None]]:
    """Each observation with its place and the session of its trace."""
    where, value = document
    session_id: str | None = None
    field = ""
    if isinstance(value, dict) and not _is_observation(value):
        trace = value.get("trace")
        holder = trace if isinstance(trace, dict) else value
        session_id = text_in(holder, "sessionId", "session_id")
        field = "observations" if "observations" in value else "data"
        value = value.get(field)
    items = [value] if isinstance(value, dict) else check_list(value, where, field or "the line")
    for index, item in enumerate(items):
        yield where, check_object(item, where, f"{field}[{index}]"), session_id


def _logged(
    call: Mapping[str, Any], session_id: str | None, where: str, texts: Texts
) -> Logged | None:
    given = decoded(call.get("input"))
    if given in (None, "", [], {}):
        return None
    body = _body(given, where)
    made = read_body(body, where)
    if not made.messages:
        raise fail(where, "input", given, "at least one message")
    parameters = decoded(call.get("modelParameters", call.get("model_parameters")))
    options = options_in(parameters, CHAT_OPTIONS) if isinstance(parameters, dict) else {}
    start_s = time_or_none(call.get("startTime", call.get("start_time")))
    end_s = time_or_none(call.get("endTime", call.get("end_time")))
    return Logged(
        texts.shared(made.messages),
        session_id=text_in(call, "sessionId", "session_id")
        or session_id
        or text_in(call, "traceId", "trace_id"),
        tools=made.tools,
        reply=read_reply(_output(call.get("output")), where, "output"),
        time_s=start_s,
        usage=_usage(call, where),
        sending=replace(
            made.sending,
            model=text_in(call, "model", "provided_model_name", "model_id") or made.sending.model,
            options={**options, **made.sending.options},
            keys=(),
            duration_s=between(start_s, end_s),
        ),
    )


def _body(given: Any, where: str) -> dict[str, Any]:
    if isinstance(given, str):
        return {"messages": [{"role": "user", "content": given}]}
    if isinstance(given, dict) and "role" in given:
        return {"messages": [given]}
    if isinstance(given, list):
        return {"messages": given}
    if isinstance(given, dict) and ("messages" in given or "input" in given):
        return {"model": "", **given} if "messages" not in given else given
    raise fail(where, "input", given, "messages, a message or text")


def _output(value: Any) -> Any:
    """What read_reply knows: of a list its first item, of an object that is no answer its text."""
    output = decoded(value)
    if isinstance(output, list):
        output = output[0] if output else None
    is_answer = isinstance(output, dict) and bool(
        {"role", "choices", "output", "content", "message", "error"} & output.keys()
    )
    if isinstance(output, dict) and not is_answer:
        return value if isinstance(value, str) else text_in(output, "text", "completion")
    if isinstance(output, dict) and "content" in output and "role" not in output:
        return {"role": "assistant", **output}
    return output


def _usage(call: Mapping[str, Any], where: str) -> Usage:
    for key in ("usageDetails", "usage_details", "usage"):
        usage = decoded(call.get(key))
        if isinstance(usage, dict) and usage:
            kept = {k: v for k, v in usage.items() if k != "unit"}
            return check_usage(kept, where, key)
    counts = {new: call[old] for old, new in OLD_COUNTS.items() if call.get(old)}
    return check_usage(counts, where)
