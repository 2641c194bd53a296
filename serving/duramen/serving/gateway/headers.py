"""Headers of ours, in requests and answers."""

import re

from starlette.requests import Request

from duramen.serving.gateway.errors import ApiError

SESSION = "x-duramen-session"
EXPLAIN = "x-duramen-explain"
TOKEN_EXACT = "x-duramen-token-exact"
NOT_EXACT = {TOKEN_EXACT: "false"}

SESSION_ID = re.compile("[!-~]{1,256}")


def session_of(request: Request) -> str | None:
    """The session that a client names, if it does. Raises ApiError 400."""
    session = request.headers.get(SESSION)
    if session is not None and not SESSION_ID.fullmatch(session):
        raise ApiError(
            400,
            f"{SESSION} must be 1 to 256 printable ASCII characters without blanks",
            param=SESSION,
        )
    return session


def wants_explanation(request: Request) -> bool:
    return request.headers.get(EXPLAIN, "") not in ("", "0", "false")
