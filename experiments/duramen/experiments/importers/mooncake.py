"""Mooncake traces: one request per line, its prompt as the hash ids of its blocks, without text.

{"timestamp": ms, "input_length": tokens, "output_length": tokens, "hash_ids": [...]}

A hash id stands for one block of the prompt and everything before it; the last block may be
partial. Outputs bear no ids. The file does not say how long a block is; Mooncake's are 512 tokens.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

import msgspec

from duramen.experiments.importers.documents import Document
from duramen.layout.errors import TrajectoryError

UNIT_TOKENS = 512

Count = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]


@dataclass(frozen=True, slots=True)
class HashedRequest:
    """A prompt of `num_tokens` as ceil(num_tokens / unit) chained ids, and when it came."""

    hash_ids: list[int]
    num_tokens: int
    time_s: float
    num_output_tokens: int | None = None


class Chains:
    """Checks that ids chain: whatever comes before an id is the same wherever the id stands."""

    def __init__(self) -> None:
        self._id_before: dict[int | None, int | None] = {}

    def check(self, hash_ids: list[int], where: str) -> None:
        """Raises TrajectoryError where an id comes after another one than it did before."""
        for before, hash_id in pairwise([None, *hash_ids]):
            known = self._id_before.setdefault(hash_id, before)
            if known != before:
                raise TrajectoryError(
                    f"{where}: hash id {hash_id} comes after {before} here and after {known} "
                    "elsewhere, but an id stands for all before it, too"
                )


class _Line(msgspec.Struct):
    timestamp: Annotated[float, msgspec.Meta(ge=0)]
    input_length: Positive
    output_length: Count
    hash_ids: list[int]


def read_mooncake(
    documents: Iterator[Document], unit: int = UNIT_TOKENS
) -> Iterator[HashedRequest]:
    """Yield the requests in file order. Raises TrajectoryError at the line that is not one, or
    whose ids do not chain as those before did."""
    chains = Chains()
    for where, value in documents:
        try:
            line = msgspec.convert(value, _Line)
        except msgspec.ValidationError as error:
            raise TrajectoryError(f"{where}: no Mooncake request: {error}") from error
        num_blocks = -(-line.input_length // unit)
        if len(line.hash_ids) != num_blocks:
            raise TrajectoryError(
                f"{where}: {line.input_length} tokens are {num_blocks} blocks of {unit}, but there "
                f"are {len(line.hash_ids)} hash_ids; say how long a block is with --unit"
            )
        chains.check(line.hash_ids, where)
        yield HashedRequest(
            line.hash_ids, line.input_length, line.timestamp / 1000, line.output_length
        )
