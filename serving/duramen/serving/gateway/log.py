"""What the gateway logs: JSON lines that cannot hold what was said in a call.

Nobody has to remember to redact. A call's line has the fields of `call_ended`, an event's only
those of `Fields`; text in them must look like a name (letters, digits and a few signs, no spaces,
at most 128), else it is withheld; of an exception the type and the places in the code are kept,
never its message, which may quote a prompt. Lines of libraries keep their logger, level and
exception alike, and lose their text.
"""

import logging
import re
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from statistics import median
from types import TracebackType
from typing import Any, TextIO, TypedDict, Unpack

import msgspec

from duramen.serving.gateway.call_facts import CallFacts

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/@+=-]{0,127}")
FIRST_WORD = re.compile(r"[A-Za-z0-9_]{1,40}")
WITHHELD = "withheld"
NUM_PLACES = 4  # of an exception, the innermost

LOGGER = logging.getLogger("duramen.gateway")


class Fields(TypedDict, total=False):
    """All that an event may have beside time, level and its name."""

    request_id: str
    engine: str
    generation: int
    error: BaseException


@dataclass(frozen=True)
class Event:
    """What is handed to the logging module in place of a message; its values are clean."""

    name: str
    values: dict[str, object]


def event(name: str, level: int = logging.INFO, **fields: Unpack[Fields]) -> None:
    """Log one line. A field that `Fields` does not have is left out."""
    values = {key: clean(value) for key, value in fields.items() if key in Fields.__annotations__}
    LOGGER.log(level, Event(name if NAME.fullmatch(name) else WITHHELD, values))


def call_ended(
    call: CallFacts, *, request_id: str, session_id: str | None, error: BaseException | None = None
) -> None:
    """Log a call: an error of ours or of the engine makes it a warning."""
    level = logging.WARNING if call.status == "engine_error" else logging.INFO
    values: dict[str, object] = {
        "request_id": clean(request_id),
        "tenant": clean(call.tenant),
        "session_id": clean(session_id),
        "model": clean(call.model),
        "status": call.status,
        "exact": call.is_exact,
        "prompt_tokens": call.prompt_tokens,
        "zone_tokens": {zone.name.lower(): n for zone, n in call.zone_tokens.items()},
        "bounds": asdict(call.bounds) if call.bounds else None,
        "predicted_low": call.predicted_low,
        "predicted_high": call.predicted_high,
        "delivered": call.delivered,
        "mismatch": call.mismatch,
        "break_cause": call.break_cause,
        "sampled_tokens": call.sampled_tokens,
        "queue_s": call.queue_s,
        "ttft_s": call.ttft_s,
        "itl_median_s": median(call.itl_s) if call.itl_s else None,
        "itl_max_s": max(call.itl_s, default=None),
        "store_s": call.store_s,
        "policies": [_first_word(policy) for policy in call.policies],
        "error": clean(error),
    }
    LOGGER.log(level, Event("call", values))


def clean(value: object) -> object:
    """Numbers as they are, names if they look like names, of an exception what is code of ours."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, BaseException):
        return _describe(value)
    return value if isinstance(value, str) and NAME.fullmatch(value) else WITHHELD


def _first_word(text: str) -> str:
    found = FIRST_WORD.match(text)
    return found[0] if found else WITHHELD


def _describe(error: BaseException) -> dict[str, object]:
    types: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(types) < NUM_PLACES:
        types.append(type(cause).__name__)
        cause = cause.__cause__ or cause.__context__
    frames = list(traceback.walk_tb(error.__traceback__))[-NUM_PLACES:]
    places = [f"{_module(frame.f_globals)}:{line}" for frame, line in frames]
    return {"types": types, "places": places}


def _module(names: dict[str, Any]) -> str:
    return str(names.get("__name__", "?"))


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, object] = {
            "time": when.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
        }
        if isinstance(record.msg, Event):
            line |= {"event": record.msg.name, **record.msg.values}
        else:
            error = record.exc_info[1] if record.exc_info else None
            line |= {"event": "library", "logger": clean(record.name), "error": clean(error)}
            line["place"] = f"{record.module}:{record.lineno}"
        return msgspec.json.encode(line).decode()


class _Lines(logging.StreamHandler[TextIO]):
    """Libraries' lines below WARNING are left out: without their text they say nothing."""

    def filter(self, record: logging.LogRecord) -> bool:
        return isinstance(record.msg, Event) or record.levelno >= logging.WARNING

    def handleError(self, record: logging.LogRecord) -> None:
        """A line that cannot be written is lost; the default prints its arguments instead."""


@contextmanager
def json_lines(stream: TextIO) -> Iterator[None]:
    """Everything that is logged goes to `stream` as JSON lines, whoever logs it; warnings and what
    threads and finalizers raise, too. Start uvicorn inside, with log_config=None and
    access_log=False. Leaves logging as it was."""
    root, access = logging.getLogger(), logging.getLogger("uvicorn.access")
    before = root.handlers[:], root.level, LOGGER.level, access.disabled
    hooks = threading.excepthook, sys.unraisablehook
    handler = _Lines(stream)
    handler.setFormatter(JsonFormatter())
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    LOGGER.setLevel(logging.INFO)
    access.disabled = True
    logging.captureWarnings(True)
    threading.excepthook = lambda args: _raised(args.exc_value, args.exc_traceback)
    sys.unraisablehook = lambda args: _raised(args.exc_value, args.exc_traceback)
    try:
        yield
    finally:
        threading.excepthook, sys.unraisablehook = hooks
        logging.captureWarnings(False)
        root.handlers[:], level, own_level, access.disabled = before
        root.setLevel(level)
        LOGGER.setLevel(own_level)


def _raised(error: BaseException | None, trace: TracebackType | None) -> None:
    if error is not None:
        event("raised_outside", logging.ERROR, error=error.with_traceback(trace))
