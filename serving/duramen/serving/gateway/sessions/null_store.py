"""The store of `--no-store`: nothing is kept over a restart."""

from collections.abc import Sequence

from duramen.serving.gateway.sessions.records import Key, Reply, Scope, Turn


class NullStore:
    """Takes everything and has nothing. Nobody is made to wait, and it never fails."""

    failing: str | None = None

    def put_turn(self, turn: Turn, tenant: str) -> None: ...

    def put_record(self, turn: Turn) -> None: ...

    def put_reply(self, reply: Reply) -> None: ...

    def add_piece(self, reply: Reply, token_ids: Sequence[int], content: str) -> None: ...

    def finish(self, reply: Reply) -> None: ...

    async def durable(self) -> bool:
        return True

    def find(self, scope: Scope, keys: Sequence[Key]) -> str | None:
        return None

    def load(self, session_id: str, scope: Scope) -> list[Turn]:
        return []

    def list_sessions(self, tenant: str) -> list[tuple[str, float, int]]:
        return []

    def delete(self, session_id: str, tenant: str) -> bool:
        return False

    def expire(self, before_s: float) -> int:
        return 0

    def close(self) -> None: ...
