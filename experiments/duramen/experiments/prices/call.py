"""What a provider sees of one call, and how many of its tokens it bills at which price."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import isfinite
from operator import le
from typing import Literal

from duramen.layout.errors import PriceError

KEY_TOKENS = 16  # tokens per key of a call; every granularity is a multiple of it

WriteKind = Literal["write_5m", "write_30m", "write_1h"]


@dataclass(frozen=True, slots=True)
class PricedCall:
    """One call of a layout. Only equality of keys counts: equal key = equal content up to there.

    `keys` are the chained digests of every full 16 tokens of the prompt, `num_tokens // 16` of
    them. `ends` are the token ends of the prompt's content blocks, ascending, the last one
    `num_tokens`; `end_keys` the chained digests of everything up to each of them. Keys are of one
    width. A block must end with the same key in the next call that holds it: what a template writes
    to open a reply belongs to the reply's block once there is one, so leave it out of `end_keys`. A
    provider that counts a run of blocks as one position (Anthropic: consecutive tool uses, or tool
    results) gets one end for the run.

    `marks` are the indices into `ends` at which the client sets cache breakpoints. None is what
    agents commonly do: the end of the first block (tools and system), the last end, and within a
    `session` also the block at which its previous call ended. Providers whose cache takes no
    breakpoints ignore both.

    Replies are not modelled as cached before they come back as input.
    """

    time_s: float  # when it is sent; ascending over the calls
    num_tokens: int  # of the prompt
    output_tokens: int
    keys: Sequence[bytes]
    ends: Sequence[int]
    end_keys: Sequence[bytes]
    session: Hashable = None
    marks: Sequence[int] | None = None

    def __post_init__(self) -> None:
        if not isfinite(self.time_s):
            raise PriceError(f"a call is sent at {self.time_s}: give finite seconds")
        if self.num_tokens < 1 or self.output_tokens < 0:
            raise PriceError(
                f"a call has {self.num_tokens} prompt, {self.output_tokens} output tokens"
            )
        if len(self.keys) != self.num_tokens // KEY_TOKENS:
            raise PriceError(f"{len(self.keys)} keys do not cover {self.num_tokens} prompt tokens")
        if len(self.ends) != len(self.end_keys) or not self.ends:
            raise PriceError(f"{len(self.ends)} block ends have {len(self.end_keys)} keys")
        ascending = self.ends[0] >= 0 and all(map(le, self.ends, self.ends[1:]))
        if not ascending or self.ends[-1] != self.num_tokens:
            raise PriceError(f"block ends do not ascend to the prompt's {self.num_tokens} tokens")
        marks = self.marks or ()
        if any(not 0 <= mark < len(self.ends) for mark in marks):
            raise PriceError(f"breakpoints {list(marks)} are not among {len(self.ends)} blocks")


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call, or of several added up, by the price they are billed at.

    A token of the prompt is in exactly one of the first five. They lie in the prompt in this order:
    read from the cache, written to it, neither.
    """

    uncached: int = 0
    cached_read: int = 0
    write_5m: int = 0
    write_30m: int = 0
    write_1h: int = 0
    output: int = 0

    def __post_init__(self) -> None:
        if self.uncached < 0 or self.cached_read < 0 or self.output < 0:
            raise PriceError(f"negative tokens in {self}")
        if self.write_5m < 0 or self.write_30m < 0 or self.write_1h < 0:
            raise PriceError(f"negative tokens in {self}")

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.uncached + other.uncached,
            self.cached_read + other.cached_read,
            self.write_5m + other.write_5m,
            self.write_30m + other.write_30m,
            self.write_1h + other.write_1h,
            self.output + other.output,
        )

    @property
    def written(self) -> int:
        return self.write_5m + self.write_30m + self.write_1h

    @property
    def prompt(self) -> int:
        return self.uncached + self.cached_read + self.written
