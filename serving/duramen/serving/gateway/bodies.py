"""Request bodies: read within limits of size, time and memory, and decoded.

A body lives as long as its call, in the queue too, and its values take many times the bytes that
spell them: 16 MB of `{},` become 400 MB. So what a body will weigh is counted before it is decoded,
and what the bodies of one tenant weigh together is limited.
"""

import asyncio
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from starlette.requests import ClientDisconnect, Request

from duramen.serving.gateway.errors import ApiError
from duramen.serving.gateway.settings import Limits
from duramen.serving.gateway.shapes import decode_body
from duramen.serving.gateway.wire import AT_END, Disconnected

MAX_VALUES = 2**19  # in a body, commas and braces in texts included: numbers of a million tokens
VALUE_BYTES = 96  # what one value takes in memory beside its text, at most, on average
NUM_LARGEST = 32  # a tenant's bodies may weigh as much as so many plain texts of the largest size
RETRY_S = 1.0


@dataclass
class Weight:
    tenant: str
    num_bytes: int = 0


class Bodies:
    """Reads bodies, and knows what those of the calls that run and wait weigh."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._most_bytes = NUM_LARGEST * limits.max_body_bytes
        self._by_tenant: Counter[str] = Counter()

    async def read(self, request: Request, tenant: str) -> dict[str, Any]:
        """The JSON object in the body. Its weight counts until the request's AT_END.

        Raises ApiError: 400 if it is no such object, 408 if it has not come by the deadline, 413 as
        soon as it is known to be too large, 429 if the tenant's bodies weigh too much by now;
        Disconnected.
        """
        weight = Weight(tenant)
        at_end: ExitStack = request.scope[AT_END]
        at_end.callback(self._give_back, weight)
        try:
            async with asyncio.timeout(self._limits.deadline_s):
                data = await self._data(request, weight)
        except TimeoutError:
            raise ApiError(
                408, "the body did not come in time: send it at once", code="request_timeout"
            ) from None
        except ClientDisconnect:
            raise Disconnected from None
        num_values = sum(map(data.count, (b",", b"{", b"[")))
        if num_values > MAX_VALUES:
            raise _too_large(f"holds more than {MAX_VALUES} values: send less")
        self._take(weight, VALUE_BYTES * num_values)
        return decode_body(data)

    async def _data(self, request: Request, weight: Weight) -> bytes:
        limit = self._limits.max_body_bytes
        larger = f"is larger than {limit} bytes: send less, or raise limits.max_body_bytes"
        announced = request.headers.get("content-length", "")
        if announced.isdecimal() and int(announced[:20]) > limit:
            raise _too_large(larger)
        data = bytearray()
        async for part in request.stream():
            self._take(weight, len(part))
            data += part
            if len(data) > limit:
                raise _too_large(larger)
        return bytes(data)

    def _take(self, weight: Weight, num_bytes: int) -> None:
        weight.num_bytes += num_bytes
        self._by_tenant[weight.tenant] += num_bytes
        if self._by_tenant[weight.tenant] > self._most_bytes:
            raise ApiError(
                429,
                "your calls that run and wait hold too large bodies: try again when some have "
                "ended",
                type="requests",
                code="rate_limit_exceeded",
                retry_after_s=RETRY_S,
            )

    def _give_back(self, weight: Weight) -> None:
        self._by_tenant[weight.tenant] -= weight.num_bytes
        if not self._by_tenant[weight.tenant]:
            del self._by_tenant[weight.tenant]


def _too_large(what: str) -> ApiError:
    return ApiError(413, f"the body {what}", code="body_too_large")
