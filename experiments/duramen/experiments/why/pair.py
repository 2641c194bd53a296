"""Two requests from files, whatever they are: bodies of three APIs, raw text, token ids."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from duramen.experiments.importers.anthropic_body import is_anthropic_body, read_anthropic_body
from duramen.experiments.importers.body import Body
from duramen.experiments.importers.documents import BYTE_ORDER_MARK
from duramen.experiments.importers.messages import check_messages, check_options, check_tools
from duramen.experiments.importers.responses_body import is_responses_body, read_responses_body
from duramen.experiments.layouts.model import Model
from duramen.experiments.trajectory import Call, Sending, Session
from duramen.experiments.why.explain import finished
from duramen.experiments.why.explained import ExplainedCall
from duramen.experiments.why.laid import Laid
from duramen.experiments.why.log import Log, Settings
from duramen.experiments.why.pair_notes import repeated_keys, what_is_shared
from duramen.experiments.why.rendering import encode_text
from duramen.experiments.why.walk import Walk
from duramen.layout.errors import TrajectoryError

SESSION = "A and B"
OF_ENGINE = {"model", "messages", "tools", "cache_salt", "stream", "max_tokens"}
PROMPTS = ("prompt_token_ids", "token_ids", "prompt")  # of vLLM's records; of completions
MAX_ID = 2**32


@dataclass(frozen=True)
class Given:
    """What a file holds; `text` where it is no request. `notes`: on how it is written."""

    call: Call
    text: str | None = None
    notes: tuple[str, ...] = ()


def explain_files(
    before: Path, after: Path, model: Model, settings: Settings
) -> Iterator[ExplainedCall]:
    """Both calls; the second is measured against the first. Raises TrajectoryError."""
    log = Log(model, settings)
    given = [read_given(path) for path in (before, after)]
    session = Session(SESSION, tuple(each.call for each in given))
    laid = {}
    for index, each in enumerate(given):
        if each.text is not None:
            rendered = encode_text(log.tokenizer, each.text)
            laid[index] = Laid(index, each.call, None, rendered)
    walk = Walk(session, log, laid, always=True)
    while not walk.is_done:
        walk.step()
    explained = list(finished(log, [walk]))
    shared = what_is_shared(explained, session.calls, settings.unit_tokens)
    for each, call, notes in zip(given, explained, ((), shared), strict=True):
        yield replace(call, notes=each.notes + notes)


def read_given(path: Path) -> Given:
    """JSON that is a list of numbers is token ids, an object or a list of messages a request; a
    completions body holds either text or ids. Anything else is text, unless it begins like JSON or
    is named like it. Raises TrajectoryError for what is none of them."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TrajectoryError(f"{path}: cannot be read: {error.strerror}") from None
    data = data.removeprefix(BYTE_ORDER_MARK)
    if not data.strip():
        raise TrajectoryError(f"{path}: is empty; expected a request, text or token ids")
    try:
        value = msgspec.json.decode(data)
    except (ValueError, RecursionError) as error:
        if path.suffix in (".json", ".jsonl") or data.lstrip()[:1] in (b"{", b"["):
            wrong = _is_log(data) or _not_json(error)
            raise TrajectoryError(f"{path}: {wrong}") from None
        text = _text(path, data)
        return Given(Call((), None), text, _only_numbers(path, text))
    return replace(_given(path, value), notes=repeated_keys(path, data.decode(), value))


def _given(path: Path, value: Any) -> Given:
    if isinstance(value, dict) and isinstance(value.get("body"), dict):
        value = value["body"]  # a line of a batch file, or a logged HTTP request
    if isinstance(value, list) and value and all(map(_is_number, value)):
        return Given(Call((), None, sending=Sending(token_ids=_ids(path, value))))
    if isinstance(value, str):
        return Given(Call((), None), value)
    if isinstance(value, dict) and not value.keys() & {"messages", "input"}:
        prompts = (value[key] for key in PROMPTS if value.get(key))
        prompt = next(prompts, None)
        if isinstance(prompt, str) or _are_numbers(prompt):
            given = _given(path, prompt)
            sent = replace(given.call.sending, **_names(value))
            return replace(given, call=replace(given.call, sending=sent))
    if value == [] or (isinstance(value, dict) and value.get("messages") == []):
        raise TrajectoryError(f"{path}: holds no messages")
    body = read_body(value, str(path))
    check_options(body.sending.options, str(path))
    return Given(Call(body.messages, None, tools=body.tools, sending=body.sending))


def _names(value: dict[str, Any]) -> dict[str, Any]:
    """Model and salt of a body."""
    named = {"model": value.get("model"), "salt": value.get("cache_salt")}
    return {key: name if isinstance(name, str) else None for key, name in named.items()}


def read_body(value: Any, where: str) -> Body:
    """The request of an OpenAI chat, Anthropic or Responses body, or of a list of messages. Raises
    TrajectoryError."""
    if is_responses_body(value):
        return read_responses_body(value, where)
    if is_anthropic_body(value):
        return read_anthropic_body(value, where)
    if isinstance(value, list):
        value = {"messages": value}
    if not isinstance(value, dict) or not value.get("messages"):
        found = "a JSON value" if not isinstance(value, dict) else ", ".join(list(value)[:5])
        raise TrajectoryError(
            f"{where}: {found or 'an empty object'} is no request; expected messages, a Responses "
            "input, token ids or text"
        )
    tools = value.get("tools")
    options = {key: v for key, v in value.items() if key not in OF_ENGINE and v is not None}
    sending = Sending(
        options=options,
        keys=tuple(value),
        **_names(value),
    )
    messages = check_messages(value["messages"], where)
    return Body(messages, check_tools(tools, where) if tools else (), sending)


def _text(path: Path, data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TrajectoryError(
            f"{path}: byte {error.start} is not UTF-8; expected a request, text or token ids"
        ) from None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _are_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_number, value))


def _is_log(data: bytes) -> str | None:
    """What is wrong with several JSON documents, a line each; None where it is not that."""
    try:
        for line in data.strip().split(b"\n")[:2]:
            msgspec.json.decode(line)
    except (ValueError, RecursionError):
        return None
    return "holds a JSON document on each line, as logs do; for all its calls: why --log FILE"


def _only_numbers(path: Path, text: str) -> tuple[str, ...]:
    """At most one note, on ids that are taken for prose."""
    if not all(each.isdecimal() for each in re.split(r"[\s,]+", text.strip(" \t\r\n,"))):
        return ()
    return (
        f"{path}: holds nothing but numbers, and is read as text; token ids are a JSON list, "
        '[1, 2, 3], or {"prompt_token_ids": [1, 2, 3]}',
    )


def _not_json(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "the JSON is nested too deeply"
    if "truncated" in str(error):
        return "the JSON is cut off in the middle, or a text in it ends in half a surrogate pair"
    return f"is no valid JSON in UTF-8 ({error}); expected one JSON document"


def _ids(path: Path, value: list[int | float]) -> tuple[int, ...]:
    ids = tuple(item for item in value if isinstance(item, int) and 0 <= item < MAX_ID)
    if len(ids) < len(value):
        wrong = next(x for x in value if not (isinstance(x, int) and 0 <= x < MAX_ID))
        raise TrajectoryError(f"{path}: {wrong} is no token id")
    return ids
