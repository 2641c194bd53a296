"""HTTP as ASGI messages: JSON, errors, event streams that notice their reader.

Written against ASGI itself: a message per token has no time for the layers of response objects.
"""

import asyncio
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from typing import Any, Self

import msgspec
from starlette.types import Receive, Scope, Send

from duramen.serving.gateway.errors import ApiError

Headers = list[tuple[bytes, bytes]]

JSON = (b"content-type", b"application/json")
EVENTS = (b"content-type", b"text/event-stream; charset=utf-8")
REQUEST_ID = "duramen.request_id"  # in the ASGI scope
ABORT = "duramen.abort"  # there too: cuts the connection
AT_END = "duramen.at_end"  # there too: an ExitStack, closed when the request is over

DONE = b"data: [DONE]\n\n"


async def send_json(
    send: Send, status: int, body: object, headers: Mapping[str, str] | None = None
) -> None:
    await send_bytes(send, status, msgspec.json.encode(body), [JSON, *encoded(headers or {})])


async def send_bytes(send: Send, status: int, data: bytes, headers: Headers) -> None:
    headers = [*headers, (b"content-length", str(len(data)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": data})


async def send_error(send: Send, error: ApiError, headers: Mapping[str, str] | None = None) -> None:
    given = dict(headers or {})
    if error.retry_after_s is not None:
        given["retry-after"] = str(max(1, round(error.retry_after_s)))
    await send_json(send, error.status, error.body, given)


def encoded(headers: Mapping[str, str]) -> Headers:
    return [
        (name.encode("latin-1"), value.encode("latin-1", "replace"))
        for name, value in headers.items()
    ]


def event(data: object) -> bytes:
    return as_event(msgspec.json.encode(data))


def as_event(json: bytes) -> bytes:
    return b"data: " + json + b"\n\n"


class Disconnected(Exception):
    """The client went away, or stopped reading."""


class EventStream:
    """Server-sent events to one client: `with EventStream(...) as stream:` in the task that writes.

    A timer for each write would cost more than the write. One timer looks now and then whether a
    write has been waiting since the last look, and interrupts it when it has waited long enough.
    """

    def __init__(self, send: Send, headers: Mapping[str, str], slow_reader_s: float) -> None:
        self._send = send
        self._headers = headers
        self._slow_reader_s = slow_reader_s
        self._started = False
        self._writing_since_s: float | None = None
        self._gave_up = False

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._num_cancels = task.cancelling()
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(self._slow_reader_s, self._look)
        return self

    def __exit__(self, *error: object) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        now_s = self._loop.time()
        since_s = now_s if self._writing_since_s is None else self._writing_since_s
        if now_s - since_s >= self._slow_reader_s:
            self._gave_up = True
            self._task.cancel()
        else:
            self._timer = self._loop.call_at(since_s + self._slow_reader_s, self._look)

    async def write(self, data: bytes) -> None:
        """Raises Disconnected if the client has not read for `slow_reader_s`."""
        if not self._started:
            self._started = True
            headers = [EVENTS, (b"cache-control", b"no-cache"), *encoded(self._headers)]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        if data:
            await self._send_within({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self, data: bytes = b"") -> None:
        await self._send_within({"type": "http.response.body", "body": data})

    async def _send_within(self, message: dict[str, Any]) -> None:
        self._writing_since_s = self._loop.time()
        try:
            await self._send(message)
        except asyncio.CancelledError:
            if self._gave_up and self._task.uncancel() <= self._num_cancels:
                raise Disconnected from None
            raise
        finally:
            self._writing_since_s = None


async def cut_off(scope: Scope, receive: Receive) -> None:
    """The connection ends now; closing it would wait for a client that reads nothing."""
    if ABORT in scope:
        scope[ABORT]()
        await until_disconnect(receive)


async def until_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class while_connected:
    """`async with while_connected(receive, answering):` ends in Disconnected when the client goes
    before it has the whole answer.

    Only for requests whose body was read whole.
    """

    def __init__(self, receive: Receive, answering: "Answering") -> None:
        self._receive = receive
        self._answering = answering
        self._gone = False

    async def __aenter__(self) -> None:
        block = asyncio.current_task()
        assert block is not None

        async def watch() -> None:
            await until_disconnect(self._receive)
            if not self._answering.ended:  # the end of an answer reads as a disconnect, too
                self._gone = True
                block.cancel()

        self._watcher = asyncio.create_task(watch())

    async def __aexit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self._watcher.cancel()
        with suppress(asyncio.CancelledError):
            await self._watcher
        if self._gone and kind is asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
            raise Disconnected from None


class Answering:
    """`send` that knows how far the answer has come, so that an error finds its proper form. The
    answer bears the request's id."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self._request_id = request_id
        self._is_stream = False
        self.started = self.ended = False

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            self._is_stream = EVENTS in message["headers"]
            with_id = (b"x-request-id", self._request_id.encode())
            message["headers"] = [*message["headers"], with_id]
        elif not message.get("more_body"):
            self.ended = True
        await self._send(message)

    async def fail(self, error: ApiError) -> None:
        """An error response; in a stream that has begun, an error event and its end."""
        if not self.started:
            await send_error(self, error)
        elif self._is_stream and not self.ended:
            body = event(error.body) + DONE
            await self({"type": "http.response.body", "body": body})
