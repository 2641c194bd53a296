"""Refusals in OpenAI's shape: {"error": {"message", "type", "param", "code"}}."""

from duramen.layout.errors import DuramenError


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
