"""What `duramen serve` hands to the server: everything that it needs to know, checked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from duramen.layout.errors import DuramenError
from duramen.serving.gateway.settings import Settings
from duramen.serving.vllm.launch import EventEndpoints, VllmConfig


class Operator(Protocol):
    """Who started the server, and reads what it says."""

    def progress(self, line: str) -> None:
        """What goes on; only the newest matters, some may be left out."""

    def say(self, line: str) -> None:
        """A line that must be seen."""


@dataclass(frozen=True)
class Tls:
    """PEM files."""

    cert_file: Path
    key_file: Path


@dataclass(frozen=True)
class ServeConfig:
    """`model_dir`: tokenizer, template and config.json; with `vllm` the weights too. Either `vllm`
    is to be started, or the `upstreams` run already, replicas of one model; `upstream_events` says
    where one of them publishes its KV events. `chat_template` None: the folder's own.
    `api_key_file` None: everybody who reaches the port is one tenant.

    Where sessions are kept is `settings.sessions.store`.
    """

    settings: Settings
    model_dir: Path
    model_name: str
    operator: Operator = field(repr=False)
    chat_template: Path | None = None
    vllm: VllmConfig | None = None
    upstreams: tuple[str, ...] = ()
    upstream_api_key: str | None = field(default=None, repr=False)
    upstream_events: Mapping[str, EventEndpoints] = field(default_factory=dict)
    host: str = "127.0.0.1"
    port: int = 8080
    tls: Tls | None = None
    api_key_file: Path | None = None

    def __post_init__(self) -> None:
        if (self.vllm is None) == (not self.upstreams):
            raise DuramenError("either vLLM is started here or it runs at --upstream URL, not both")

    @property
    def url(self) -> str:
        """The base URL for clients."""
        scheme = "http" if self.tls is None else "https"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{self.port}/v1"

    @property
    def ready_line(self) -> str:
        return f"ready: {self.url} (model {self.model_name})"
