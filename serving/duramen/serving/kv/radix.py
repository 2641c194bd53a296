"""SGLang's radix tree: prefixes match token by token, the least recent leaf is evicted first.

The life of a request is match -> lock -> make_room -> insert -> unlock. An edge holds a run of
token ids; two prompts share the edges of their common prefix, and an edge is split where they part.
Whole leaves are evicted, never parts of one, and never a locked one (SGLang, read but not run:
srt/mem_cache/radix_cache.py). A tree of infinite capacity answers another question: the longest
prefix in common with anything inserted before.
"""

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from duramen.layout.errors import LayoutError

Array = npt.NDArray[np.uint32]
# converting a list of 100,000 ids takes longer than matching it: pass an array where there is one
TokenIds = Sequence[int] | npt.NDArray[np.integer]


class Node:
    """One edge and what hangs below it."""

    __slots__ = ("children", "num_locks", "parent", "token_ids")

    def __init__(self, parent: "Node | None", token_ids: Array, num_locks: int = 0) -> None:
        self.parent = parent
        self.token_ids = token_ids
        self.num_locks = num_locks
        self.children: dict[bytes, Node] = {}  # by their first page


class Match(NamedTuple):
    """The longest resident prefix and the node where it ends."""

    num_tokens: int
    node: Node


