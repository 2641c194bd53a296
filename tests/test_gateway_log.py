"""What the gateway logs, and that nothing said in a call can be in it."""

import io
import json
import logging
import sys
import threading
import warnings
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.layout.bounds import Bounds
from duramen.layout.errors import TemplateError
from duramen.layout.zones import Zone
from duramen.serving.gateway import log
from duramen.serving.gateway.call_facts import CallFacts

SECRET = "Meet me at the old mill"
KEY = "dk-5f0c9a"
FULL = CallFacts(
    tenant="team-a",
    model="smollm2",
    status="ok",
    is_exact=True,
    zone_tokens={Zone.ROOT: 100, Zone.LEAF: 10},
    bounds=Bounds(num_tokens=110, content=105, token=100, unit=96),
    predicted_low=96,
    predicted_high=96,
    delivered=96,
    queue_s=0.5,
    ttft_s=1.0,
    itl_s=(0.1, 0.3, 0.2),
    sampled_tokens=4,
    store_s=0.01,
    policies=("freeze_tools: 3 tools", "volatile moved 2 fields"),
)


def lines(act: Any) -> list[dict[str, Any]]:
    """What is logged while `act` runs, without the time."""
    stream = io.StringIO()
    with log.json_lines(stream):
        act()
    found = [json.loads(line) for line in stream.getvalue().splitlines()]
    for line in found:
        assert line.pop("time").endswith("+00:00")
    return found


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def test_a_call_is_one_line_of_numbers_and_names():
    (line,) = lines(lambda: log.call_ended(FULL, request_id="req-1", session_id="s1"))
    assert line == {
        "level": "info",
        "event": "call",
        "request_id": "req-1",
        "tenant": "team-a",
        "session_id": "s1",
        "model": "smollm2",
        "status": "ok",
        "exact": True,
        "prompt_tokens": 110,
        "zone_tokens": {"root": 100, "leaf": 10},
        "bounds": {"num_tokens": 110, "content": 105, "token": 100, "unit": 96},
        "predicted_low": 96,
        "predicted_high": 96,
        "delivered": 96,
        "mismatch": None,
        "break_cause": None,
        "sampled_tokens": 4,
        "queue_s": 0.5,
        "ttft_s": 1.0,
        "itl_median_s": 0.2,
        "itl_max_s": 0.3,
        "store_s": 0.01,
        "policies": ["freeze_tools", "volatile"],
        "error": None,
    }


def test_an_error_of_the_engine_is_a_warning_without_its_message():
    facts = CallFacts(tenant="a", model="m", status="engine_error", is_exact=False)
    error = raised(TemplateError(SECRET))
    (line,) = lines(lambda: log.call_ended(facts, request_id="req-1", session_id=None, error=error))
    assert line["level"] == "warning"
    assert line["session_id"] is line["ttft_s"] is line["itl_max_s"] is None
    assert line["error"]["types"] == ["TemplateError"]
    (place,) = line["error"]["places"]
    assert place.startswith(f"{__name__}:")


def test_the_causes_of_an_error_are_named_and_its_innermost_places():
    def dig(depth: int) -> None:
        if depth:
            return dig(depth - 1)
        try:
            raise KeyError(SECRET)
        except KeyError as error:
            raise ValueError(SECRET) from error

    try:
        dig(9)
    except ValueError as error:
        (line,) = lines(lambda caught=error: log.event("failed", logging.ERROR, error=caught))
    assert line["level"] == "error"
    assert line["error"]["types"] == ["ValueError", "KeyError"]
    assert len(line["error"]["places"]) == 4


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (3, 3),
        (True, True),
        (0.5, 0.5),
        ("req-1f", "req-1f"),
        ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000/v1"),
        ("", log.WITHHELD),
        ("two words", log.WITHHELD),
        ("line\nbreak", log.WITHHELD),
        ("name\n", log.WITHHELD),
        ("ünlaut", log.WITHHELD),
        ("{json}", log.WITHHELD),
        ("x" * 129, log.WITHHELD),
        (b"bytes", log.WITHHELD),
        (["list"], log.WITHHELD),
        ({"role": "user"}, log.WITHHELD),
    ],
)
def test_values_are_numbers_or_names(value, expected):
    assert log.clean(value) == expected


