"""Where sessions are written, so that a restart keeps them."""

from collections.abc import Sequence
from typing import Protocol

from duramen.serving.gateway.sessions.records import Key, Reply, Scope, Turn


class Store(Protocol):
    """Everything put since the last group commit is written together; `durable` waits for that.

    A store that cannot write (disk full) says so in `failing` and loses nothing else: the gateway
    goes on from memory.
    """

    failing: str | None

    def put_turn(self, turn: Turn, tenant: str) -> None:
        """A new turn; its parent was put before, or is in the store."""

    def put_record(self, turn: Turn) -> None:
        """`turn.record` has changed."""

    def put_reply(self, reply: Reply) -> None:
        """A reply begins: no ids yet."""

    def add_piece(self, reply: Reply, token_ids: Sequence[int], content: str) -> None:
        """Ids that were sampled behind those put so far, and the content that they added."""

    def finish(self, reply: Reply) -> None:
        """The reply has ended: its ids, key, message and finish replace its pieces."""

    async def durable(self) -> bool:
        """Return when everything put before this call is written; False if it could not be."""

    def find(self, scope: Scope, keys: Sequence[Key]) -> str | None:
        """The session with a turn or finished reply whose key is the last possible of `keys`
        (they ascend: the last one is the longest conversation)."""

    def load(self, session_id: str, scope: Scope) -> list[Turn]:
        """First turns of a session, with all that is behind them; [] if it is unknown.

        A turn whose parents are not all there is left out.
        """

    def list_sessions(self, tenant: str) -> list[tuple[str, float, int]]:
        """(session id, last used, number of turns), the newest first."""

    def delete(self, session_id: str, tenant: str) -> bool: ...

    def expire(self, before_s: float) -> int:
        """Forget sessions that were not used since; how many."""

    def close(self) -> None: ...
