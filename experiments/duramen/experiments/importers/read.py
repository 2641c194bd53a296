"""Reads recorded trajectories of any known form. What a file is, is told by its content.

Known forms: OpenAI chat JSONL, logs of Anthropic Messages and OpenAI Responses, LiteLLM logs,
Langfuse exports, OpenTelemetry spans, Claude Code sessions, Codex rollouts, ATIF, tau-bench
results, SWE-agent .traj, mini-swe-agent .traj.json, OpenHands output.jsonl and event lists,
ShareGPT. Traces (importers.traces) bear no text and belong to `duramen simulate`.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
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
    Lines,
    check_is_file,
    files_of,
)
from duramen.experiments.importers.langfuse import is_langfuse, read_langfuse
from duramen.experiments.importers.litellm import is_litellm, read_litellm
from duramen.experiments.importers.messages import check_options, name_of
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
from duramen.layout.errors import TrajectoryError, UnknownForm

Reader = Callable[[Iterator[Document], str], Iterator[Session]]
MAX_BROKEN_LINES = 20  # of one file, each of which takes another reading
LINE_LEFT_OUT = "that line is left out"  # how the reason ends where the file's others are read
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
    has been yielded by then. With `skipped` such a file is left out, or the lines of it that are
    broken where the others can be read, and it gets the reasons. A last line that is being written
    is left out, with a note.
    """
    session_ids: set[str] = set()
    for path in files_of(paths, SUFFIXES):
        for session in read_file(path) if skipped is None else _readable(path, skipped):
            session_id = _unique(session.session_id, path, session_ids)
            session_ids.add(session_id)
            yield replace(session, session_id=session_id)


def _readable(path: Path, skipped: Callable[[str], None]) -> Sequence[Session]:
    """The sessions of a file, without its broken lines; none where too many are, or it is of no
    known form."""
    lines: dict[int, str] = {}
    while True:
        try:
            sessions = list(read_file(path, lines))
        except TrajectoryError as error:
            line = None if isinstance(error, UnknownForm) else _line_of(error, path)
            if line is None or line in lines or len(lines) == MAX_BROKEN_LINES:
                skipped(next(iter(lines.values()), str(error)))
                return ()
            lines[line] = str(error)
        else:
            for reason in lines.values():
                skipped(f"{reason}; {LINE_LEFT_OUT}")
            return sessions


def _line_of(error: TrajectoryError, path: Path) -> int | None:
    found = re.match(r":(\d+): ", str(error).removeprefix(str(path)))
    return int(found[1]) if found else None


def read_file(path: Path, skipped: Collection[int] = ()) -> Iterator[Session]:
    """The sessions of one file without the lines of these numbers. Raises TrajectoryError like
    read_sessions."""
    check_is_file(path)
    if is_replay_csv(path):
        raise _bears_no_text(str(path), Form.TRACELAB)
    lines = Lines(path, skipped)
    last = None
    try:
        documents = lines.documents()
        first = next(documents)
        for session in _reader_of(first)(chain([first], documents), _stem(path)):
            for number, call in enumerate(session.calls):
                check_options(call.sending.options, f"{path}: {session.session_id!r} call {number}")
            if last is not None:
                yield last
            last = session
    except (TrajectoryError, RecursionError) as error:
        if last is not None:
            yield last
        if isinstance(error, RecursionError):
            raise TrajectoryError(f"{path}: a value is nested too deeply") from error
        raise
    if last is not None and lines.num_cut_bytes:
        note = f"{path}: the last line is cut off: its {lines.num_cut_bytes:,} bytes are left out"
        last = replace(last, notes=(*last.notes, note))
    if last is not None:
        yield last


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
        raise UnknownForm(
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


def _bears_no_text(where: str, form: Form) -> UnknownForm:
    return UnknownForm(
        f"{where}: {form.value} bears no text; use `duramen simulate` for it: it cannot be laid out"
    )


def _unknown(where: str, value: Any) -> UnknownForm:
    item = value[0] if isinstance(value, list) and value else value
    found = name_of(value)
    if isinstance(item, dict):
        found = "an object with " if item is value else "a list of objects with "
        found += ", ".join(list(item)[:5]) or "no known keys"
    return UnknownForm(f"{where}: unknown form, {found}; expected {KNOWN_FORMS}")


def _unique(session_id: str, path: Path, taken: set[str]) -> str:
    candidates = chain(
        (session_id, f"{_stem(path)}/{session_id}"),
        (f"{_stem(path)}/{session_id}#{number}" for number in count(2)),
    )
    return next(candidate for candidate in candidates if candidate not in taken)


def _stem(path: Path) -> str:
    """As text that UTF-8 can hold: a file's name may be any bytes."""
    return path.stem.encode("utf-8", "backslashreplace").decode()
