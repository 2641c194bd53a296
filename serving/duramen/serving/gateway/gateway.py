"""The parts of a running gateway, handed to whoever serves a request."""

from collections.abc import Mapping
from dataclasses import dataclass

from duramen.serving.gateway.accounts import Histories
from duramen.serving.gateway.admission import Admission
from duramen.serving.gateway.bodies import Bodies
from duramen.serving.gateway.breaks import Breaks
from duramen.serving.gateway.engines import Engines
from duramen.serving.gateway.errors import ApiError
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


@dataclass
class Gateway:
    """`model` is None until an engine was up for the first time."""

    settings: Settings
    tenants: Tenants
    engines: Engines
    bodies: Bodies
    admission: Admission
    metrics: Metrics
    roots: RecentRoots
    breaks: Breaks
    tree: SessionTree
    conversations: Conversations | None = None
    histories: Histories | None = None
    model: ServedModel | None = None
    refuses_seeds: bool = False
    is_draining: bool = False

    def served(self, body: Mapping[str, object]) -> tuple[ServedModel, str]:
        """The model and the name by which the request calls it. Raises ApiError 404, 503."""
        if self.model is None:
            self.engines.for_session("")  # says why nothing is up
            raise ApiError(503, "the gateway is starting", type="server_error", retry_after_s=5)
        asked = body.get("model")
        names = (self.model.name, *self.model.aliases)
        if asked is not None and asked not in names:
            raise ApiError(
                404,
                f"the model `{asked}` does not exist here: there is {', '.join(names)}",
                param="model",
                code="model_not_found",
            )
        return self.model, str(asked or self.model.name)
