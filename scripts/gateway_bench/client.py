"""A client of the chat endpoint that costs little and takes the time at the socket."""

import asyncio
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

STAMP = re.compile(rb'"content":"@(\d+) "')
CONTENT = re.compile(rb'"delta":\{[^{}]*"content":"((?:[^"\\]|\\.)*)"')


@dataclass
class Answer:
    """`ages_s`: of each stamped token when it was read; `reads`: how many reads brought tokens."""

    status: int
    ttft_s: float
    elapsed_s: float
    ages_s: list[float] = field(default_factory=list)
    reads: int = 0
    body: bytes = b""

    @property
    def content(self) -> str:
        pieces = CONTENT.findall(self.body)
        text: str = msgspec.json.decode(b'"' + b"".join(pieces) + b'"')
        return text


class Client(asyncio.Protocol):
    """One connection, one call at a time. `keep`: whether answers have their body."""

    @classmethod
    async def connect(cls, port: int, *, keep: bool = False) -> "Client":
        loop = asyncio.get_running_loop()
        _, client = await loop.create_connection(lambda: cls(keep), "127.0.0.1", port)
        return client

    def __init__(self, keep: bool) -> None:
        self._keep = keep
        self._done: asyncio.Future[Answer] | None = None
        self._answer = Answer(0, 0.0, 0.0)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its type

    def connection_lost(self, error: Exception | None) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(ConnectionError("the server closed the connection"))

    def close(self) -> None:
        self._transport.close()

    @property
    def ages_s(self) -> list[float]:
        return self._answer.ages_s

    @property
    def num_tokens(self) -> int:
        return len(self._answer.ages_s)

    @property
    def num_reads(self) -> int:
        return self._answer.reads

    async def call(self, body: Mapping[str, Any] | bytes) -> Answer:
        """A streamed call, until its last byte. Time counts from before the body is written."""
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        head = (
            "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\n"
            f"content-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
        )
        self._done = asyncio.get_running_loop().create_future()
        self._answer = Answer(0, 0.0, 0.0)
        self._rest, self._kept = b"", bytearray()
        self._started_s = time.perf_counter()
        self._transport.write(head.encode() + data)
        answer = await self._done
        if answer.status != 200:
            raise RuntimeError(f"status {answer.status}: {answer.body[:300]!r}")
        return answer

    def data_received(self, data: bytes) -> None:
        now_ns = time.monotonic_ns()
        answer = self._answer
        if not answer.status:
            answer.status = int(data[9:12])
        if self._keep or answer.status != 200:
            self._kept += data
        found = self._rest + data
        end = found.rfind(b"\n\n") + 2
        stamps = STAMP.findall(found, 0, end) if end > 1 else []
        if not answer.ttft_s and (stamps or b'"token_ids"' in found or b'"content":"' in found):
            answer.ttft_s = time.perf_counter() - self._started_s
        if stamps:
            answer.reads += 1
            answer.ages_s += [(now_ns - int(stamp)) * 1e-9 for stamp in stamps]
        self._rest = found[end:] if end > 1 else found
        if found.endswith(b"0\r\n\r\n") or (answer.status != 200 and found.endswith(b"}")):
            answer.elapsed_s = time.perf_counter() - self._started_s
            answer.body = bytes(self._kept)
            assert self._done is not None
            if not self._done.done():
                self._done.set_result(answer)
