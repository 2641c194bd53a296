"""GET /health and /metrics: how the gateway does."""

from starlette.requests import Request
from starlette.types import Receive

from duramen.serving.gateway.addresses import is_loopback
from duramen.serving.gateway.errors import ApiError
from duramen.serving.gateway.gateway import Gateway
from duramen.serving.gateway.wire import Answering, send_bytes, send_json

FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip", "via")


class StatusPages:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def health(self, request: Request, receive: Receive, send: Answering) -> None:
        """200 when calls are taken, 503 with the reason while they are not: all of it for who asks
        on this machine, names and logs are not for others."""
        gateway, is_here = self._gateway, _is_here(request)
        store = gateway.tree.store.failing
        if store is not None and not is_here:
            store = "failing"
        if gateway.is_draining:
            state, reason = "draining", "the gateway is shutting down"
        elif gateway.engines.num_ready and gateway.up is not None:
            state, reason = "ready", None
        else:
            engines = gateway.engines
            state, reason = "starting", engines.why_down if is_here else engines.states
        answer = {"status": state, "reason": reason, "store": store or "ok"}
        await send_json(send, 200 if state == "ready" else 503, answer)

    async def metrics(self, request: Request, receive: Receive, send: Answering) -> None:
        """The page names tenants where there are any: it is for the operator, on this machine."""
        if self._gateway.tenants.have_keys and not _is_here(request):
            raise ApiError(403, "/metrics is answered on this machine only", code="forbidden")
        content_type, page = self._gateway.metrics.render()
        await send_bytes(send, 200, page, [(b"content-type", content_type.encode())])


def _is_here(request: Request) -> bool:
    """Whether a client on this machine asks, and not through a proxy on it."""
    if any(name in request.headers for name in FORWARDED):
        return False
    return request.client is not None and is_loopback(request.client.host)
