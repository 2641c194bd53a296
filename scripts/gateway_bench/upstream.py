"""Speaks vLLM's HTTP as cheaply as Python can, so that what is measured is the gateway.

    python upstream.py PORT

A chat call streams `max_tokens` events of one token. `pace_ms` in its body is the time between two
of them (0: as fast as the reader takes them); with `in_step` all streams step together, as a batch
in vLLM does, with `at_random` they begin at random within that time. The content of each token is
"@" and the CLOCK_MONOTONIC at which it was written, in ns: a reader on the same machine knows how
old it is.
"""

import asyncio
import random
import sys
import time
from typing import cast

import msgspec
import uvloop

PAGES = {
    b"/version": b'{"version":"0.32.0"}',
    b"/v1/models": b'{"data":[{"id":"fake","max_model_len":131072}]}',
    b"/metrics": b'vllm:cache_config_info{block_size="32",num_gpu_blocks="100000"} 1.0',
    b"/health": b"",
}
HEAD = b'{"id":"chatcmpl-1f0c2d3e4a5b6c7d","object":"chat.completion.chunk","created":1790000000,'
START = HEAD + (
    b'"model":"fake","choices":[{"index":0,"delta":{"role":"assistant","content":""},'
    b'"logprobs":null,"finish_reason":null}],"prompt_token_ids":%b}'
)
TOKEN = HEAD + (
    b'"model":"fake","choices":[{"index":0,"delta":{"content":"@%d "},"logprobs":null,'
    b'"finish_reason":%b,"token_ids":[%d]}]}'
)
USAGE = (
    b'"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d,'
    b'"prompt_tokens_details":{"cached_tokens":0}}'
)
ANSWER = (
    b'{"id":"chatcmpl-1","object":"chat.completion","created":1790000000,"model":"fake","choices":'
    b'[{"index":0,"message":{"role":"assistant","content":"@0 "},"logprobs":null,'
    b'"finish_reason":"length","token_ids":[100]}],"prompt_token_ids":%b,' + USAGE + b"}"
)


class Params(msgspec.Struct):
    prompt_token_ids: msgspec.Raw


class Call(msgspec.Struct):
    kv_transfer_params: Params
    max_tokens: int = 16
    stream: bool = False
    pace_ms: float = 0.0
    in_step: bool = False
    at_random: bool = False


CALL = msgspec.json.Decoder(Call)


class Upstream(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._got = bytearray()
        self._wanted = 0  # bytes of the request that is coming in
        self._call: Call | None = None
        self._num_sent = 0
        self._may_write = True
        self._waits = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its type

    def connection_lost(self, error: Exception | None) -> None:
        self._call = None

    def pause_writing(self) -> None:
        self._may_write = False

    def resume_writing(self) -> None:
        self._may_write = True
        if self._waits:
            self._waits = False
            self._step(self._loop.time())

    def data_received(self, data: bytes) -> None:
        self._got += data
        if not self._wanted:
            end = self._got.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(self._got[:end]).lower()
            at = head.find(b"content-length:")
            length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            self._body_start = end + 4
            self._wanted = end + 4 + length
        if len(self._got) >= self._wanted:
            path = bytes(self._got[:200]).split(b" ", 2)[1]
            body = bytes(self._got[self._body_start : self._wanted])
            self._got.clear()
            self._wanted = 0
            self._answer(path, body)

    def _answer(self, path: bytes, body: bytes) -> None:
        if path != b"/v1/chat/completions":
            page = PAGES.get(path)
            status = b"404 Not Found" if page is None else b"200 OK"
            self._reply(status, page or b"")
            return
        call = CALL.decode(body)
        prompt = bytes(call.kv_transfer_params.prompt_token_ids)
        num_prompt = prompt.count(b",") + 1
        if not call.stream:
            self._reply(b"200 OK", ANSWER % (prompt, num_prompt, num_prompt + 1, 1))
            return
        self._call, self._num_sent, self._num_prompt = call, 0, num_prompt
        self._transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
            b"transfer-encoding: chunked\r\n\r\n" + chunk(START % prompt)
        )
        now_s = self._loop.time()
        pace_s = call.pace_ms / 1000
        if call.in_step and pace_s:
            now_s = (now_s // pace_s + 1) * pace_s
        elif call.at_random:
            now_s += random.random() * pace_s
        self._loop.call_at(now_s, self._step, now_s)

    def _reply(self, status: bytes, body: bytes) -> None:
        head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        self._transport.write(head % (status, len(body)) + body)

    def _step(self, due_s: float) -> None:
        call = self._call
        if call is None:
            return
        if not self._may_write:
            self._waits = True
            return
        self._num_sent += 1
        is_last = self._num_sent == call.max_tokens
        finish = b'"length"' if is_last else b"null"
        out = chunk(TOKEN % (time.monotonic_ns(), finish, 100 + self._num_sent % 1000))
        if is_last:
            n = call.max_tokens
            usage = USAGE % (self._num_prompt, self._num_prompt + n, n)
            out += chunk(HEAD + b'"model":"fake","choices":[],' + usage + b"}")
            out += chunk(b"[DONE]") + b"0\r\n\r\n"
            self._call = None
        self._transport.write(out)
        if not is_last:
            if call.pace_ms:
                due_s += call.pace_ms / 1000
                self._loop.call_at(due_s, self._step, due_s)
            else:
                self._loop.call_soon(self._step, due_s)


def chunk(data: bytes) -> bytes:
    return b"%x\r\ndata: %b\n\n\r\n" % (len(data) + 8, data)


async def main(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(
        Upstream, "127.0.0.1", port, backlog=1024
    )
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
