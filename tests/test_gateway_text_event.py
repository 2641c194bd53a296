"""Events that are read into a fixed shape come out as those that are read into dicts do."""

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.serving.gateway.chat_answer import ChatAnswer
from duramen.serving.gateway.text_event import text_event
from duramen.serving.gateway.wire import Disconnected, EventStream

PROMPT = [1, 2, 3]
FIRST = {
    "id": "c-1",
    "object": "chat.completion.chunk",
    "created": 7,
    "model": "upstream",
    "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}],
    "prompt_token_ids": PROMPT,
}

TEXTS = st.none() | st.text(max_size=5)
NULL = st.none()
CHOICES = st.fixed_dictionaries(
    {
        "index": st.integers(0, 1),
        "delta": st.fixed_dictionaries({}, optional={"content": TEXTS, "reasoning": TEXTS}),
    },
    optional={
        "token_ids": NULL | st.lists(st.integers(0, 2**32 - 1), max_size=3),
        "logprobs": NULL | st.just({"content": []}),
        "finish_reason": NULL,
        "stop_reason": NULL,
    },
)
EVENTS = st.fixed_dictionaries(
    {
        "id": st.just("c-1"),
        "object": st.just("chat.completion.chunk"),
        "created": st.just(7),
        "model": st.just("upstream"),
        "choices": st.lists(CHOICES, min_size=1, max_size=2),
    },
    optional={"usage": NULL, "prompt_token_ids": NULL, "system_fingerprint": TEXTS},
)


class Kept:
    """What of Conversations a running call uses; remembers it."""

    def __init__(self) -> None:
        self.pieces: list[tuple[int, list[int], str]] = []

    def begin_reply(self, turn: None, index: int) -> Any:
        return SimpleNamespace(index=index, finish="", hashes=b"")

    def add_piece(self, reply: Any, token_ids: list[int], content: str) -> None:
        self.pieces.append((reply.index, list(token_ids), content))


def taken(events: list[dict[str, Any]], wants_ids: bool, fast: bool) -> tuple[Any, ...]:
    """What was forwarded, what was kept, and what the call knows at the end."""
    kept = Kept()
    opened = SimpleNamespace(prompt=SimpleNamespace(token_ids=PROMPT), turn=None)
    body = {"stream": True, "return_token_ids": wants_ids}
    call = ChatAnswer(kept, body, "asked", opened)  # type: ignore[arg-type]
    take = call.take_event if fast else call.take_any_event
    out = [take(msgspec.json.encode(event)) for event in [FIRST, *events]]
    shown = [msgspec.json.decode(data.removeprefix(b"data: ")) for data in out]
    said = {index: gathered.message for index, gathered in call._choices.items()}
    extra = msgspec.json.decode(call.extra_event({}).removeprefix(b"data: "))
    return shown, kept.pieces, said, call.num_sampled, len(call.arrivals_s), extra


@given(st.lists(EVENTS, max_size=4), st.booleans())
def test_the_fast_way_is_the_plain_one(events, wants_ids):
    assert taken(events, wants_ids, fast=True) == taken(events, wants_ids, fast=False)


@pytest.mark.parametrize(
    "change",
    [
        {"delta": {"content": "a", "role": "assistant"}},
        {"delta": {"tool_calls": []}},
        {"logprobs": {"content": []}},
        {"finish_reason": "stop"},
        {"stop_reason": 7},
        {"matched_token": None},
    ],
)
def test_what_has_more_than_text_is_no_text_event(change):
    plain = {"index": 0, "delta": {"content": "a"}, "token_ids": [5]}
    assert text_event(msgspec.json.encode(FIRST | {"prompt_token_ids": None, "choices": [plain]}))
    event = FIRST | {"prompt_token_ids": None, "choices": [plain | change]}
    assert text_event(msgspec.json.encode(event)) is None


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b'{"choices":[]}', b"\xff"])
def test_what_is_no_event_is_none(data):
    assert text_event(data) is None


async def test_a_reader_that_does_not_read_is_given_up():
    async def stuck(message):
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()

    with EventStream(stuck, {}, 0.01) as stream, pytest.raises(Disconnected):
        await stream.write(b"x")
    assert asyncio.current_task().cancelling() == 0


async def test_a_slow_stream_that_is_read_goes_on():
    sent = []

    async def send(message):
        await asyncio.sleep(0)
        sent.append(message.get("body"))

    with EventStream(send, {}, 0.01) as stream:
        for _ in range(3):
            await stream.write(b"x")
            await asyncio.sleep(0.015)
        await stream.end(b"y")
    assert sent == [None, b"x", b"x", b"x", b"y"]


async def test_a_cancel_from_outside_stays_one():
    async def stuck(message):
        await asyncio.Event().wait()

    async def writing():
        with EventStream(stuck, {}, 60.0) as stream:
            await stream.write(b"x")

    task = asyncio.create_task(writing())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
