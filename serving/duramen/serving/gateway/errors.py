"""Refusals in OpenAI's shape: {"error": {"message", "type", "param", "code"}}."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from duramen.layout.errors import DuramenError

DEADLINE = "deadline_exceeded"


class ApiError(DuramenError):
    """Ends a request with `status`. `retry_after_s` becomes the header Retry-After."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.type = type
        self.param = param
        self.code = code
        self.retry_after_s = retry_after_s

    @property
    def body(self) -> dict[str, object]:
        return {
            "error": {
                "message": str(self),
                "type": self.type,
                "param": self.param,
                "code": self.code,
            }
        }


@asynccontextmanager
async def within(deadline_s: float) -> AsyncIterator[None]:
    """Ends a block that takes longer with ApiError 504."""
    try:
        async with asyncio.timeout(deadline_s):
            yield
    except TimeoutError:
        raise ApiError(
            504,
            f"the call took longer than {deadline_s:.0f} s",
            type="server_error",
            code=DEADLINE,
        ) from None
