"""OpenTelemetry spans of model calls, by the semantic conventions for generative AI.

A span of operation chat, text_completion or generate_content is a call; others (execute_tool,
invoke_agent, ...) are none, since the calls inside them have spans of their own. Text is found in
gen_ai.input.messages, gen_ai.system_instructions and gen_ai.output.messages (messages of parts, or
of role and content; as values or as JSON text; on the span or on its event
gen_ai.client.inference.operation.details; semantic-conventions, docs/gen-ai/gen-ai-spans.md and
gen-ai-input-messages.json), in the events of versions before 1.37 (gen_ai.user.message, ...,
gen_ai.choice), and in numbered attributes of before (gen_ai.prompt.0.role). inference-perf writes
the reply as gen_ai.output.text. Tools: gen_ai.tool.definitions.

A session is a conversation (gen_ai.conversation.id), else a session.id, else a trace. Spans without
text are left out; a file without any text is refused.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from duramen.experiments.importers.body import text_in
from duramen.experiments.importers.documents import Document
from duramen.experiments.importers.grouping import Logged, Texts, grouped
from duramen.experiments.importers.messages import check_list, check_tools, check_usage
from duramen.experiments.importers.otel_messages import (
    event_messages,
    message_of,
    numbered_messages,
    system_message,
)
from duramen.experiments.importers.otlp import Span, decoded, read_spans
from duramen.experiments.importers.responses_body import tool_in
from duramen.experiments.importers.times import between
from duramen.experiments.trajectory import Message, Sending, Session, Tool
from duramen.layout.errors import TrajectoryError

CALLS = {"chat", "text_completion", "generate_content"}
DETAILS = "gen_ai.client.inference.operation.details"
INPUT, OUTPUT, SYSTEM = (
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.system_instructions",
)
USAGE = "gen_ai.usage."


def read_otel(documents: Iterator[Document], name: str) -> Iterator[Session]:
    """Raises TrajectoryError where a message is broken, or no span bears any."""
    texts = Texts()
    found: list[Logged] = []
    num_calls = 0
    where = ""
    for span in read_spans(documents):
        where = where or span.where
        if _is_call(span):
            num_calls += 1
            logged = _logged(span, texts)
            found += [] if logged is None else [logged]
    if not found:
        raise TrajectoryError(
            f"{where or name}: {num_calls} spans of model calls, none with messages; expected "
            "gen_ai.input.messages (let the instrumentation capture content)"
        )
    num_silent = num_calls - len(found)
    notes = (f"{num_silent} spans of model calls bear no messages and were left out",)
    yield from grouped(found, name, notes if num_silent else ())


def _is_call(span: Span) -> bool:
    operation = span.attributes.get("gen_ai.operation.name")
    if operation is not None:
        return isinstance(operation, str) and operation in CALLS
    kind = span.attributes.get("llm.request.type")
    names_call = {"gen_ai.request.model", INPUT} & span.attributes.keys()
    return str(kind) in CALLS or (kind is None and bool(names_call))


def _logged(span: Span, texts: Texts) -> Logged | None:
    details = [event.attributes for event in span.events if event.name == DETAILS]
    attributes = {**span.attributes, **(details[0] if details else {})}
    messages, reply = _text_of(span, attributes)
    if not messages:
        return None
    return Logged(
        texts.shared(messages),
        session_id=_session_id(span),
        tools=_tools(attributes.get("gen_ai.tool.definitions"), span.where),
        reply=reply,
        time_s=span.start_s,
        usage=check_usage(
            {key: _number(value) for key, value in attributes.items() if key.startswith(USAGE)},
            span.where,
        ),
        sending=Sending(
            provider=text_in(attributes, "gen_ai.provider.name", "gen_ai.system"),
            model=text_in(attributes, "gen_ai.request.model", "gen_ai.response.model"),
            replica=text_in(
                attributes,
                "openai.response.system_fingerprint",
                "gen_ai.openai.response.system_fingerprint",
            ),
            duration_s=between(span.start_s, span.end_s),
        ),
    )


def _text_of(span: Span, attributes: Mapping[str, Any]) -> tuple[list[Message], Message | None]:
    where = span.where
    given = decoded(attributes.get(INPUT))
    if given is None:
        messages, reply = event_messages(span.events, where)
        if not messages:
            messages, reply = numbered_messages(attributes, where)
        return messages, reply
    messages = []
    for index, item in enumerate(check_list(given, where, INPUT)):
        messages += message_of(item, where, f"{INPUT}[{index}]")
    system = system_message(decoded(attributes.get(SYSTEM)), where, SYSTEM)
    return [*system, *messages], _reply(attributes, where)


def _reply(attributes: Mapping[str, Any], where: str) -> Message | None:
    """The first choice, as agents go on with it."""
    given = decoded(attributes.get(OUTPUT))
    if given is None:
        text = attributes.get("gen_ai.output.text")
        return {"role": "assistant", "content": text} if isinstance(text, str) else None
    choices = check_list(given, where, OUTPUT)
    made = message_of(choices[0], where, f"{OUTPUT}[0]") if choices else []
    return next((message for message in made if message["role"] == "assistant"), None)


def _tools(value: Any, where: str) -> tuple[Tool, ...] | None:
    given = decoded(value)
    if given is None:
        return None
    field = "gen_ai.tool.definitions"
    items = enumerate(check_list(given, where, field))
    made = [tool_in(decoded(item), where, f"{field}[{index}]") for index, item in items]
    return check_tools(made, where, field)


def _number(value: Any) -> Any:
    """Some exporters write every attribute as text."""
    is_text = isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 20
    return int(value) if is_text else value


def _session_id(span: Span) -> str | None:
    found = text_in(span.attributes, "gen_ai.conversation.id", "session.id")
    if found is not None:
        return found
    named = (key for key in span.attributes if key.endswith(".session.id"))
    return text_in(span.attributes, *named) or span.trace_id
