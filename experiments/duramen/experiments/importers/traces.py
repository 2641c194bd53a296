"""Traces: requests without text, for `duramen simulate`. What a file is, is told by its content.

Block ids: Mooncake and Weka. Token ids: token traces, and TraceLab, whose ids are made up. Several
files are of one form and are served one after another in the order they are given, since their
clocks do not compare. Ids of blocks mean nothing beyond their file (a Weka trace of scope `global`
says that its ids do); those of a token trace are the same tokens everywhere.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from enum import Enum
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple

from duramen.experiments.importers.documents import check_is_file, files_of, read_documents
from duramen.experiments.importers.mooncake import UNIT_TOKENS, Chains, HashedRequest, read_mooncake
from duramen.experiments.importers.token_trace import TokenRequest, read_token_trace
from duramen.experiments.importers.tracelab import (
    FreshIds,
    Round,
    as_requests,
    is_replay_csv,
    is_round,
    read_replay_csv,
    read_rounds,
)
from duramen.experiments.importers.weka import WekaRequest, is_weka, read_weka
from duramen.layout.errors import TrajectoryError

SUFFIXES = {".csv", ".json", ".jsonl", ".ndjson"}


class Form(Enum):
    """The value says what it is in a message."""

    MOONCAKE = "a trace of hash ids (Mooncake)"
    WEKA = "a trace of hash ids (Weka)"
    TOKENS = "a trace of token ids"
    TRACELAB = "a trace of token counts (TraceLab)"


class Trace(NamedTuple):
    """All requests in the order they are served: either hashed or tokens, the other is empty.

    `unit_tokens` is how long a block of `hashed` is. Sessions are None where the form has none.
    `notes` say what a reader of the figures would not expect.
    """

    hashed: Sequence[HashedRequest] = ()
    tokens: Sequence[TokenRequest] = ()
    unit_tokens: int | None = None
    num_sessions: int | None = None
    notes: tuple[str, ...] = ()


def form_of(value: Any) -> Form | None:
    """What the first document of a file says; None where it is no trace."""
    if is_weka(value):
        return Form.WEKA
    if is_round(value):
        return Form.TRACELAB
    keys = value.keys() if isinstance(value, dict) else ()
    if "hash_ids" in keys:
        return Form.MOONCAKE
    return Form.TOKENS if "token_ids" in keys else None


def read_traces(paths: Iterable[Path], unit: int | None = None) -> Trace:
    """Read all files; a folder stands for the files below it that end in .csv, .json, .jsonl or
    .ndjson, by name. `unit`: tokens per block of hash ids, None = the usual one.

    Raises TrajectoryError where a file is no trace, or of another form than those before.
    """
    files = [*files_of(paths, SUFFIXES)]
    forms: dict[Form, Path] = {}
    for path in files:
        forms.setdefault(_form_in(path), path)
        if len(forms) > 1:
            before, form = forms
            raise TrajectoryError(
                f"{path} is {form.value}, but {forms[before]} is {before.value}: "
                "simulate them apart"
            )
    match next(iter(forms), None):
        case Form.MOONCAKE:
            return _mooncake(files, unit or UNIT_TOKENS)
        case Form.WEKA:
            return _weka(files, unit)
        case Form.TRACELAB:
            return _tracelab(files)
        case _:
            tokens = [
                request for path in files for request in read_token_trace(read_documents(path))
            ]
            return Trace(tokens=tokens)


def _form_in(path: Path) -> Form:
    check_is_file(path)
    if is_replay_csv(path):
        return Form.TRACELAB
    where, value = next(read_documents(path))
    form = form_of(value)
    if form is None:
        raise TrajectoryError(
            f"{where}: unknown form; expected a Mooncake trace (hash_ids), a Weka trace "
            "(block_size, requests), a TraceLab CSV or round trace, or a token trace (token_ids)"
        )
    return form


class _Numbers(dict[int, int]):
    """Gives each id of one scope a number of its own."""

    def __init__(self, fresh: Iterator[int]) -> None:
        self._fresh = fresh

    def __missing__(self, hash_id: int) -> int:
        self[hash_id] = number = next(self._fresh)
        return number


def _mooncake(files: Sequence[Path], unit: int) -> Trace:
    fresh = count()
    hashed = []
    for path in files:
        numbers = _Numbers(fresh)
        requests = read_mooncake(read_documents(path), unit)
        for request in sorted(requests, key=lambda request: request.time_s):
            ids = [*map(numbers.__getitem__, request.hash_ids)]
            hashed.append(replace(request, hash_ids=ids))
    return Trace(hashed, unit_tokens=unit)


def _weka(files: Sequence[Path], unit: int | None) -> Trace:
    """A cache belongs to one model, so the same id under two models is two blocks."""
    fresh = count()
    numbers: dict[Hashable, _Numbers] = defaultdict(lambda: _Numbers(fresh))
    hashed: list[HashedRequest] = []
    num_sessions = 0
    chains = Chains()
    for session in chain.from_iterable(read_weka(read_documents(path), chains) for path in files):
        num_sessions += 1
        unit = unit or session.block_size
        if unit % session.block_size:
            raise TrajectoryError(
                f"{session.where}: blocks of {session.block_size} tokens do not make up blocks of "
                f"{unit}; give a --unit that is a multiple of {session.block_size}"
            )
        scope = None if session.has_global_ids else num_sessions
        for request in session.requests:
            numbers_of = numbers[scope, request.model].__getitem__
            ids = [*map(numbers_of, _merged(request, session.block_size, unit))]
            if len(ids) * unit < request.num_tokens:
                ids.append(next(fresh))  # a rest without an id is like no other
            hashed.append(
                HashedRequest(ids, request.num_tokens, request.time_s, request.num_output_tokens)
            )
    note = "replies bear no ids in a Weka trace: what was decoded is hit by no later prompt"
    return Trace(hashed, unit_tokens=unit, num_sessions=num_sessions, notes=(note,))


def _merged(request: WekaRequest, block_size: int, unit: int) -> list[int]:
    """The ids at the ends of blocks of `unit`: an id stands for all before it. A partial last block
    has one, too, where the ids cover the prompt to its end."""
    num_merged = unit // block_size
    ids = request.hash_ids[num_merged - 1 :: num_merged]
    covers_all = len(request.hash_ids) * block_size >= request.num_tokens
    if covers_all and len(ids) * unit < request.num_tokens:
        ids.append(request.hash_ids[-1])
    return ids


def _tracelab(files: Sequence[Path]) -> Trace:
    fresh = FreshIds()
    read = [as_requests(_rounds_in(path), fresh) for path in files]
    tokens = [request for rounds in read for request in rounds.requests]
    notes = ["token ids are made up: a prompt shares with the one before what its prefix says"]
    if not all(map(is_replay_csv, files)):
        notes.append(
            "the prefixes of a round trace are what the provider read from its cache: what that "
            "had lost counts as new"
        )
    num_tokens = sum(rounds.num_unexplained_tokens for rounds in read)
    if num_tokens:
        num_rounds = sum(rounds.num_unexplained_rounds for rounds in read)
        notes.append(
            f"{num_tokens} prefix tokens stand for text that no earlier round of their file holds "
            f"(in {num_rounds} of {len(tokens)} rounds): they count as new"
        )
    return Trace(
        tokens=tokens, num_sessions=sum(rounds.num_sessions for rounds in read), notes=tuple(notes)
    )


def _rounds_in(path: Path) -> Iterator[Round]:
    return read_replay_csv(path) if is_replay_csv(path) else read_rounds(read_documents(path))
