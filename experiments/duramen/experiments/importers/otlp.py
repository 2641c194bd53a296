"""OpenTelemetry spans out of the files that hold them.

OTLP JSON ({"resourceSpans": [{"scopeSpans": [{"spans": [...]}]}]}, one document or one a line;
opentelemetry.io/docs/specs/otlp, "JSON Protobuf Encoding": attributes are lists of
{"key", "value": {"stringValue": ...}}, 64-bit numbers are text), and plain forms: {"spans": [...]},
a list of spans, or a span a line, with attributes as an object, as exporters of SDKs print them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from duramen.experiments.importers.documents import Document
from duramen.experiments.importers.messages import check_list, check_object
from duramen.experiments.importers.times import NANOSECONDS, time_or_none

SPAN_LISTS = ("resourceSpans", "resource_spans", "spans")
SCOPES = ("scopeSpans", "scope_spans", "instrumentationLibrarySpans")


@dataclass(frozen=True)
class Event:
    name: str
    attributes: Mapping[str, Any]


@dataclass(frozen=True)
class Span:
    """`attributes` with those of its resource beneath; times are Unix seconds."""

    where: str
    trace_id: str | None
    span_id: str | None
    name: str
    attributes: Mapping[str, Any]
    events: tuple[Event, ...]
    start_s: float | None
    end_s: float | None


def is_spans(value: Any) -> bool:
    """Whether a document is spans, or an item of a list is one."""
    if not isinstance(value, dict):
        return False
    if any(isinstance(value.get(key), list) for key in SPAN_LISTS[:2]):
        return True
    spans = value.get("spans")
    return is_span(spans[0]) if isinstance(spans, list) and spans else is_span(value)


def is_span(value: Any) -> bool:
    if not (isinstance(value, dict) and isinstance(value.get("attributes"), dict | list)):
        return False
    return bool({"span_id", "spanId", "context", "trace_id", "traceId"} & value.keys())


def read_spans(documents: Iterator[Document]) -> Iterator[Span]:
    for where, value in documents:
        for field, item, resource in _spans_in(value, where):
            yield _span(check_object(item, where, field), resource, where, field)


def _spans_in(value: Any, where: str) -> Iterator[tuple[str, Any, Mapping[str, Any]]]:
    if isinstance(value, list):
        yield from ((f"[{index}]", item, {}) for index, item in enumerate(value))
        return
    document = check_object(value, where, "the document")
    key = next((key for key in SPAN_LISTS if key in document), None)
    if key is None:
        yield "the span", document, {}
        return
    for index, item in enumerate(check_list(document[key], where, key)):
        field = f"{key}[{index}]"
        if key == "spans":
            yield field, item, {}
            continue
        holder = check_object(item, where, field)
        resource = holder.get("resource")
        attributes = resource.get("attributes") if isinstance(resource, dict) else None
        scopes_key = next((name for name in SCOPES if name in holder), SCOPES[0])
        scopes = check_list(holder.get(scopes_key, []), where, f"{field}.{scopes_key}")
        for number, scope in enumerate(scopes):
            place = f"{field}.{scopes_key}[{number}]"
            spans = check_object(scope, where, place).get("spans", [])
            for at, span in enumerate(check_list(spans, where, f"{place}.spans")):
                yield f"{place}.spans[{at}]", span, _attributes(attributes)


def _span(span: dict[str, Any], resource: Mapping[str, Any], where: str, field: str) -> Span:
    context = span.get("context")
    ids = context if isinstance(context, dict) else span
    items = span.get("events")
    events = [] if items is None else check_list(items, where, f"{field}.events")
    plain = span.get("resource_attributes")
    return Span(
        where=f"{where}: {field}",
        trace_id=_text(ids, "trace_id", "traceId"),
        span_id=_text(ids, "span_id", "spanId"),
        name=_text(span, "name") or "",
        attributes={**resource, **_attributes(plain), **_attributes(span.get("attributes"))},
        events=tuple(_event(item) for item in events if isinstance(item, dict)),
        start_s=_time(span, "startTimeUnixNano", "start_time_unix_nano", "start_time", "startTime"),
        end_s=_time(span, "endTimeUnixNano", "end_time_unix_nano", "end_time", "endTime"),
    )


def _event(event: dict[str, Any]) -> Event:
    attributes = _attributes(event.get("attributes"))
    body = _value(event.get("body"))
    if isinstance(body, dict):
        attributes |= body
    return Event(_text(event, "name", "event_name") or "", attributes)


def _attributes(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    items = value if isinstance(value, list) else []
    return {
        item["key"]: _value(item.get("value"))
        for item in items
        if isinstance(item, dict) and isinstance(item.get("key"), str)
    }


def _value(value: Any) -> Any:
    """The value that an AnyValue of OTLP wraps; anything else as it is."""
    if not (isinstance(value, dict) and len(value) == 1):
        return value
    [(kind, inner)] = value.items()
    match kind:
        case "stringValue" | "boolValue" | "doubleValue" | "string_value":
            return inner
        case "intValue" | "int_value":
            is_text = isinstance(inner, str) and len(inner) < 20 and inner.lstrip("-").isdecimal()
            return int(inner) if is_text else inner
        case "arrayValue" if isinstance(inner, dict):
            values = inner.get("values")
            return [_value(item) for item in values] if isinstance(values, list) else []
        case "kvlistValue" if isinstance(inner, dict):
            return _attributes(inner.get("values"))
        case _:
            return value


def decoded(value: Any) -> Any:
    """The value of an attribute that may be JSON text of it."""
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        try:
            return msgspec.json.decode(value)
        except (ValueError, RecursionError):
            return value
    return value


def _time(span: Mapping[str, Any], *names: str) -> float | None:
    value = next((span[name] for name in names if span.get(name) is not None), None)
    if isinstance(value, str) and value.isdecimal() and len(value) < 25:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 10**15:
        return value / NANOSECONDS
    return time_or_none(value)


def _text(value: Mapping[str, Any], *names: str) -> str | None:
    found = (value.get(name) for name in names)
    return next((item for item in found if isinstance(item, str) and item), None)
