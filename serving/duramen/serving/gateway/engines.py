"""The engines behind the gateway: one child of ours, or replicas that run elsewhere.

A session stays with one engine, where its prefix is cached: rendezvous hashing gives each session
the same engine as long as that is up, and moves only the sessions of one that is down.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol

from duramen.serving.gateway.engine_ledger import EngineLedger
from duramen.serving.gateway.errors import ApiError
from duramen.serving.gateway.supervise import Supervised, Supervisor
from duramen.serving.kv.attribute import Flights
from duramen.serving.kv.mirror import KvMirror
from duramen.serving.vllm.protocol import ChatEngine

RETRY_S = 5.0


class ServedEngine(ChatEngine, Supervised, Protocol):
    """What the gateway needs of an engine."""


@dataclass
class Member:
    """`flights`: the calls that run on it. `takes_priority`: its scheduler orders by priority.
    `num_preemptions`: since it started, None if it does not say. `ledger`: of its cache, over its
    restarts; None where it publishes no events or its blocks' bytes are not known."""

    name: str
    supervisor: Supervisor[ServedEngine]
    flights: Flights
    takes_priority: bool = False
    num_preemptions: int | None = None
    ledger: EngineLedger | None = None

    @property
    def engine(self) -> ServedEngine | None:
        return self.supervisor.engine


class Engines:
    def __init__(self, members: Sequence[Member]) -> None:
        self.members = members

    def for_session(self, session_id: str) -> tuple[Member, ServedEngine]:
        """Raises ApiError 503 if no engine is up."""
        found = self._ready_for(session_id)
        if found is None:
            raise ApiError(
                503,
                f"no engine is up: {self.states}",
                type="server_error",
                code="engine_unavailable",
                retry_after_s=RETRY_S,
            )
        return found

    def mirror_for(self, session_id: str) -> KvMirror | None:
        found = self._ready_for(session_id)
        return found[1].mirror if found else None

    def ledger_for(self, session_id: str) -> EngineLedger | None:
        found = self._ready_for(session_id)
        return found[0].ledger if found else None

    def _ready_for(self, session_id: str) -> tuple[Member, ServedEngine] | None:
        ready = [(m, m.supervisor.engine) for m in self.members]
        up = [(member, engine) for member, engine in ready if engine is not None]
        return max(up, key=lambda pair: _weight(pair[0].name, session_id), default=None)

    @property
    def num_ready(self) -> int:
        return sum(member.engine is not None for member in self.members)

    @property
    def states(self) -> str:
        """For everybody."""
        return ", ".join(member.supervisor.state for member in self.members)

    @property
    def why_down(self) -> str:
        """For the operator: it may quote vLLM's log."""
        return "; ".join(f"{m.supervisor.state}, {m.supervisor.reason}" for m in self.members)


def _weight(name: str, session_id: str) -> bytes:
    return blake2b(f"{name} {session_id}".encode(), digest_size=8).digest()
