"""What an operator can set: limits, sessions, policies, models. Profiles fill it from YAML."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from duramen.layout.errors import DuramenError

History = Literal["auto", "verbatim", "template"]
Scheduling = Literal["priority", "fcfs"]
Volatile = Literal["report", "leaf"]


@dataclass(frozen=True)
class Limits:
    """`uncached_token_ms`: what one predicted uncached token adds to a call's priority, in ms of
    arrival; `tenant_*` hold for each tenant. A call that waits or runs past `deadline_s` ends.
    Raises DuramenError if a number is too small, or no number."""

    max_body_bytes: int = 16 * 2**20
    max_running: int = 256
    max_queued: int = 1024
    tenant_max_running: int = 256
    tenant_max_queued: int = 1024
    deadline_s: float = 600.0
    scheduling: Scheduling = "priority"
    uncached_token_ms: float = 2.0
    slow_reader_s: float = 60.0  # a client that reads nothing for so long is dropped

    def __post_init__(self) -> None:
        for name in ("max_body_bytes", "max_running", "tenant_max_running"):
            if not getattr(self, name) >= 1:
                raise DuramenError(f"limit {name} is {getattr(self, name)}: set at least 1")
        for name in ("max_queued", "tenant_max_queued", "uncached_token_ms"):
            if not 0 <= getattr(self, name) < math.inf:
                raise DuramenError(f"limit {name} is {getattr(self, name)}: set 0 or more")
        for name in ("deadline_s", "slow_reader_s"):
            if not 0 < getattr(self, name) < math.inf:
                raise DuramenError(f"limit {name} is {getattr(self, name)}: set seconds above 0")


@dataclass(frozen=True)
class SessionSettings:
    """`store` None: nothing is kept over a restart."""

    store: Path | None = None
    ttl_s: float = 7 * 86400.0
    memory_bytes: int = 512 * 2**20


@dataclass(frozen=True)
class PolicySettings:
    """All off: nothing in a request changes unless one of these is set. Breaks that volatile fields
    of the root cause are always reported; `volatile` "leaf" also moves the fields to the end."""

    volatile: Volatile = "report"
    freeze_tools: bool = False
    reminder_tokens: int = 0
    frame_tool_results: bool = False
    align_zones: bool = False
    warm_roots: int = 0


@dataclass(frozen=True)
class Settings:
    """`aliases`: other names of the model. `history` as in the README: what happens where the chat
    template would now write the past otherwise."""

    aliases: tuple[str, ...] = ()
    history: History = "auto"
    limits: Limits = field(default_factory=Limits)
    sessions: SessionSettings = field(default_factory=SessionSettings)
    policies: PolicySettings = field(default_factory=PolicySettings)
    chat_template_arguments: Mapping[str, object] = field(default_factory=dict)
