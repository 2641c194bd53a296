"""Which leading run of a chain of digests was used lately: a tree with one node per fork.

Chained digests make equality monotone: where the i-th digest agrees, all before it do. So a node
holds its digests as one string of bytes, and a walk costs a bisection per node. That is a tenth
of the memory of a table with an entry per digest, and no work per digest that was there before.
"""

from collections.abc import Sequence

_PRUNE_EVERY = 1024  # chains


class _Node:
    """Digests in a row. `spans` are (end, last use), ascending ends, the last end its length."""

    __slots__ = ("digests", "spans")

    def __init__(self) -> None:
        self.digests = bytearray()
        self.spans: list[tuple[int, float]] = []

    @property
    def length(self) -> int:
        return self.spans[-1][0] if self.spans else 0

    def extend(self, keys: Sequence[bytes], now_s: float) -> None:
        length = self.length + len(keys)
        self.digests += b"".join(keys)
        if self.spans and self.spans[-1][1] == now_s:
            self.spans.pop()
        self.spans.append((length, now_s))

    def matched(self, keys: Sequence[bytes], start: int) -> int:
        """How many of keys[start:] agree with this node's digests; the first is known to."""
        width = len(keys[start])
        low, high = 1, min(self.length, len(keys) - start)
        middle = high  # most often all of it agrees
        while low < high:
            if self.digests[(middle - 1) * width : middle * width] == keys[start + middle - 1]:
                low = middle
            else:
                high = middle - 1
            middle = (low + high + 1) // 2
        return low

    def alive(self, length: int, oldest_s: float) -> int:
        """The leading part of the first `length` digests that was used since `oldest_s`."""
        run = 0
        for end, used_s in self.spans:
            if used_s < oldest_s or run >= length:
                break
            run = end
        return min(run, length)

    def use(self, start: int, end: int, now_s: float) -> None:
        """Digests [start, end) are as good as new, end > start."""
        spans, begin = [], 0
        for span_end, used_s in self.spans:
            if begin < start:
                spans.append((min(span_end, start), used_s))
            begin = span_end
        spans.append((end, now_s))
        spans += [span for span in self.spans if span[0] > end]
        self.spans = spans

    def trim(self, oldest_s: float, width: int) -> None:
        """Forget what is dead at the end."""
        while self.spans and self.spans[-1][1] < oldest_s:
            self.spans.pop()
        del self.digests[self.length * width :]


class PrefixTree:
    """Chains of digests of one width, each alive for `ttl_s` seconds after it was stored.

    Where `refreshed`, a digest that is used again is as good as new: none outlives those before it,
    so what is dead is dropped from time to time. Otherwise everything is kept.
    """

    def __init__(self, ttl_s: float, *, refreshed: bool = True) -> None:
        self._ttl_s = ttl_s
        self._refreshed = refreshed
        self._starts: dict[bytes, _Node] = {}
        self._num_chains = 0

    def use(self, keys: Sequence[bytes], now_s: float) -> int:
        """How many leading `keys` are alive; afterwards all of them are. Times must not descend."""
        oldest_s = now_s - self._ttl_s
        self._prune(oldest_s)
        path: list[tuple[_Node, int]] = []
        depth = 0
        while depth < len(keys) and (node := self._starts.get(keys[depth])):
            path.append((node, node.matched(keys, depth)))
            depth += path[-1][1]
        run = self._touch(path, oldest_s, now_s)
        if depth < len(keys):
            node, matched = path[-1] if path else (None, 0)
            if node is None or matched < node.length:  # it goes on elsewhere: fork
                node = self._starts[keys[depth]] = _Node()
            node.extend(keys[depth:], now_s)
        return run

    def _touch(self, path: list[tuple[_Node, int]], oldest_s: float, now_s: float) -> int:
        run, unbroken = 0, True
        for node, matched in path:
            alive = node.alive(matched, oldest_s) if unbroken else 0
            unbroken = unbroken and alive == matched
            run += alive
            start = 0 if self._refreshed else alive
            if start < matched:
                node.use(start, matched, now_s)
        return run

    def _prune(self, oldest_s: float) -> None:
        self._num_chains += 1
        if not self._refreshed or self._num_chains % _PRUNE_EVERY:
            return
        for key, node in self._starts.items():
            node.trim(oldest_s, len(key))
        self._starts = {key: node for key, node in self._starts.items() if node.spans}
