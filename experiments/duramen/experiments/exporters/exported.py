"""What every exporter makes: files by name, and what their form could not hold."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from duramen.experiments.history import is_same
from duramen.experiments.trajectory import Call, Session
from duramen.layout.errors import TrajectoryError

ASSUMED_GAP_S = 1.0  # between calls whose times were not recorded


class File(NamedTuple):
    name: str
    text: str


@dataclass(frozen=True)
class Exported:
    """`files`: one, or one for each session. `notes`: what was left out, changed or assumed."""

    files: tuple[File, ...]
    num_sessions: int
    num_calls: int
    notes: tuple[str, ...] = ()


class Losses(Counter[str]):
    """Counts what a form cannot hold, by what it is in the plural."""

    def check(self, num_calls: int) -> None:
        """Raise TrajectoryError if no call was left."""
        if not num_calls:
            raise TrajectoryError("no call is left to export: " + "; ".join(self.notes))

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(f"{number} {what}" for what, number in self.items())


def offset_s(session: Session, call: Call, index: int) -> float:
    """Seconds after the session's first call: as recorded, else one second a call."""
    return index * ASSUMED_GAP_S if call.time_s is None else call.time_s


def goes_on(session: Session, before: Call, after: Call) -> bool:
    """Whether `after` sends all of `before`, then its reply, with the same tools and model."""
    num_old = len(before.messages)
    if before.reply is None or len(after.messages) <= num_old:
        return False
    said = zip((*before.messages, before.reply), after.messages, strict=False)
    return (
        all(is_same(old, new) for old, new in said)
        and is_same(session.tools_of(before), session.tools_of(after))
        and before.sending.model == after.sending.model
    )


def json_text(value: object, where: str) -> str:
    """JSON on one line. Raises TrajectoryError for text that is no Unicode."""
    try:
        return msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, ValueError, TypeError) as error:
        raise TrajectoryError(f"{where} cannot be written as JSON: {error}") from None


def json_lines(values: Iterable[object], where: str) -> str:
    return "".join(json_text(value, where) + "\n" for value in values)


def arguments_text(arguments: object) -> str:
    """A tool call's arguments as the API has them: text."""
    if isinstance(arguments, str):
        return arguments
    return json.dumps({} if arguments is None else arguments, ensure_ascii=False)


def thinking_in(message: Mapping[str, Any]) -> str | None:
    found = (message.get(key) for key in ("reasoning_content", "reasoning"))
    return next((text for text in found if isinstance(text, str) and text), None)


def call_name(session: Session, index: int) -> str:
    return f"session {session.session_id!r}, call {index}"
