"""GET /v1/models[/{id}]: the model and its aliases."""

from typing import Any

from starlette.requests import Request
from starlette.types import Receive

from duramen.serving.gateway.gateway import Gateway, ServedModel
from duramen.serving.gateway.wire import Answering, send_json


class ModelPages:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def __call__(self, request: Request, receive: Receive, send: Answering) -> None:
        self._gateway.tenants.find(request.headers.get("authorization"))
        serving = self._gateway.serving
        model, wanted = serving.model, request.path_params.get("model")
        if wanted is not None:
            serving.name_in({"model": wanted})
            await send_json(send, 200, _card(model, wanted))
            return
        cards = [_card(model, name) for name in (model.name, *model.aliases)]
        await send_json(send, 200, {"object": "list", "data": cards})


def _card(model: ServedModel, name: str) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": model.created_s,
        "owned_by": "duramen",
        "root": model.name,
        "parent": None,
        "max_model_len": model.max_model_len,
    }
