"""TraceLab: how many tokens each round of a session kept, added and sampled, without their text.

Two forms (uw-syfi/TraceLab: replay/README.md, docs/prompt_cache_accounting.md). The replay CSV has
session_id (or id), round_idx, prefix_len, input_len, output_len, and optionally arrival_time (of
the session, ms) and tool_wait_after_ms. A round is placed at its session's arrival plus the waits
before it, as if replies took no time. The round trace has one JSON object per line: session_id,
round_index, model, input_tokens_total, prefix_tokens, output_tokens, timing_events; a round is
placed at its first event. Its prefix_tokens are what the provider read from its cache.

A round's prompt is the first `prefix` tokens of what the round before sent and sampled (of the same
session and model), then new tokens; one that keeps less branches off. Tokens get ids of their own,
so that every cache model can run them. A prefix that reaches beyond the round before stands for
tokens that the file does not tell: they count as new.
"""

import csv
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Annotated, Any

import msgspec

from duramen.experiments.importers.documents import Document
from duramen.experiments.importers.messages import check_iso_time, fail
from duramen.experiments.importers.token_trace import TokenRequest
from duramen.layout.errors import TrajectoryError

CSV_COLUMNS = {"round_idx", "prefix_len", "input_len", "output_len"}
ROUND_KEYS = {"session_id", "round_index", "input_tokens_total", "prefix_tokens"}
MAX_TOKENS = 2**24  # of one prompt or reply: more is no model's, but a mistake
MAX_ID = 2**32

Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)]


class _Event(msgspec.Struct):
    timestamp: str | None = None


class _Line(msgspec.Struct):
    session_id: str
    round_index: Annotated[int, msgspec.Meta(ge=0)]
    input_tokens_total: Count
    prefix_tokens: Count
    output_tokens: Count
    newly_append_tokens: Count | None = None
    model: str | None = None
    timing_events: list[_Event] | None = None


@dataclass(frozen=True, slots=True)
class Round:
    """`prefix_tokens` of the prompt were there before, `new_tokens` were not."""

    where: str
    session_id: str
    index: int
    model: str
    prefix_tokens: int
    new_tokens: int
    output_tokens: int
    time_s: float | None  # from any origin that the file's rounds share


@dataclass(frozen=True)
class Rounds:
    """`requests` in the order of time, or session after session where a round has no time."""

    requests: tuple[TokenRequest, ...]
    num_sessions: int
    num_unexplained_tokens: int  # of prefixes that reach beyond the round before
    num_unexplained_rounds: int


class FreshIds:
    """Token ids that were not used before."""

    def __init__(self) -> None:
        self._next = 0

    def take(self, num_tokens: int, where: str) -> "array[int]":
        start, self._next = self._next, self._next + num_tokens
        if self._next > MAX_ID:
            raise TrajectoryError(f"{where}: the trace has more than {MAX_ID} different tokens")
        return array("I", range(start, self._next))


def is_replay_csv(path: Path) -> bool:
    """Whether the first line names the columns of a replay CSV. False where it cannot be read."""
    try:
        with path.open("rb") as file:
            header = file.readline(4096).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return False
    return {name.strip(' "\r\n') for name in header.split(",")} >= CSV_COLUMNS


