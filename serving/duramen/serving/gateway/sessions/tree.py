"""The sessions in memory, found by content; others are loaded when they are asked for."""

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from duramen.layout.bounds import segment_keys
from duramen.serving.gateway.sessions.records import Key, Reply, Scope, Turn, walk
from duramen.serving.gateway.sessions.spans import unpack_spans
from duramen.serving.gateway.sessions.store_protocol import Store

T = TypeVar("T")

NODE_BYTES = 1200  # a turn or reply without its arrays and texts
PIECE_BYTES = 150


@dataclass(eq=False)
class Session:
    """`num_running` calls of it run now: it stays in memory. `digests`: the keys of
    its segments (layout.bounds)."""

    session_id: str
    scope: Scope
    first_turns: list[Turn] = field(default_factory=list)
    num_running: int = 0
    num_bytes: int = 0
    digests: set[bytes] = field(default_factory=set)

    def turns(self) -> Iterator[Turn]:
        for first in self.first_turns:
            yield from walk(first)


class SessionTree:
    """Sessions up to `limit_bytes`, the least recently used leave first. A session is in memory as
    a whole or not at all. `on_forget` hears of each that has left it."""

    def __init__(
        self,
        store: Store,
        limit_bytes: int,
        on_forget: Callable[[Scope, str], None] = lambda scope, session_id: None,
    ) -> None:
        self.store = store
        self._on_forget = on_forget
        self._limit_bytes = limit_bytes
        self._sessions: OrderedDict[tuple[Scope, str], Session] = OrderedDict()
        self._turns: defaultdict[tuple[Scope, Key], list[Turn]] = defaultdict(list)
        self._replies: defaultdict[tuple[Scope, Key], list[Reply]] = defaultdict(list)
        self.num_bytes = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def sessions(self) -> Iterator[Session]:
        """Those in memory, the one used last first."""
        return reversed(self._sessions.values())

    def turns(self, scope: Scope, key: Key) -> Sequence[Turn]:
        return self._turns.get((scope, key), ())

    def replies(self, scope: Scope, key: Key) -> Sequence[Reply]:
        """Finished ones, the oldest first."""
        return self._replies.get((scope, key), ())

    def session(self, scope: Scope, session_id: str) -> Session | None:
        """In memory, or brought there from the store; None if it is unknown."""
        found = self._sessions.get((scope, session_id))
        if found is None and (first_turns := self.store.load(session_id, scope)):
            found = self.open(scope, session_id)
            for turn in (turn for first in first_turns for turn in walk(first)):
                self._index(found, turn)
                found.digests.update(segment_keys(unpack_spans(turn.spans)))
                for reply in turn.replies:
                    self._index_reply(found, reply)
            self._evict()
        if found is not None:
            self._sessions.move_to_end((scope, session_id))
        return found if found is not None and found.first_turns else None

    def bring(self, scope: Scope, keys: Sequence[Key]) -> bool:
        """Load the session with the longest conversation in `keys`. False if nothing came."""
        session_id = self.store.find(scope, keys)
        if session_id is None or (scope, session_id) in self._sessions:
            return False
        return self.session(scope, session_id) is not None

    def open(self, scope: Scope, session_id: str) -> Session:
        """The session of that name, a new one if there is none in memory."""
        key = (scope, session_id)
        if key not in self._sessions:
            self._sessions[key] = Session(session_id, scope)
        self._sessions.move_to_end(key)
        return self._sessions[key]

    def hold(self, scope: Scope, session_id: str) -> Session:
        """The session, which stays in memory until `let_go`."""
        session = self.open(scope, session_id)
        session.num_running += 1
        return session

    def let_go(self, session: Session) -> None:
        session.num_running -= 1
        key = (session.scope, session.session_id)
        if not (session.num_running or session.first_turns) and self._sessions.get(key) is session:
            del self._sessions[key]  # nothing came of it

    def add_turn(self, turn: Turn, tenant: str) -> None:
        """A turn behind one that was deleted meanwhile is not remembered."""
        if turn.parent is not None and not self._has(turn.parent.turn):
            return
        session = self.open(turn.scope, turn.session_id)
        if turn.parent is not None:
            turn.parent.turns.append(turn)
        self._index(session, turn)
        self.store.put_turn(turn, tenant)
        self._evict()

    def add_reply(self, reply: Reply) -> None:
        reply.turn.replies.append(reply)
        self.store.put_reply(reply)

    def finish(self, reply: Reply) -> None:
        if self._has(reply.turn):
            self._index_reply(self.open(reply.turn.scope, reply.turn.session_id), reply)
        self.store.finish(reply)

    def call_ended(self, turn: Turn) -> None:
        """Its record is there, and what broke off stays as it is."""
        self.store.put_record(turn)
        if self._has(turn):
            broken = [reply for reply in turn.replies if not reply.message]
            size = len(turn.record) + sum(_reply_bytes(reply) for reply in broken)
            self._grow(self.open(turn.scope, turn.session_id), size)

    def delete(self, scope: Scope, session_id: str, tenant: str) -> bool:
        """Everywhere. Calls of it that run now go on, unremembered. False if it is unknown."""
        was_here = (scope, session_id) in self._sessions
        self.forget(scope, session_id)
        return self.store.delete(session_id, tenant) or was_here

    def listed(self, scope: Scope, tenant: str) -> list[dict[str, Any]]:
        """What there is, in memory and in the store, the newest first."""
        found = {
            session.session_id: (max(turn.created_s for turn in turns), len(turns))
            for session in self._sessions.values()
            if session.scope == scope and (turns := list(session.turns()))
        }
        for session_id, used_s, num_turns in self.store.list_sessions(tenant):
            found.setdefault(session_id, (used_s, num_turns))
        newest = sorted(found.items(), key=lambda item: item[1][0], reverse=True)
        return [
            {"id": session_id, "object": "session", "last_used": used_s, "num_calls": num_turns}
            for session_id, (used_s, num_turns) in newest
        ]

    def forget_older(self, before_s: float) -> None:
        """Drop sessions from memory whose last call is older and that do not run."""
        for (scope, session_id), session in list(self._sessions.items()):
            if not session.num_running and all(t.created_s < before_s for t in session.turns()):
                self.forget(scope, session_id)

    def forget(self, scope: Scope, session_id: str) -> None:
        """Drop it from memory."""
        session = self._sessions.pop((scope, session_id), None)
        if session is None:
            return
        self.num_bytes -= session.num_bytes
        for turn in session.turns():
            _drop(self._turns, (scope, turn.key), turn)
            for reply in turn.replies:
                _drop(self._replies, (scope, reply.key), reply)
        self._on_forget(scope, session_id)

    def _index(self, session: Session, turn: Turn) -> None:
        if turn.parent is None:
            session.first_turns.append(turn)
        self._turns[turn.scope, turn.key].append(turn)
        size = len(turn.token_ids) * 4 + len(turn.hashes) + len(turn.messages) + len(turn.spans)
        self._grow(session, NODE_BYTES + size + len(turn.head) + len(turn.record))

    def _index_reply(self, session: Session, reply: Reply) -> None:
        if reply.key:
            self._replies[reply.turn.scope, reply.key].append(reply)
        self._grow(session, _reply_bytes(reply))

    def _has(self, turn: Turn) -> bool:
        return turn in self._turns.get((turn.scope, turn.key), ())

    def _grow(self, session: Session, num_bytes: int) -> None:
        session.num_bytes += num_bytes
        self.num_bytes += num_bytes

    def _evict(self) -> None:
        if self.num_bytes <= self._limit_bytes:
            return
        for (scope, session_id), session in list(self._sessions.items())[:-1]:  # not the newest
            if self.num_bytes <= self._limit_bytes:
                return
            if not session.num_running:
                self.forget(scope, session_id)


def _reply_bytes(reply: Reply) -> int:
    texts = len(reply.hashes) + len(reply.message) + len(reply.text)
    return NODE_BYTES + len(reply.token_ids) * 4 + texts + len(reply.pieces) * PIECE_BYTES


def _drop(index: "dict[tuple[Scope, Key], list[T]]", key: tuple[Scope, Key], item: T) -> None:
    found = index.get(key)
    if found is None:
        return
    if item in found:
        found.remove(item)
    if not found:
        del index[key]
