"""The parts of a running gateway, handed to whoever serves a request."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from duramen.serving.gateway.admission import Admission
from duramen.serving.gateway.bodies import Bodies
from duramen.serving.gateway.breaks import Breaks
from duramen.serving.gateway.engines import Engines
from duramen.serving.gateway.errors import ApiError
from duramen.serving.gateway.histories import Histories
from duramen.serving.gateway.metrics import Metrics
from duramen.serving.gateway.policies.warm import RecentRoots
from duramen.serving.gateway.sessions.conversation import Conversations
from duramen.serving.gateway.sessions.tree import SessionTree
from duramen.serving.gateway.settings import Settings
from duramen.serving.gateway.tenants import Tenants


@dataclass(frozen=True)
class ServedModel:
    """`name` is what clients call it, `upstream_name` what the engine does."""

    name: str
    upstream_name: str
    aliases: tuple[str, ...]
    max_model_len: int
    unit_tokens: int
    created_s: int


@dataclass(frozen=True)
class Serving:
    """The model that is served, with what is remembered of its calls. `refuses_seeds`: a seeded
    request at a temperature above 0 would end the engine."""

    model: ServedModel
    conversations: Conversations
    histories: Histories
    refuses_seeds: bool

    def name_in(self, body: Mapping[str, object]) -> str:
        """The name by which a request calls the model. Raises ApiError 404."""
        asked = body.get("model")
        names = (self.model.name, *self.model.aliases)
        if asked is not None and asked not in names:
            raise ApiError(
                404,
                f"the model `{asked}` does not exist here: there is {', '.join(names)}",
                param="model",
                code="model_not_found",
            )
        return str(asked or self.model.name)

    def check_seed(self, body: Mapping[str, Any]) -> None:
        temperature = body.get("temperature")
        is_hot = temperature is None or temperature > 0
        if self.refuses_seeds and body.get("seed") is not None and is_hot:
            raise ApiError(
                400,
                "a seed at a temperature above 0 ends vLLM 0.32's CPU build where a prefill is "
                "chunked: send temperature 0, or no seed",
                param="seed",
                code="unsupported_value",
            )


@dataclass
class Gateway:
    """`up` is None until an engine was up for the first time."""

    settings: Settings
    tenants: Tenants
    engines: Engines
    bodies: Bodies
    admission: Admission
    metrics: Metrics
    roots: RecentRoots
    breaks: Breaks
    tree: SessionTree
    up: Serving | None = None
    is_draining: bool = False

    @property
    def serving(self) -> Serving:
        """Raises ApiError 503 before an engine was up for the first time."""
        if self.up is None:
            self.engines.for_session("")  # says why nothing is up
            raise ApiError(503, "the gateway is starting", type="server_error", retry_after_s=5)
        return self.up
