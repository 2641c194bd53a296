"""How vLLM 0.32 lays a model's caches out in pages, and what fits into a pool of them.

All layers draw on one pool of blocks: layers of one kind share a block table (a group), and groups
have pages of one size, so that a block can serve any of them. Where they differ, the smaller pages
take more tokens or are padded; a state's page is padded to the attention's, whose block is raised
until it holds the state (v1/core/kv_cache_utils.py, platforms/interface.py).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import lcm

from duramen.layout.errors import ModelError
from duramen.serving.kv.footprint import Cache, Footprint

_LATENT_BLOCK = 128  # tokens: what a latent's block is a multiple of beside states
_STATES_HELD = 2  # blocks per state group: the newest and the one that it was made from
_ALL_TOKENS = ("full", "latent", "indexer")
_ONE_GROUP_LIMIT = 1.5  # kinds whose numbers of layers differ less are padded to the larger


@dataclass(frozen=True)
class Page:
    """One layer's page: `block_tokens` tokens of it, or one state."""

    cache: Cache
    block_tokens: int
    page_bytes: int

    @property
    def padding_bytes(self) -> int:
        content = self.cache.state_bytes or self.cache.bytes_per_token * self.block_tokens
        return self.page_bytes - content


@dataclass(frozen=True)
class Group:
    """Layers that share a block table."""

    pages: tuple[Page, ...]

    @property
    def cache(self) -> Cache:
        return self.pages[0].cache

    @property
    def block_tokens(self) -> int:
        return self.pages[0].block_tokens

    @property
    def is_whole(self) -> bool:
        """Whether it keeps all tokens."""
        return not self.cache.is_state and self.cache.window is None

    @property
    def page_bytes(self) -> int:
        return sum(page.page_bytes for page in self.pages)

    def blocks_at(self, num_tokens: int) -> int:
        """Whole blocks that a decoding sequence of so many tokens holds."""
        if self.cache.is_state:
            return _STATES_HELD
        held = num_tokens
        if self.cache.window is not None:  # a full chunk goes only when the next one has begun
            held = min(self.cache.window + (self.cache.kind == "chunk"), num_tokens)
        num_blocks = -(-held // self.block_tokens)
        return num_blocks + (self.cache.kind == "window")  # which may begin inside a block


@dataclass(frozen=True)
class Pages:
    """`block_tokens`: of the attention's blocks, raised where states need it."""

    block_tokens: int
    groups: tuple[Group, ...]

    @property
    def unit_tokens(self) -> int:
        """The granularity at which a prefix can hit."""
        return lcm(*(group.block_tokens for group in self.groups))

    @property
    def bytes_per_block(self) -> int:
        """Of the pool: what the largest group needs."""
        return max(group.page_bytes for group in self.groups)

    def num_blocks(self, pool_bytes: int) -> int:
        """That sequences can have: one block is never used."""
        return max(0, pool_bytes // self.bytes_per_block - 1)

    def blocks_at(self, num_tokens: int) -> int:
        """Of one decoding sequence of so many tokens."""
        return sum(group.blocks_at(num_tokens) for group in self.groups)

    def num_sequences(self, pool_bytes: int, num_tokens: int) -> int:
        """Decoding sequences of so many tokens that fit at once."""
        return self.num_blocks(pool_bytes) // self.blocks_at(num_tokens)

    def num_tokens(self, pool_bytes: int, context: int) -> int:
        """Tokens that fit, in sequences of `context` tokens each and a part of one."""
        blocks = sum(
            Fraction(context, group.block_tokens) if group.is_whole else group.blocks_at(context)
            for group in self.groups
        )
        return int(self.num_blocks(pool_bytes) * context / blocks)


def lay_out(footprint: Footprint, block_tokens: int) -> Pages:
    """`block_tokens`: what the engine is started with. Raises ModelError where nothing is kept, or
    pages cannot be made equal."""
    caches = footprint.caches
    if not caches:
        raise ModelError("this model keeps neither keys and values nor states")
    block_tokens = _raised(caches, block_tokens)
    pages = _pages(caches, block_tokens)
    if _is_one_type(pages):
        return Pages(block_tokens, (Group(tuple(pages)),))
    return Pages(block_tokens, tuple(_groups([_unified(page, pages) for page in pages])))


def _raised(caches: Sequence[Cache], block_tokens: int) -> int:
    """The fewest tokens, in steps of the block asked for, whose page holds a state."""
    state_bytes = max(cache.state_bytes for cache in caches)
    token_bytes = max(cache.bytes_per_token for cache in caches)
    if not state_bytes or not token_bytes:
        return block_tokens
    step = block_tokens
    if any(cache.kind == "latent" for cache in caches):
        step = max(step, _LATENT_BLOCK)
    return step * -(-state_bytes // (step * token_bytes))


def _pages(caches: Sequence[Cache], block_tokens: int) -> list[Page]:
    attention_page = block_tokens * max(cache.bytes_per_token for cache in caches)
    return [
        Page(cache, block_tokens, attention_page or cache.state_bytes)
        if cache.is_state
        else Page(cache, block_tokens, block_tokens * cache.bytes_per_token)
        for cache in caches
    ]


def _is_one_type(pages: Sequence[Page]) -> bool:
    """Whether all layers can share one block table, of whatever page sizes."""
    if all(page.cache.kind in _ALL_TOKENS for page in pages):
        return True
    if all(page.cache.is_state for page in pages):
        return len({page.page_bytes for page in pages}) == 1
    return len({(page.cache.kind, page.cache.window) for page in pages}) == 1


def _unified(page: Page, pages: Iterable[Page]) -> Page:
    largest = max(other.page_bytes for other in pages)
    if largest % page.page_bytes == 0 and not page.cache.is_state:
        times = largest // page.page_bytes
        return Page(page.cache, page.block_tokens * times, largest)
    if page.cache.kind in ("latent", "indexer"):
        raise ModelError(f"pages of {page.cache.kind}s cannot be padded to {largest} bytes")
    return replace(page, page_bytes=largest)


def _groups(pages: Iterable[Page]) -> Iterable[Group]:
    """Of equally many layers, as far as the kinds' numbers of layers go."""
    alike: dict[object, list[Page]] = {}
    for page in pages:
        alike.setdefault((replace(page.cache, layer=0), page.block_tokens), []).append(page)
    fewest, most = min(map(len, alike.values())), max(map(len, alike.values()))
    size = most if most < fewest * _ONE_GROUP_LIMIT else fewest
    for same in alike.values():
        num_groups = -(-len(same) // size)
        for first in range(num_groups):
            yield Group(tuple(same[first::num_groups]))
