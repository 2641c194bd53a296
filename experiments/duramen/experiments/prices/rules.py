"""The rules of a provider's prompt cache, as data."""

from dataclasses import dataclass
from math import isfinite
from typing import Literal

from duramen.experiments.prices.call import KEY_TOKENS, Usage, WriteKind
from duramen.layout.errors import PriceError

CacheKind = Literal["automatic", "breakpoints", "units", "none"]


@dataclass(frozen=True, slots=True)
class CacheRules:
    """How one cache hits, lives and bills.

    `automatic`: the longest leading run of whole granules that is alive. `breakpoints`: entries
    are written where the client marks, and found at most `lookback_positions` positions back from
    a mark, itself included (None: without limit). `units`: entries are written at the end of every
    prompt and where two prompts were seen to part, and hit as a whole. `none`: no discount.

    Whatever is shorter than `min_tokens` is neither written nor hit. An entry is alive while its
    age is at most `ttl_s`; a hit starts its age anew where `refreshed`. Prompt tokens behind the
    hit, up to the last granule or mark, are billed as `write`, or as input where that is None.
    Raises PriceError where the rules make no sense.
    """

    kind: CacheKind
    min_tokens: int = 0
    ttl_s: float = 0.0
    refreshed: bool = True
    granularity_tokens: int = KEY_TOKENS
    lookback_positions: int | None = None
    max_breakpoints: int = 4
    write: WriteKind | None = None
    reported_input_includes_cached: bool = True

    def __post_init__(self) -> None:
        if self.granularity_tokens < 1 or self.granularity_tokens % KEY_TOKENS:
            raise PriceError(f"granularity_tokens {self.granularity_tokens} is no multiple of 16")
        if self.kind != "none" and not (isfinite(self.ttl_s) and self.ttl_s > 0):
            raise PriceError(f"ttl_s {self.ttl_s} must be finite and above 0")
        if self.min_tokens < 0 or self.max_breakpoints < 1:
            raise PriceError(
                f"min_tokens {self.min_tokens} or max_breakpoints {self.max_breakpoints} is too low"
            )
        if self.lookback_positions is not None and self.lookback_positions < 1:
            raise PriceError(f"lookback_positions {self.lookback_positions} is below 1")

    def usage(self, prompt: int, hit: int, cached_end: int, output: int) -> Usage:
        """A prompt that hits `hit` tokens and is in the cache up to `cached_end` afterwards."""
        written = max(cached_end - hit, 0) if self.write else 0
        return self._usage(prompt - hit - written, hit, written, output)

    def from_report(self, input_tokens: int, cached_read: int, written: int, output: int) -> Usage:
        """The usage that a provider's own report of one call means.

        Raises PriceError where it holds more cached or written tokens than input, or written ones
        where this cache bills none.
        """
        if written and self.write is None:
            raise PriceError(f"{written} tokens are reported as written to a cache that bills none")
        uncached = input_tokens
        if self.reported_input_includes_cached:
            uncached -= cached_read + written
        return self._usage(uncached, cached_read, written, output)

    def _usage(self, uncached: int, cached_read: int, written: int, output: int) -> Usage:
        kinds = {self.write: written} if self.write else {}
        return Usage(uncached=uncached, cached_read=cached_read, output=output, **kinds)
