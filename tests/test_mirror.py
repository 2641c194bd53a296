"""The mirror against the block cache whose events it is fed, and where it must say "not known"."""

from collections.abc import Callable
from typing import cast

import hypothesis.strategies as st
from hypothesis import given
from mirror_cases import predict

from duramen.layout.blocks import BlockHash, block_hashes
from duramen.serving.kv.cache import BlockCache
from duramen.serving.kv.mirror import KvMirror
from duramen.serving.kv.pool import Cleared, Removed, Stored

PROMPT = [11, 12, 13, 14, 15, 16, 17, 18, 19, 20]


def test_predicted_is_the_leading_resident_run() -> None:
    mirror = KvMirror(4)
    mirror.store([b"a", b"b"], None, PROMPT[:8])
    assert predict(mirror, PROMPT) == 8
    assert predict(mirror, PROMPT[:8]) == 4  # the last token is always computed
    assert predict(mirror, [*PROMPT[:6], 99, 99, 99]) == 4
    assert predict(mirror, []) == 0
    mirror.remove([b"a"])
    assert predict(mirror, PROMPT) == 0  # block b is resident but not reachable
    assert mirror.num_resident_blocks == 1


def test_parent_continues_the_chain() -> None:
    mirror = KvMirror(4)
    mirror.store([b"a"], None, PROMPT[:4])
    mirror.store([b"b"], b"a", PROMPT[4:8])
    assert predict(mirror, PROMPT) == 8


def test_salt_separates() -> None:
    mirror = KvMirror(4)
    mirror.store([b"a"], None, PROMPT[:4], "tenant")
    assert predict(mirror, PROMPT, "tenant") == 4
    assert predict(mirror, PROMPT) == 0


def test_a_block_stored_twice_is_resident_until_removed_twice() -> None:
    mirror = KvMirror(4)
    mirror.store([b"a"], None, PROMPT[:4])
    mirror.store([b"a"], None, PROMPT[:4])
    mirror.remove([b"a"])
    assert predict(mirror, PROMPT) == 4
    mirror.remove([b"a"])
    assert predict(mirror, PROMPT) == 0


def test_what_it_cannot_know_it_does_not_predict() -> None:
    misunderstood: list[Callable[[KvMirror], None]] = [
        lambda mirror: mirror.store([b"b"], b"never seen", PROMPT[4:8]),
        lambda mirror: mirror.store([b"a"], None, PROMPT[:8]),  # two blocks' tokens, one hash
        lambda mirror: mirror.remove([b"never seen"]),
    ]
    for happens in misunderstood:
        mirror = KvMirror(4)
        happens(mirror)
        assert mirror.broken
        mirror.store([b"a"], None, PROMPT[:4])
        assert predict(mirror, PROMPT) is None
        assert not mirror.holds_all(PROMPT[:4])
        mirror.clear()
        mirror.store([b"a"], None, PROMPT[:4])
        assert predict(mirror, PROMPT) == 4


steps = st.tuples(
    st.sampled_from(["", "tenant"]), st.lists(st.integers(0, 1), min_size=1, max_size=24)
)


@given(st.lists(st.one_of(st.just(None), steps), max_size=30), st.integers(8, 20))
def test_mirror_predicts_what_the_cache_hits(
    calls: list[tuple[str, list[int]] | None], num_blocks: int
) -> None:
    """Serial calls on a small pool, None = reset."""
    cache, mirror = BlockCache(num_blocks, 4, record_events=True), KvMirror(4)
    for call in calls:
        salt, token_ids = call or ("", [])
        keys = list(block_hashes(token_ids, 4, salt))
        if call is None:
            cache.reset()
        else:
            assert cache.serve(keys, len(token_ids)) == predict(mirror, token_ids, salt)
        for event in cache.take_events():
            match event:
                case Cleared():
                    mirror.clear()
                case Removed(key):
                    mirror.remove([("engine", key)])
                case Stored(stored, parent):
                    first = keys.index(cast(BlockHash, parent)) + 1 if parent else 0
                    mirror.store(
                        [("engine", key) for key in stored],
                        ("engine", parent) if parent else None,
                        token_ids[first * 4 : (first + len(stored)) * 4],
                        salt,
                    )
        assert call is None or mirror.holds_all(token_ids, salt)


class Heard:
    def __init__(self) -> None:
        self.events: list[tuple[object, ...]] = []

    def stored(self, block: BlockHash, parent: BlockHash | None) -> None:
        self.events.append(("stored", block, parent))

    def removed(self, block: BlockHash) -> None:
        self.events.append(("removed", block))

    def cleared(self) -> None:
        self.events.append(("cleared",))


def test_a_watcher_hears_what_is_there_and_what_changes() -> None:
    mirror, heard = KvMirror(4), Heard()
    first, second = block_hashes(PROMPT, 4)
    mirror.store([b"a"], None, PROMPT[:4])
    mirror.store([b"a"], None, PROMPT[:4])
    mirror.watch(heard)
    mirror.store([b"b"], b"a", PROMPT[4:8])
    mirror.remove([b"b", b"a"])
    mirror.remove([b"never seen"])  # nothing is known any more
    mirror.store([b"a"], None, PROMPT[:4])
    assert heard.events == [
        ("cleared",),
        ("stored", first, None),
        ("stored", first, None),
        ("stored", second, first),
        ("removed", second),
        ("removed", first),
        ("cleared",),
    ]


def test_copies_are_counted_under_each_of_the_engines_names() -> None:
    """Two names for one block, as after a lost event: it goes with the last copy, never below."""
    mirror = KvMirror(1)
    mirror.store([1], None, [7])
    mirror.store([2], None, [7])
    mirror.remove([1])
    assert predict(mirror, [7, 8]) == 1
    mirror.remove([1])
    assert mirror.broken
    assert predict(mirror, [7, 8]) is None
