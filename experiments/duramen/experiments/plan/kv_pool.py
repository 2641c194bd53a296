"""How many blocks an engine's cache has, by their size and format."""

from dataclasses import dataclass
from fractions import Fraction

from duramen.layout.errors import DuramenError
from duramen.serving.kv.arch import Architecture
from duramen.serving.kv.footprint import Footprint, KvDtype
from duramen.serving.kv.pages import Pages, lay_out


@dataclass(frozen=True)
class Blocks:
    """`unit_tokens`: of one block, as the simulator has it: the match unit. `num_blocks`: that
    sequences can have, None without limit."""

    unit_tokens: int
    num_blocks: int | None

    @property
    def num_tokens(self) -> int | None:
        return None if self.num_blocks is None else self.num_blocks * self.unit_tokens

    def can_hold(self, num_tokens: int) -> bool:
        return self.num_blocks is None or -(-num_tokens // self.unit_tokens) <= self.num_blocks


@dataclass(frozen=True)
class KvPool:
    """`memory_bytes`: for the cache, on each GPU; `kv_tokens`: that fit in the format `measured`.
    One of them, or neither for a cache without limit. `context`: tokens of a sequence, which counts
    where windows or states take part.

    Raises DuramenError where bytes are asked for and there is no architecture to say them.
    """

    arch: Architecture | None = None
    memory_bytes: int | None = None
    kv_tokens: int | None = None
    num_ranks: int = 1
    context: int = 1
    measured: KvDtype = KvDtype.AUTO

    def __post_init__(self) -> None:
        if self.arch is None and self.memory_bytes is not None:
            raise DuramenError("--memory needs a model's config.json: --model CONFIG_OR_DIR")

    def blocks(self, block_size: int, kv_dtype: KvDtype) -> Blocks:
        """Raises ModelError where the model cannot be kept so, DuramenError without a model where
        formats differ."""
        if self.arch is None:
            if kv_dtype is not self.measured:
                raise DuramenError("--kv-dtype needs a model's config.json: --model CONFIG_OR_DIR")
            unit, num_tokens = block_size, self.kv_tokens
        else:
            pages = self._pages(block_size, kv_dtype)
            unit, num_tokens = pages.unit_tokens, self._num_tokens(pages, kv_dtype)
        return Blocks(unit, None if num_tokens is None else num_tokens // unit)

    def _pages(self, block_size: int, kv_dtype: KvDtype) -> Pages:
        assert self.arch is not None
        return lay_out(Footprint.of(self.arch, self.num_ranks, kv_dtype), block_size)

    def _num_tokens(self, pages: Pages, kv_dtype: KvDtype) -> int | None:
        if self.memory_bytes is not None:
            return pages.num_tokens(self.memory_bytes, self.context)
        if self.kv_tokens is None:
            return None
        return int(self.kv_tokens * Fraction(self._bytes(self.measured), self._bytes(kv_dtype)))

    def _bytes(self, kv_dtype: KvDtype) -> int:
        assert self.arch is not None
        return Footprint.of(self.arch, self.num_ranks, kv_dtype).bytes_at(self.context)
