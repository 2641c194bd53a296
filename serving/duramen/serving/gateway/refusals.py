"""What the engine's errors become for clients."""

from duramen.layout.errors import EngineError, PromptMismatch, RequestError
from duramen.serving.gateway.call_facts import Status
from duramen.serving.gateway.engines import Member
from duramen.serving.gateway.errors import DEADLINE, ApiError


def engine_refusal(error: EngineError, member: Member) -> ApiError:
    """In OpenAI's shape: the engine's own refusal, or that it failed, which is looked into."""
    if not isinstance(error, RequestError):
        member.supervisor.report_failure()
        # what else an error says (addresses, the log) is the operator's
        what = str(error) if isinstance(error, PromptMismatch) else "it stopped answering"
        return ApiError(
            503,
            f"the engine failed during this call, try again: {what}",
            type="server_error",
            code="engine_unavailable",
            retry_after_s=5,
        )
    if error.status in (401, 403):
        return ApiError(
            503,
            "the engine does not take the gateway's own key: tell the operator",
            type="server_error",
            code="engine_unavailable",
        )
    is_length = "maximum context length" in error.reason or "max_model_len" in error.reason
    code = "context_length_exceeded" if is_length else None
    return ApiError(error.status, error.reason, param=error.param, code=code)


def status_of(error: ApiError) -> Status:
    if error.code == DEADLINE:
        return "deadline"
    return "engine_error" if error.status >= 500 else "refused"