class RadixCache:
    """Holds at most `capacity_tokens` token slots (None = infinite), matched in whole pages."""

    def __init__(self, capacity_tokens: int | None = None, page_size: int = 1) -> None:
        if page_size < 1 or (capacity_tokens is not None and capacity_tokens < page_size):
            raise LayoutError(f"{capacity_tokens} tokens hold no page of {page_size}")
        self.capacity_tokens = capacity_tokens
        self.page_size = page_size
        self.num_tokens = 0
        self.num_locked_tokens = 0
        self._root = Node(None, np.empty(0, np.uint32))
        # least recent first; a node stands behind everything below it, so the first is a leaf
        self._recency: OrderedDict[Node, None] = OrderedDict()

    def match(self, token_ids: TokenIds) -> Match:
        """The longest resident prefix, which becomes the most recent one. Splits the last edge."""
        path, num_tokens = self._walk(self._pages(token_ids))
        self._touch(path)
        return Match(num_tokens, path[-1])

    def insert(self, token_ids: TokenIds) -> int:
        """Add what is missing; returns how many leading tokens were there. Makes no room itself."""
        pages = self._pages(token_ids)
        path, num_tokens = self._walk(pages)
        if num_tokens < len(pages):
            leaf = Node(path[-1], pages[num_tokens:].copy())
            path[-1].children[self._first_page(leaf.token_ids)] = leaf
            path.append(leaf)
            self.num_tokens += len(leaf.token_ids)
        self._touch(path)
        return num_tokens

    def lock(self, node: Node) -> None:
        """Keep the prefix that ends at `node` from eviction, once more."""
        for above in _to_root(node):
            self.num_locked_tokens += len(above.token_ids) if above.num_locks == 0 else 0
            above.num_locks += 1

    def unlock(self, node: Node) -> None:
        for above in _to_root(node):
            if above.num_locks < 1:
                raise LayoutError("the prefix is not locked")
            above.num_locks -= 1
            self.num_locked_tokens -= len(above.token_ids) if above.num_locks == 0 else 0

    def make_room(self, num_tokens: int) -> bool:
        """Evict leaves until `num_tokens` slots are free. False, and no change, if locks forbid."""
        if self.capacity_tokens is None:
            return True
        if num_tokens > self.capacity_tokens - self.num_locked_tokens:
            return False
        while self.capacity_tokens - self.num_tokens < num_tokens:
            self._remove(next(node for node in self._recency if not node.num_locks))
        return True

    def serve(self, prompt_ids: TokenIds, output_ids: TokenIds = ()) -> int | None:
        """A whole request with none beside it; returns its hit tokens, None if it cannot fit.

        The prompt's last token is always computed, the last output token never is. The prompt is
        inserted before decoding starts, so outputs hang below it as a leaf of their own. Its own
        prefix needs no lock: it is the most recent one, and older leaves make room enough.
        """
        if self.num_locked_tokens:
            raise LayoutError("a prefix is locked: serve is for one request after another")
        prompt = _array(prompt_ids)
        computed = np.concatenate([prompt, _array(output_ids[:-1])])
        num_slots = self._num_slots(len(computed))
        if self.capacity_tokens is not None and num_slots > self.capacity_tokens:
            return None
        num_hit = self.match(prompt[:-1]).num_tokens
        self.make_room(self._num_slots(len(prompt)) - num_hit)
        self.insert(prompt)
        self.make_room(num_slots - len(self._pages(prompt)))
        self.insert(computed)
        return num_hit

    def check_integrity(self) -> None:
        """Assert that counts, locks and recency agree with the tree."""
        nodes = _below(self._root)
        assert set(nodes) == set(self._recency)
        assert self.num_tokens == sum(len(node.token_ids) for node in nodes)
        locked = [node for node in nodes if node.num_locks]
        assert self.num_locked_tokens == sum(len(node.token_ids) for node in locked)
        position = {node: index for index, node in enumerate(self._recency)}
        for node in nodes:
            assert len(node.token_ids) % self.page_size == 0 < len(node.token_ids)
            for key, child in node.children.items():
                assert child.parent is node
                assert key == self._first_page(child.token_ids)
                assert position[child] < position[node]
                assert child.num_locks <= node.num_locks

    def _pages(self, token_ids: TokenIds) -> Array:
        ids = _array(token_ids)
        return ids[: len(ids) - len(ids) % self.page_size]

    def _num_slots(self, num_tokens: int) -> int:
        return -(-num_tokens // self.page_size) * self.page_size

    def _first_page(self, token_ids: Array) -> bytes:
        return token_ids[: self.page_size].tobytes()

    def _walk(self, pages: Array) -> tuple[list[Node], int]:
        path, position = [self._root], 0
        while child := path[-1].children.get(self._first_page(pages[position:])):
            num_common = _common(child.token_ids, pages[position:])
            num_common -= num_common % self.page_size
            if num_common < len(child.token_ids):
                child = self._split(child, num_common)
            path.append(child)
            position += num_common
        return path, position

    def _split(self, node: Node, num_tokens: int) -> Node:
        parent = node.parent
        assert parent is not None
        upper = Node(parent, node.token_ids[:num_tokens].copy(), node.num_locks)
        node.token_ids = node.token_ids[num_tokens:].copy()
        node.parent = upper
        upper.children[self._first_page(node.token_ids)] = node
        parent.children[self._first_page(upper.token_ids)] = upper
        self._touch([node])  # as if it had matched whole, and `upper` with the path
        return upper

    def _touch(self, path: list[Node]) -> None:
        for node in reversed(path):
            if node is not self._root:
                self._recency[node] = None
                self._recency.move_to_end(node)

    def _remove(self, leaf: Node) -> None:
        assert leaf.parent is not None
        assert not leaf.children
        del leaf.parent.children[self._first_page(leaf.token_ids)]
        del self._recency[leaf]
        self.num_tokens -= len(leaf.token_ids)


def _array(token_ids: TokenIds) -> Array:
    if isinstance(token_ids, np.ndarray):
        return token_ids.astype(np.uint32, copy=False)
    return np.asarray(array("I", token_ids))  # ten times as fast as numpy's own conversion


def _common(a: Array, b: Array) -> int:
    length = min(len(a), len(b))
    equal = a[:length] == b[:length]
    return length if equal.all() else int(equal.argmin())


def _to_root(node: Node) -> list[Node]:
    path = []
    while node.parent is not None:
        path.append(node)
        node = node.parent
    return path


def _below(root: Node) -> list[Node]:
    nodes, waiting = [], [*root.children.values()]
    while waiting:
        nodes.append(node := waiting.pop())
        waiting += node.children.values()
    return nodes
