"""The routes. Every error leaves in OpenAI's shape, and none with a traceback."""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from contextlib import ExitStack

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from duramen.serving.gateway import log
from duramen.serving.gateway.chat import ChatService
from duramen.serving.gateway.completions import CompletionService
from duramen.serving.gateway.errors import ApiError
from duramen.serving.gateway.gateway import Gateway
from duramen.serving.gateway.models import ModelPages
from duramen.serving.gateway.openapi import openapi
from duramen.serving.gateway.session_pages import SessionPages
from duramen.serving.gateway.status import StatusPages
from duramen.serving.gateway.tokenize import TokenizeService
from duramen.serving.gateway.wire import (
    AT_END,
    REQUEST_ID,
    Answering,
    Disconnected,
    cut_off,
    send_error,
    send_json,
)
from duramen.serving.vllm.protocol import CHAT_PATH

Serve = Callable[[Request, Receive, Answering], Awaitable[None]]


class Endpoint:
    """One route as ASGI: gives the request an id, and errors their form."""

    def __init__(self, serve: Serve, slow_reader_s: float) -> None:
        self._serve = serve
        self._slow_reader_s = slow_reader_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = scope[REQUEST_ID] = f"req-{secrets.token_hex(8)}"
        answering = Answering(send, request_id)
        try:
            with ExitStack() as scope[AT_END]:
                refusal = await self._refusal(Request(scope, receive), receive, answering)
            if refusal is not None:
                async with asyncio.timeout(self._slow_reader_s):
                    await answering.fail(refusal)
        except (Disconnected, TimeoutError):
            await cut_off(scope, receive)

    async def _refusal(
        self, request: Request, receive: Receive, answering: Answering
    ) -> ApiError | None:
        """Serve it; None if that went well. Raises Disconnected."""
        try:
            await self._serve(request, receive, answering)
        except Disconnected:
            raise
        except ApiError as error:
            return error
        except Exception as error:
            request_id = request.scope[REQUEST_ID]
            log.event("failed", logging.ERROR, request_id=request_id, error=error)
            return ApiError(500, "the gateway failed: see its log", type="server_error")
        return None


def make_app(gateway: Gateway) -> ASGIApp:
    """Starlette, with a short cut to the chat endpoint: each of its layers is gone through again
    for every token."""
    chat = Endpoint(ChatService(gateway), gateway.settings.limits.slow_reader_s)
    routed = _routed(gateway, chat)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if (scope.get("method"), scope.get("path")) == ("POST", CHAT_PATH):
            await chat(scope, receive, send)
        else:
            await routed(scope, receive, send)

    return app


def _routed(gateway: Gateway, chat: Endpoint) -> Starlette:
    models, sessions, status = ModelPages(gateway), SessionPages(gateway), StatusPages(gateway)
    description = openapi()

    async def described(request: Request, receive: Receive, send: Send) -> None:
        await send_json(send, 200, description)

    def route(path: str, serve: Serve, *methods: str) -> Route:
        endpoint = Endpoint(serve, gateway.settings.limits.slow_reader_s)
        return Route(path, endpoint, methods=list(methods))

    routed = Starlette(
        routes=[
            Route(CHAT_PATH, chat, methods=["POST"]),
            route("/v1/completions", CompletionService(gateway), "POST"),
            route("/v1/models", models, "GET"),
            route("/v1/models/{model:path}", models, "GET"),
            route("/tokenize", TokenizeService(gateway), "POST"),
            route("/v1/duramen/sessions", sessions.listed, "GET"),
            route("/v1/duramen/sessions/{session:path}", sessions.one, "GET", "DELETE"),
            route("/health", status.health, "GET"),
            route("/metrics", status.metrics, "GET"),
            route("/openapi.json", described, "GET"),
        ],
        exception_handlers={HTTPException: _http_error},  # type: ignore[dict-item]
    )
    routed.router.redirect_slashes = False
    return routed


async def _http_error(request: Request, error: Exception) -> "_Refusal":
    assert isinstance(error, HTTPException)
    what = f"{request.method} {request.url.path}: {error.detail.lower()}"
    return _Refusal(ApiError(error.status_code, what), dict(error.headers or {}))


class _Refusal:
    def __init__(self, error: ApiError, headers: dict[str, str]) -> None:
        self._error = error
        self._headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send_error(send, self._error, self._headers)
