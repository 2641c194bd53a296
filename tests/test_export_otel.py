"""OTLP spans of ours, read by the published protobuf definition and by our own importer."""

import base64
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from export_cases import (
    ASKED,
    SAID,
    calls,
    calls_of,
    demo_sessions,
    edited,
    only,
    saved,
    session,
    usage_of,
)
from google.protobuf.json_format import ParseDict
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.trace.v1.trace_pb2 import Span, TracesData
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes

from duramen.experiments.exporters.otel import to_otel
from duramen.experiments.importers.read import read_sessions
from duramen.experiments.trajectory import Call, Session
from duramen.layout.errors import TrajectoryError

PUBLISHED = {value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI")}


def values(span: Span) -> dict[str, Any]:
    kinds = {a.key: a.value.WhichOneof("value") for a in span.attributes}
    return {a.key: getattr(a.value, kinds[a.key]) for a in span.attributes}


def parsed(document: Mapping[str, Any]) -> list[Span]:
    """By the published protobuf definition, whose own JSON has bytes in base64 where OTLP's has
    trace and span ids in hexadecimal."""
    for resource in document["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                for name, size in (("traceId", 16), ("spanId", 8)):
                    raw = bytes.fromhex(span[name])
                    assert len(raw) == size
                    span[name] = base64.b64encode(raw).decode()
    data = ParseDict(document, TracesData())
    return [s for r in data.resource_spans for scope in r.scope_spans for s in scope.spans]


def test_spans_by_the_published_definition() -> None:
    first, second = parsed(only(to_otel([session()])))
    assert {key for key in values(first) if key.startswith("gen_ai")} <= PUBLISHED
    assert values(first)["gen_ai.usage.cache_creation.input_tokens"] == 40
    assert first.trace_id == second.trace_id
    assert first.span_id != second.span_id
    assert (first.name, first.kind) == ("chat m", Span.SPAN_KIND_CLIENT)
    assert second.start_time_unix_nano == 1_700_000_002_500_000_000
    assert second.end_time_unix_nano == 1_700_000_003_000_000_000
    found = values(second)
    inputs, outputs = (
        json.loads(found.pop(f"gen_ai.{name}.messages")) for name in ("input", "output")
    )
    assert json.loads(found.pop("gen_ai.tool.definitions")) == [
        {"type": "function", "name": "read", "parameters": {"type": "object"}}
    ]
    assert found == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "vllm",
        "gen_ai.conversation.id": "s/1",
        "gen_ai.request.model": "m",
        "gen_ai.usage.input_tokens": 70,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 32,
    }
    called = {"id": "call-1", "name": "read", "arguments": '{"path": "a.py", "n": 1.0}'}
    assert inputs == [
        {"role": "system", "parts": [{"type": "text", "content": "Be brief."}]},
        {"role": "user", "parts": [{"type": "text", "content": "What is in a.py?"}]},
        {
            "role": "assistant",
            "parts": [
                {"type": "reasoning", "content": "I have to look."},
                {"type": "tool_call", **called},
            ],
        },
        {
            "role": "tool",
            "parts": [{"type": "tool_call_response", "id": "call-1", "response": "x = 1\n"}],
        },
    ]
    assert outputs == [{"role": "assistant", "parts": [{"type": "text", "content": "One line."}]}]


def test_spans_say_which_times_are_assumed() -> None:
    made = to_otel([Session("s", (Call((ASKED,), SAID), Call((ASKED,), None)))])
    first, second = parsed(only(made))
    assert values(first)["duramen.time_is_assumed"] is True
    assert (first.start_time_unix_nano, second.start_time_unix_nano) == (
        1_767_225_600 * 10**9,
        1_767_225_601 * 10**9,
    )
    assert "gen_ai.output.messages" not in values(second)
    assert made.notes == ("2 spans without a recorded time: one second after the call before",)


@pytest.mark.parametrize("start_s", [-1.0, 2.0**64 / 10**9])
def test_a_time_that_no_span_can_bear_is_refused(start_s: float) -> None:
    timed = Session("s\n", (Call((ASKED,), SAID, time_s=0.0),), start_time_s=start_s)
    with pytest.raises(TrajectoryError, match=r"session 's\\n': time .* is before 1970 or after"):
        to_otel([timed])


def test_our_importer_reads_spans_back(tmp_path: Path) -> None:
    sessions = [session(), replace(edited(), session_id="edited"), *demo_sessions()]
    back = list(read_sessions(saved(to_otel(sessions), tmp_path)))
    assert calls_of(back) == calls_of(sessions)
    assert [usage_of(call) for s in back for call in s.calls] == [
        usage_of(call) for s in sessions for call in s.calls
    ]


def test_text_that_is_no_unicode_is_refused() -> None:
    broken = Session("s", (Call(({"role": "user", "content": "\ud800"},), SAID),))
    for export in (to_otel,):
        with pytest.raises(TrajectoryError, match="cannot be written as JSON"):
            export([broken])


@settings(max_examples=40)
@given(st.lists(calls, min_size=1, max_size=4))
def test_a_span_for_each_call_whatever_it_held(recorded: list[Call]) -> None:
    spans = parsed(only(to_otel([Session("any", tuple(recorded), start_time_s=5.0)])))
    assert len({span.span_id for span in spans}) == len(recorded)
    for span, call in zip(spans, recorded, strict=True):
        inputs = json.loads(values(span)["gen_ai.input.messages"])
        assert [message["role"] for message in inputs] == [m["role"] for m in call.messages]


def test_real_recordings_come_back_from_spans(shared_data: Path, tmp_path: Path) -> None:
    paths = [shared_data / form for form in ("tau-bench/airline_a.json", "swe-agent")]
    sessions = list(read_sessions(paths))
    back = list(read_sessions(saved(to_otel(sessions), tmp_path)))
    assert calls_of(back) == calls_of(sessions)