def is_round(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() >= ROUND_KEYS


def read_replay_csv(path: Path) -> Iterator[Round]:
    """Yield the rows by round. Raises TrajectoryError at the row that is none."""
    waited_ms: dict[str, float] = {}
    rows = [_Row(where, values) for where, values in _csv_rows(path)]
    for row in sorted(rows, key=lambda row: row.count("round_idx")):
        session_id = row.session_id()
        waited = waited_ms.setdefault(session_id, row.number("arrival_time"))
        waited_ms[session_id] += row.number("tool_wait_after_ms")
        yield Round(
            row.where,
            session_id,
            row.count("round_idx"),
            "",
            row.count("prefix_len"),
            row.count("input_len"),
            row.count("output_len"),
            waited / 1000,
        )


def read_rounds(documents: Iterator[Document]) -> Iterator[Round]:
    """Yield the lines of a round trace. Raises TrajectoryError at the line that is none."""
    for where, value in documents:
        try:
            line = msgspec.convert(value, _Line)
        except msgspec.ValidationError as error:
            raise TrajectoryError(f"{where}: no TraceLab round: {error}") from error
        added = line.input_tokens_total - line.prefix_tokens
        if added < 0:
            raise TrajectoryError(
                f"{where}: prefix_tokens {line.prefix_tokens} are more than input_tokens_total "
                f"{line.input_tokens_total}"
            )
        if line.newly_append_tokens not in (None, added):
            raise TrajectoryError(
                f"{where}: input_tokens_total {line.input_tokens_total} is not prefix_tokens "
                f"{line.prefix_tokens} + newly_append_tokens {line.newly_append_tokens}"
            )
        start = line.timing_events[0].timestamp if line.timing_events else None
        yield Round(
            where,
            line.session_id,
            line.round_index,
            line.model or "",
            line.prefix_tokens,
            added,
            line.output_tokens,
            None if start is None else check_iso_time(start, where, "timing_events[0].timestamp"),
        )


def as_requests(rounds: Iterable[Round], fresh: FreshIds) -> Rounds:
    """Token ids for all rounds of a file. Raises TrajectoryError where a session has a round twice,
    a prompt is empty or there are more tokens than ids."""
    requests: list[tuple[float, TokenRequest]] = []
    unexplained: list[int] = []
    sessions = _by_session(rounds)
    for session in sessions:
        told: dict[str, array[int]] = {}
        latest_s = 0.0
        for turn in session:
            before = told.get(turn.model, array("I"))
            unexplained.append(max(turn.prefix_tokens - len(before), 0))
            num_new = turn.new_tokens + unexplained[-1]
            prompt = before[: turn.prefix_tokens] + fresh.take(num_new, turn.where)
            output = fresh.take(turn.output_tokens, turn.where)
            told[turn.model] = prompt + output
            latest_s = max(turn.time_s or 0.0, latest_s)  # no round overtakes the one before
            requests.append((latest_s, TokenRequest(prompt, output)))
    if all(turn.time_s is not None for session in sessions for turn in session):
        requests.sort(key=lambda request: request[0])
    return Rounds(
        tuple(request for _, request in requests),
        len(sessions),
        sum(unexplained),
        sum(num > 0 for num in unexplained),
    )


def _by_session(rounds: Iterable[Round]) -> list[list[Round]]:
    sessions: dict[str, dict[int, Round]] = {}
    for turn in rounds:
        session = sessions.setdefault(turn.session_id, {})
        if session.setdefault(turn.index, turn) is not turn:
            raise TrajectoryError(
                f"{turn.where}: round {turn.index} of session {turn.session_id} stands at "
                f"{session[turn.index].where}, too"
            )
        if turn.prefix_tokens + turn.new_tokens < 1:
            raise TrajectoryError(f"{turn.where}: the prompt has no tokens")
    return [[session[index] for index in sorted(session)] for session in sessions.values()]


def _csv_rows(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The place and the values of each row, stripped; what a short row lacks is left out."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file, strict=True)
        try:
            for row in rows:
                values = {k: v for k, v in row.items() if k is not None and v is not None}
                yield (
                    f"{path}:{rows.line_num}",
                    {key.strip(): value.strip() for key, value in values.items()},
                )
        except (csv.Error, UnicodeDecodeError) as error:
            raise TrajectoryError(f"{path}:{rows.line_num + 1}: no CSV: {error}") from error
        if rows.line_num < 2:
            raise TrajectoryError(f"{path} names columns, but holds no rounds")


@dataclass(frozen=True, slots=True)
class _Row:
    where: str
    values: Mapping[str, str]

    def session_id(self) -> str:
        found = self.values.get("session_id") or self.values.get("id")
        if not found:
            raise fail(self.where, "session_id", found, "text or a number")
        return found

    def count(self, column: str) -> int:
        text = self.values.get(column, "")
        if not (text.isascii() and text.isdecimal() and len(text) < 12):
            raise fail(self.where, column, text or None, "a whole number")
        if int(text) > MAX_TOKENS:
            raise TrajectoryError(f"{self.where}: {column} {text} is more than {MAX_TOKENS}")
        return int(text)

    def number(self, column: str) -> float:
        """Milliseconds; 0 where there are none."""
        text = self.values.get(column) or "0"
        try:
            number = float(text)
        except ValueError as error:
            raise fail(self.where, column, text, "milliseconds") from error
        if not (isfinite(number) and number >= 0):
            raise fail(self.where, column, text, "milliseconds")
        return number
