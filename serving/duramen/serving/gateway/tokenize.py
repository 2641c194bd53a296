"""POST /tokenize: of messages the ids that a call with them would send now."""

from typing import Any

from starlette.requests import Request
from starlette.types import Receive

from duramen.layout.errors import EngineError, LayoutError
from duramen.serving.gateway.errors import ApiError
from duramen.serving.gateway.exactness import why_not_exact
from duramen.serving.gateway.gateway import Gateway, Serving
from duramen.serving.gateway.headers import session_of
from duramen.serving.gateway.lay_out import lay_out
from duramen.serving.gateway.refusals import engine_refusal
from duramen.serving.gateway.shapes import check_tokenize
from duramen.serving.gateway.wire import Answering, send_json


class TokenizeService:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def __call__(self, request: Request, receive: Receive, send: Answering) -> None:
        """Of a prompt, or of messages that only the engine renders, the engine's own."""
        gateway = self._gateway
        tenant = gateway.tenants.find(request.headers.get("authorization"))
        body = await gateway.bodies.read(request, tenant.name)
        check_tokenize(body)
        session, serving = session_of(request), gateway.serving
        serving.name_in(body)
        if "messages" in body and why_not_exact(body) is None:
            try:
                laid_out = await lay_out(serving, gateway.settings, tenant, body, session)
            except LayoutError as error:
                raise ApiError(400, str(error), param="messages") from None
            ids = list(laid_out.opened.prompt.token_ids)
            await send_json(send, 200, _answer(ids, serving, body))
            return
        member, engine = gateway.engines.for_session(tenant.name)
        try:
            sent = body | {"model": serving.model.upstream_name}
            await send_json(send, 200, await engine.post("/tokenize", sent))
        except EngineError as error:
            raise engine_refusal(error, member) from error


def _answer(token_ids: list[int], serving: Serving, body: dict[str, Any]) -> dict[str, Any]:
    strings = None
    if body.get("return_token_strs"):
        strings = [serving.conversations.model.tokenizer.token_text(i) for i in token_ids]
    return {
        "count": len(token_ids),
        "max_model_len": serving.model.max_model_len,
        "tokens": token_ids,
        "token_strs": strings,
    }
