"""How much of sessions the engine's cache holds now, by zone, from the KV mirror."""

from collections import Counter
from collections.abc import Iterable
from itertools import islice

from duramen.layout.blocks import BlockHash
from duramen.layout.zones import Zone
from duramen.serving.gateway.sessions.head import head_of
from duramen.serving.gateway.sessions.records import hashes_of, ids_of, path_to
from duramen.serving.gateway.sessions.tree import Session
from duramen.serving.kv.mirror import KvMirror
from duramen.serving.kv.seen import HASH_BYTES

MAX_SESSIONS = 1000  # in one sum: it is made on the event loop


def resident_tokens(session: Session, mirror: KvMirror) -> Counter[Zone]:
    """Of the session's newest branch: the root, what had been frozen, and the last call with its
    reply as leaf. Empty where nothing is known.

    An engine evicts from the tail of a chain, so the resident blocks are its front: a binary search
    finds where they end.
    """
    turn = max(session.turns(), key=lambda turn: turn.created_s, default=None)
    if turn is None or mirror.broken:
        return Counter()
    past = path_to(turn.parent)
    hashes = hashes_of([*past, turn, *turn.replies[:1]])
    low, high = 0, len(hashes) // HASH_BYTES
    while low < high:
        middle = (low + high) // 2
        block = hashes[middle * HASH_BYTES : (middle + 1) * HASH_BYTES]
        if mirror.has(BlockHash(block)):
            low = middle + 1
        else:
            high = middle
    root, left = head_of(turn).root_tokens, low * mirror.block_size
    in_root = min(root, left)
    in_trunk = min(max(len(ids_of(past)) - root, 0), left - in_root)
    in_leaf = left - in_root - in_trunk
    return Counter({Zone.ROOT: in_root, Zone.TRUNK: in_trunk, Zone.LEAF: in_leaf})


def resident_in_all(sessions: Iterable[Session], mirrors: Iterable[KvMirror]) -> Counter[Zone]:
    """Of the `MAX_SESSIONS` sessions used last; with several engines, where each has most."""
    found = list(mirrors)
    total: Counter[Zone] = Counter()
    for session in islice(sessions, MAX_SESSIONS):
        counts = [resident_tokens(session, mirror) for mirror in found]
        if counts:
            most: Counter[Zone] = max(counts, key=lambda count: count.total())
            total.update(most)
    return total
