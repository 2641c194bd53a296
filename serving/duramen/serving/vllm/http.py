"""HTTP to one vLLM server: JSON, server-sent events, and its refusals as our errors."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any

import aiohttp
import msgspec

from duramen.layout.errors import EngineError, RequestError

DONE = b"[DONE]"
# vLLM closes a connection that is idle for 5 s (VLLM_HTTP_TIMEOUT_KEEP_ALIVE). A request that is
# sent at that moment is lost, so a connection is not used again after half of it.
KEEP_ALIVE_S = 2.5


class EngineHttp:
    """A connection pool to `url`. `explain` says what is known of a server that stopped answering.

    Every method raises RequestError for a status of 4xx, EngineError for anything else that fails.
    """

    def __init__(self, url: str, explain: Callable[[], str], *, api_key: str | None = None) -> None:
        self.url = url.rstrip("/")
        self.explain = explain
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {api_key}"} if api_key else None,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S),
        )

    async def get(self, path: str) -> bytes:
        async with self._request("GET", path, None) as response:
            return await response.read()

    async def get_json(self, path: str) -> Any:
        return self._json(path, await self.get(path))

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        async with self._request("POST", path, body) as response:
            return self._json(path, await response.read())

    async def stream(self, path: str, body: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        """Yield the JSON of each event until the final [DONE]; a stream without one is an error."""
        async with aclosing(self.batches(path, body)) as batches:
            async for batch in batches:
                for event in batch:
                    yield self._json(path, event)

    async def batches(
        self, path: str, body: Mapping[str, Any]
    ) -> AsyncGenerator[list[bytes], None]:
        """As `stream`, the events that arrived together in one list, and as they came."""
        async with self._request("POST", path, body) as response:
            buffer = bytearray()  # an event may be as long as the prompt: no line limit fits
            while part := await response.content.readany():
                buffer += part
                end = buffer.rfind(b"\n\n")
                if end < 0:
                    continue
                found = bytes(buffer[:end]).split(b"\n\n")
                del buffer[: end + 2]
                batch: list[bytes] = []
                for item in found:
                    data = item.removeprefix(b"data:").strip()
                    if data == DONE:
                        yield batch
                        return
                    if b'"error"' in data and "error" in (event := self._json(path, data)):
                        yield batch
                        raise self._refusal(event["error"].get("code") or 500, data)
                    batch.append(data)
                yield batch
        raise EngineError(f"the engine broke off in the middle of an answer. {self.explain()}")

    async def close(self) -> None:
        await self._session.close()

    def _json(self, path: str, data: bytes) -> Any:
        try:
            return msgspec.json.decode(data)
        except msgspec.DecodeError:
            raise EngineError(
                f"{self.url}{path} answers, but not in JSON: is it vLLM's address, without /v1?"
            ) from None

    @asynccontextmanager
    async def _request(
        self, method: str, path: str, body: Mapping[str, Any] | None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        data = None if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": "application/json"} if data else {}
        try:
            async with self._session.request(
                method, self.url + path, data=data, headers=headers
            ) as response:
                if response.status >= 400:
                    raise self._refusal(response.status, await response.read())
                yield response
        except (aiohttp.ClientError, TimeoutError) as error:
            what = str(error) or type(error).__name__
            raise EngineError(
                f"no answer from the engine at {self.url}: {what}. {self.explain()}"
            ) from error

    def _refusal(self, status: int, body: bytes) -> EngineError:
        """One line out of an error body, which is JSON by convention but not by force."""
        param = None
        try:
            error = msgspec.json.decode(body)["error"]
            message, param = str(error["message"]), error.get("param")
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError):
            message = body.decode(errors="replace")
        line = " ".join(message.split()) or "no reason given"
        if status in (401, 403):
            line += "; give its key in DURAMEN_API_KEY"
        if 400 <= status < 500:
            return RequestError(
                f"the engine refused the request ({status}): {line}",
                status,
                reason=line,
                param=param if isinstance(param, str) else None,
            )
        return EngineError(f"the engine failed ({status}): {line} {self.explain()}")