def test_unknown_fields_are_left_out():
    (line,) = lines(lambda: log.event("ready", generation=2, prompt=SECRET, api_key=KEY))
    assert line == {"level": "info", "event": "ready", "generation": 2}


def test_a_number_that_json_does_not_have_is_null():
    (line,) = lines(lambda: log.event("ready", generation=float("nan")))
    assert line["generation"] is None


def test_libraries_lose_their_text_and_what_they_raise():
    library = logging.getLogger("uvicorn.error")

    def act() -> None:
        library.info("started %s", SECRET)
        library.warning("Authorization: Bearer %s", KEY)
        try:
            raise RuntimeError(SECRET)
        except RuntimeError:
            library.exception(SECRET)
        logging.getLogger("uvicorn.access").warning("GET /?q=%s", SECRET)

    first, second = lines(act)
    assert first | {"place": ""} == {
        "level": "warning",
        "event": "library",
        "logger": "uvicorn.error",
        "error": None,
        "place": "",
    }
    assert first["place"].startswith("test_gateway_log:")
    assert second["error"]["types"] == ["RuntimeError"]


def test_warnings_threads_and_finalizers_go_the_same_way():
    class Broken:
        def __del__(self) -> None:
            raise ValueError(SECRET)

    def fail() -> None:
        raise KeyError(SECRET)

    def act() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn(SECRET, stacklevel=1)
        thread = threading.Thread(target=fail)
        thread.start()
        thread.join()
        Broken()

    warned, thread, finalizer = lines(act)
    assert (warned["event"], warned["logger"]) == ("library", "py.warnings")
    assert (thread["event"], thread["error"]["types"]) == ("raised_outside", ["KeyError"])
    assert (finalizer["event"], finalizer["error"]["types"]) == ("raised_outside", ["ValueError"])


def test_a_line_that_cannot_be_written_prints_nothing_else(capsys):
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError("no space left")

    with log.json_lines(Full()):
        logging.getLogger("library").error("%s", SECRET)
        log.event("ready")
    assert capsys.readouterr() == ("", "")


def test_logging_is_left_as_it_was():
    root = logging.getLogger()
    before = (root.handlers[:], root.level, threading.excepthook, sys.unraisablehook)
    with log.json_lines(io.StringIO()):
        assert root.handlers != before[0]
    assert (root.handlers[:], root.level, threading.excepthook, sys.unraisablehook) == before
    assert not logging.getLogger("uvicorn.access").disabled


CONTENT = st.text(max_size=20).map(lambda text: f"{SECRET} {text}")


@given(st.data())
def test_no_content_gets_out_wherever_it_is_put(data):
    def content() -> str:
        return data.draw(CONTENT)

    error = raised(TemplateError(content()))
    error.__cause__ = raised(KeyError({"authorization": f"Bearer {KEY}", "text": content()}))
    error.add_note(content())
    facts = CallFacts(
        tenant=content(),
        model=content(),
        status="engine_error",
        is_exact=True,
        policies=(f"frame_tool_results: {content()}", f"<{content()}>"),
    )

    def act() -> None:
        log.call_ended(facts, request_id=content(), session_id=content(), error=error)
        log.event(content(), engine=content(), request_id=content(), error=error)
        log.event("ready", **{content(): content(), "messages": [content()]})
        logging.getLogger(content()).error(content(), exc_info=error)
        logging.getLogger("asyncio").error(content() + " %s", {"key": KEY})

    stream = io.StringIO()
    with log.json_lines(stream):
        act()
    text = stream.getvalue()
    assert len(text.splitlines()) == 5
    assert "old mill" not in text
    assert KEY not in text
