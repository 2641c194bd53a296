"""Chained block hashes: the identity of a KV block is its tokens plus everything before them.

Block i's hash covers block i-1's hash, so two prompts share a hash exactly when they share the
whole prefix up to that block's end. Only full blocks are hashed: a partial tail is never reused.
Same rule as vLLM's prefix cache; the bytes are our own, so these hashes never equal vLLM's.
"""

from collections.abc import Container, Iterator, Sequence
from hashlib import blake2b
from struct import Struct, error
from typing import NewType

from duramen.layout.errors import LayoutError

BlockHash = NewType("BlockHash", bytes)  # 16 bytes
ROOT = BlockHash(bytes(16))  # parent of every first block

_COMPARED_AT_ONCE = 4096  # tokens; a power of two, so that halving it ends at 1


def salted_root(salt: str) -> BlockHash:
    """The parent of a tenant's first block: ROOT where there is no salt."""
    if not salt:
        return ROOT
    return BlockHash(blake2b(salt.encode(), digest_size=16, person=b"cache salt").digest())


def block_hashes(
    token_ids: Sequence[int], block_size: int, salt: str = "", *, parent: BlockHash = ROOT
) -> Iterator[BlockHash]:
    """Yield the hash of each full block, in order: len(token_ids) // block_size of them.

    `salt` separates tenants: prompts with different salts share no hash. `parent` continues a chain
    that was hashed before (its salt included): then `token_ids` are what comes after that block.
    Raises LayoutError, at the first next(), if block_size < 1 or if both `salt` and `parent` are
    given; at the block that holds it, if a token id does not fit 32 unsigned bits.
    """
    if block_size < 1:
        raise LayoutError(f"block size {block_size} is below 1")
    if salt and parent != ROOT:
        raise LayoutError("a chain takes its salt at its root: give either salt or parent")
    pack = Struct(f"<16s{block_size}I").pack
    block_hash = parent if parent != ROOT else salted_root(salt)
    for end in range(block_size, len(token_ids) + 1, block_size):
        block = token_ids[end - block_size : end]
        try:
            data = pack(block_hash, *block)
        except error:
            raise LayoutError(f"token ids {list(block)} are not all in [0, 2**32)") from None
        block_hash = BlockHash(blake2b(data, digest_size=16).digest())
        yield block_hash


def match_prefix(
    token_ids: Sequence[int], cached: Container[BlockHash], block_size: int, salt: str = ""
) -> int:
    """Leading tokens that are in `cached`: a multiple of `block_size`, at most len(token_ids) - 1.

    One token is always left to compute, because sampling needs one position's logits.
    """
    num_cached = 0
    for block_hash in block_hashes(token_ids[:-1], block_size, salt):
        if block_hash not in cached:
            break
        num_cached += block_size
    return num_cached


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the longest common prefix (the LCP). Fastest when both are of one built-in type.

    Slices are compared whole and halved where they differ, so Python never loops over tokens.
    """
    if type(a) is not type(b) or not isinstance(a, list | tuple):
        a, b = list(a), list(b)
    limit = min(len(a), len(b))
    start, step = 0, _COMPARED_AT_ONCE
    while start < limit and step:
        end = min(start + step, limit)
        if a[start:end] == b[start:end]:
            start = end
        else:
            step //= 2
    return start


def reusable_tokens(lcp: int, num_tokens: int, unit: int, *, draft: bool = False) -> int:
    """The most that a call of `num_tokens` can reuse: whole units of the LCP, never the last token.

    A draft model (EAGLE, MTP) needs the hidden states of the last matched unit and so loses it.
    Raises LayoutError if unit < 1.
    """
    if unit < 1:
        raise LayoutError(f"match unit {unit} is below 1")
    num_units = max(min(lcp, num_tokens - 1), 0) // unit
    return max(num_units - draft, 0) * unit
