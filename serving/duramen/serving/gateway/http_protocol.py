"""uvicorn's HTTP with an end to everything that a client can draw out before it is known.

uvicorn limits neither the size of a request's head nor how long it may take to come, and reads on
for ever what a client sends behind an answer that did not need it.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from duramen.serving.gateway.wire import ABORT

MAX_HEAD_BYTES = 64 * 2**10  # request line and headers, but for what comes in one read with its end
HEAD_S = 30.0  # from a connection, or the head's first byte, to the head's last
LINGER_S = 30.0  # for the rest of a body that nobody reads any more


class BoundedHttp(HttpToolsProtocol):
    """A request can also cut its connection (ABORT in its scope), which closing does not do while
    a client reads nothing."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._in_head = False
        self._in_body = False
        self._num_head_bytes = 0
        self._end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._end_after(HEAD_S)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_after(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        was_in_head = self._in_head
        super().data_received(data)
        self._num_head_bytes = self._num_head_bytes + len(data) if was_in_head else 0
        if self._in_head and self._num_head_bytes > MAX_HEAD_BYTES:
            self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope[ABORT] = self.transport.abort  # type: ignore[literal-required]
        self._in_head = self._in_body = True
        self._end_after(HEAD_S)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._end_after(None)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_body = False
        if not self._in_head and self.cycle.response_complete:
            self._end_after(None)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._in_body and not self._in_head:
            self._end_after(LINGER_S)

    def _end_after(self, seconds: float | None) -> None:
        if self._end is not None:
            self._end.cancel()
        self._end = None if seconds is None else self.loop.call_later(seconds, self.transport.close)
