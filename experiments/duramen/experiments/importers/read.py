"""Reads recorded trajectories of any known form. What a file is, is told by its content.

Known forms: OpenAI chat JSONL, logs of Anthropic Messages and OpenAI Responses, LiteLLM logs,
Langfuse exports, OpenTelemetry spans, Claude Code sessions, Codex rollouts, ATIF, tau-bench
results, SWE-agent .traj, mini-swe-agent .traj.json, OpenHands output.jsonl and event lists,
ShareGPT. Traces (importers.traces) bear no text and belong to `duramen simulate`.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain, count
from pathlib import Path
from typing import Any

from duramen.experiments.importers.api_log import is_api_log, read_api_log
from duramen.experiments.importers.atif import is_atif, read_atif
from duramen.experiments.importers.chat import read_chat
from duramen.experiments.importers.claude_code import is_claude_code, read_claude_code
from duramen.experiments.importers.codex import is_codex, read_codex
from duramen.experiments.importers.documents import (
    Document,
    check_is_file,
    files_of,
    read_documents,
)
from duramen.experiments.importers.langfuse import is_langfuse, read_langfuse
from duramen.experiments.importers.litellm import is_litellm, read_litellm
from duramen.experiments.importers.mini_swe_agent import is_mini_swe_agent, read_mini_swe_agent
from duramen.experiments.importers.openhands import is_event, read_openhands
from duramen.experiments.importers.otel import read_otel
from duramen.experiments.importers.otlp import is_spans
from duramen.experiments.importers.sharegpt import is_sharegpt, read_sharegpt
from duramen.experiments.importers.swe_agent import read_swe_agent
from duramen.experiments.importers.tau_bench import read_tau_bench
from duramen.experiments.importers.tracelab import is_replay_csv
from duramen.experiments.importers.traces import Form, form_of
from duramen.experiments.trajectory import Session
from duramen.layout.errors import TrajectoryError

Reader = Callable[[Iterator[Document], str], Iterator[Session]]
SUFFIXES = {".json", ".jsonl", ".ndjson", ".traj"}
KNOWN_FORMS = (
    "OpenAI chat JSONL or mini-swe-agent (messages), Anthropic or Responses logs (request, "
    "response), LiteLLM (call_type), Langfuse (observations), OpenTelemetry (spans), Claude Code "
    "or Codex sessions, ATIF (steps), tau-bench results (traj), SWE-agent (history of roles), "
    "OpenHands (history of events) or ShareGPT (conversations)"
)


def read_sessions(
    paths: Iterable[Path], skipped: Callable[[str], None] | None = None
) -> Iterator[Session]:
    """Yield the sessions of all files, in order; a directory stands for the files below it that end
    in .json, .jsonl, .ndjson or .traj, by name.

    Session ids are unique over all of them: one that was seen before gets its file's name in front.
    Raises TrajectoryError, at the file that is broken or of no known form; what was read before it
    has been yielded by then. With `skipped` such a file is left out whole, and it gets the reason.
    """
    session_ids: set[str] = set()
    for path in files_of(paths, SUFFIXES):
        try:
            sessions = read_file(path)
            for session in sessions if skipped is None else list(sessions):
                session_id = _unique(session.session_id, path, session_ids)
                session_ids.add(session_id)
                yield replace(session, session_id=session_id)
        except TrajectoryError as error:
            if skipped is None:
                raise
            skipped(str(error))


def read_file(path: Path) -> Iterator[Session]:
    """The sessions of one file. Raises TrajectoryError like read_sessions."""
    check_is_file(path)
    if is_replay_csv(path):
        raise _bears_no_text(str(path), Form.TRACELAB)
    try:
        documents = read_documents(path)
        first = next(documents)
        yield from _reader_of(first)(chain([first], documents), path.stem)
    except RecursionError as error:
        raise TrajectoryError(f"{path}: a value is nested too deeply") from error


def _reader_of(document: Document) -> Reader:
    where, value = document
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return _reader_of_items(where, value[0])
    if isinstance(value, dict):
        return _reader_of_object(where, value)
    raise _unknown(where, value)


def _reader_of_items(where: str, item: dict[str, Any]) -> Reader:
    if "traj" in item:
        return read_tau_bench
    if is_event(item):
        return read_openhands
    if reader := _reader_of_log(item):
        return reader
    if "role" in item:
        return read_chat
    if is_sharegpt(item):
        return read_sharegpt
    if form := form_of(item):
        raise _bears_no_text(where, form)
    raise _unknown(where, [item])


def _reader_of_log(value: dict[str, Any]) -> Reader | None:
    """What may stand in a list or in lines."""
    if is_spans(value):
        return read_otel
    if is_langfuse(value):
        return read_langfuse
    if is_litellm(value):
        return read_litellm
    return read_api_log if is_api_log(value) else None


def _reader_of_object(where: str, value: dict[str, Any]) -> Reader:
    if is_mini_swe_agent(value):
        return read_mini_swe_agent
    if is_atif(value):
        return read_atif
    if reader := _reader_of_log(value):
        return reader
    if "messages" in value:
        return read_chat
    if is_sharegpt(value):
        return read_sharegpt
    if form := form_of(value):
        raise _bears_no_text(where, form)
    if "messages_display" in value:
        raise TrajectoryError(
            f"{where}: tau-bench few-shot text has lost its tool calls; expected {KNOWN_FORMS}"
        )
    if "instance_id" in value and _holds_events(value.get("history")):
        return read_openhands
    if {"history", "trajectory", "attempts"} & value.keys():
        return read_swe_agent
    if is_claude_code(value):
        return read_claude_code
    if is_codex(value):
        return read_codex
    raise _unknown(where, value)


def _holds_events(history: Any) -> bool:
    """True, too, for the history of an OpenHands run that failed before its first event."""
    return not history or (isinstance(history, list) and is_event(history[0]))


def _bears_no_text(where: str, form: Form) -> TrajectoryError:
    return TrajectoryError(
        f"{where}: {form.value} bears no text; use `duramen simulate` for it: it cannot be laid out"
    )


def _unknown(where: str, value: Any) -> TrajectoryError:
    item = value[0] if isinstance(value, list) and value else value
    found = "an object with " if item is value else "a list of objects with "
    found += ", ".join(list(item)[:5]) if isinstance(item, dict) and item else "no known keys"
    return TrajectoryError(f"{where}: unknown form, {found}; expected {KNOWN_FORMS}")


def _unique(session_id: str, path: Path, taken: set[str]) -> str:
    candidates = chain(
        (session_id, f"{path.stem}/{session_id}"),
        (f"{path.stem}/{session_id}#{number}" for number in count(2)),
    )
    return next(candidate for candidate in candidates if candidate not in taken)
