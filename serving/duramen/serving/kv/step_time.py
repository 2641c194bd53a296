"""How long a forward pass takes, as a function of what it computes.

A step computes, for each scheduled request, some new tokens behind a context that is in the cache
already. One new token is a decode, or a prefill's last token, which costs the same.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import compress
from operator import mul
from typing import Protocol

from duramen.layout.errors import LayoutError


@dataclass(frozen=True)
class Step:
    """What one forward pass computes: per scheduled request its new tokens, and how many stand
    before them in the cache (computed earlier, or hit)."""

    new_tokens: Sequence[int]
    context_tokens: Sequence[int]

    @property
    def num_sequences(self) -> int:
        return len(self.new_tokens)

    @cached_property
    def num_decodes(self) -> int:
        return sum(new == 1 for new in self.new_tokens)

    @property
    def num_prefills(self) -> int:
        return self.num_sequences - self.num_decodes

    @cached_property
    def num_new_tokens(self) -> int:
        return sum(self.new_tokens)

    @cached_property
    def num_pairs(self) -> int:
        """Attended pairs: each new token sees its context, itself and the new ones before it."""
        with_context: int = sum(map(mul, self.new_tokens, self.context_tokens))
        squares: int = sum(map(mul, self.new_tokens, self.new_tokens))
        return with_context + (squares + self.num_new_tokens) // 2

    @cached_property
    def num_decode_context_tokens(self) -> int:
        """Cached tokens that the decodes read."""
        return sum(compress(self.context_tokens, map((1).__eq__, self.new_tokens)))


class StepTime(Protocol):
    def seconds(self, step: Step) -> float:
        """From the start of the forward pass to the start of the next one. Above 0."""


@dataclass(frozen=True)
class LinearStepTime:
    """Seconds of a step: `fixed_s`, and a price for each thing that the step has (see Step).

    A decode's context counts twice: among the pairs of all chunks, and among what decodes read.
    Raises LayoutError unless all are finite, none is negative and `fixed_s` is above 0.
    """

    fixed_s: float
    per_token_s: float
    per_pair_s: float
    per_decode_context_token_s: float
    per_sequence_s: float

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if not 0 <= value < math.inf:
                raise LayoutError(f"{each.name} must be a finite number from 0, not {value}")
        if not self.fixed_s:
            raise LayoutError("fixed_s must be above 0: no step is for free")

    def seconds(self, step: Step) -> float:
        return (
            self.fixed_s
            + self.per_token_s * step.num_new_tokens
            + self.per_pair_s * step.num_pairs
            + self.per_decode_context_token_s * step.num_decode_context_tokens
            + self.per_sequence_s * step.num_sequences
        )
