"""Reads recorded trajectories of any known form. What a file is, is told by its content.

Known forms: OpenAI chat JSONL, tau-bench results, SWE-agent .traj, mini-swe-agent .traj.json,
OpenHands output.jsonl and event lists, ShareGPT. Traces (importers.traces) bear no text and belong
to `duramen simulate`.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain, count
from pathlib import Path
from typing import Any

from duramen.experiments.importers.chat import read_chat
from duramen.experiments.importers.documents import Document, files_of, read_documents
from duramen.experiments.importers.mini_swe_agent import is_mini_swe_agent, read_mini_swe_agent
from duramen.experiments.importers.openhands import is_event, read_openhands
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
    "OpenAI chat JSONL or mini-swe-agent (messages), tau-bench results (traj), SWE-agent (history "
    "of roles), OpenHands (history of events) or ShareGPT (conversations)"
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
    if "role" in item:
        return read_chat
    if is_sharegpt(item):
        return read_sharegpt
    if form := form_of(item):
        raise _bears_no_text(where, form)
    raise _unknown(where, [item])


def _reader_of_object(where: str, value: dict[str, Any]) -> Reader:
    if is_mini_swe_agent(value):
        return read_mini_swe_agent
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
