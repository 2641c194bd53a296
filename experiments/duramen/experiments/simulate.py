"""Replays traces through a cache model, one request after another.

Two kinds of trace (importers.traces): prompts as hash ids of blocks, and as token ids. Three
semantics:

trace   A request hits the leading run of its blocks that are present, a partial last one with the
        tokens it has, and recomputes nothing of them. Then all its blocks are present. The least
        recently used ones leave, the tail of a request first. Outputs are not inserted.
vllm    serving.kv.cache: full blocks, last token recomputed, one of the blocks is the null block.
radix   serving.kv.radix: token by token, so it needs token ids. A block is a page.

A request that the pool cannot hold is skipped, counted, and in neither part of a rate.
"""

import time
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice, repeat, takewhile
from pathlib import Path
from typing import NamedTuple

from duramen.experiments.importers.mooncake import HashedRequest
from duramen.experiments.importers.token_trace import TokenRequest
from duramen.experiments.importers.traces import Trace, read_traces
from duramen.layout.blocks import ROOT, block_hashes
from duramen.layout.errors import LayoutError, TrajectoryError
from duramen.serving.kv.cache import BlockCache
from duramen.serving.kv.radix import RadixCache


class Semantics(Enum):
    TRACE = "trace"
    VLLM = "vllm"
    RADIX = "radix"


# tokens per block of a token trace: the defaults of vLLM (on GPUs) and SGLang
USUAL_UNIT = {Semantics.TRACE: 16, Semantics.VLLM: 16, Semantics.RADIX: 1}


class BlockRequest(NamedTuple):
    """A prompt as the keys of its blocks, a partial last one included.

    `computed_keys` are those of the full blocks of all that was computed when the request ended:
    the prompt and `num_decoded_tokens`, every output but the last. Where outputs bear no ids, the
    prompt's keys.
    """

    keys: Sequence[Hashable]
    num_tokens: int
    computed_keys: Sequence[Hashable]
    num_decoded_tokens: int


@dataclass(frozen=True)
class Simulation:
    """What each request hit. Sums and rates are over those that were served.

    Sessions and output tokens are None where the trace does not tell them. `notes` say what a
    reader of the figures would not expect.
    """

    semantics: Semantics
    unit_tokens: int
    capacity_blocks: int | None  # None is infinite
    prompt_sizes: Sequence[int]  # tokens, by request
    hit_sizes: Sequence[int | None]  # tokens, by request; None was skipped
    elapsed_s: float  # of the replay; reading and hashing come before
    output_sizes: Sequence[int | None]  # tokens, by request
    num_sessions: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def num_requests(self) -> int:
        return len(self.prompt_sizes)

    @property
    def num_skipped(self) -> int:
        return sum(hit is None for hit in self.hit_sizes)

    @property
    def num_blocks(self) -> int:
        return sum(-(-size // self.unit_tokens) for size in self._served_sizes)

    @property
    def prompt_tokens(self) -> int:
        return sum(self._served_sizes)

    @property
    def output_tokens(self) -> int | None:
        outputs = zip(self.output_sizes, self.hit_sizes, strict=True)
        told = [size for size, hit in outputs if size is not None and hit is not None]
        return sum(told) if told else None

    @property
    def cached_tokens(self) -> int:
        return sum(hit for hit in self.hit_sizes if hit is not None)

    @property
    def block_hit_rate(self) -> float | None:
        hit_blocks = sum(-(-hit // self.unit_tokens) for hit in self.hit_sizes if hit is not None)
        return hit_blocks / self.num_blocks if self.num_blocks else None

    @property
    def token_hit_rate(self) -> float | None:
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else None

    @property
    def _served_sizes(self) -> list[int]:
        sizes = zip(self.prompt_sizes, self.hit_sizes, strict=True)
        return [size for size, hit in sizes if hit is not None]


def simulate(
    paths: Iterable[Path],
    semantics: Semantics,
    capacity_blocks: int | None,
    unit: int | None = None,
) -> Simulation:
    """Read the traces and replay them, file after file. `unit`: tokens per block, None = the usual.

    Raises TrajectoryError where a file is no such trace, or bears no token ids for `radix`;
    LayoutError where capacity or unit make no sense.
    """
    if min(1 if size is None else size for size in (unit, capacity_blocks)) < 1:
        raise LayoutError(f"unit {unit} and capacity {capacity_blocks} must be at least 1")
    paths = [*paths]
    trace = read_traces(paths, unit)
    unit = unit or trace.unit_tokens or USUAL_UNIT[semantics]
    replay: Iterator[int | None]
    if semantics is Semantics.RADIX:
        if trace.hashed:
            raise TrajectoryError(
                f"{paths[0]} holds hash ids of blocks, but radix matches token by token: "
                "use --semantics trace or vllm, or a trace with token_ids"
            )
        replay = replay_radix(trace.tokens, unit, capacity_blocks)
    else:
        blocks = [*map(hashed_blocks, trace.hashed), *(token_blocks(r, unit) for r in trace.tokens)]
        replay_blocks = replay_trace if semantics is Semantics.TRACE else replay_vllm
        replay = replay_blocks(blocks, unit, capacity_blocks)
    started = time.perf_counter()
    hits = [*replay]
    return Simulation(
        semantics=semantics,
        unit_tokens=unit,
        capacity_blocks=capacity_blocks,
        prompt_sizes=[r.num_tokens for r in trace.hashed]
        or [len(r.token_ids) for r in trace.tokens],
        hit_sizes=hits,
        elapsed_s=time.perf_counter() - started,
        output_sizes=_output_sizes(trace),
        num_sessions=trace.num_sessions,
        notes=trace.notes,
    )


def _output_sizes(trace: Trace) -> list[int | None]:
    if trace.hashed:
        return [request.num_output_tokens for request in trace.hashed]
    sizes = [len(request.output_ids) for request in trace.tokens]
    return [*sizes] if any(sizes) else [None] * len(sizes)


def read_trace(path: Path, unit: int | None) -> Trace:
    """One trace, or a folder of them. Raises TrajectoryError like read_traces."""
    return read_traces([path], unit)


def hashed_blocks(request: HashedRequest) -> BlockRequest:
    return BlockRequest(request.hash_ids, request.num_tokens, request.hash_ids, 0)


def token_blocks(request: TokenRequest, unit: int) -> BlockRequest:
    prompt, decoded = request.token_ids, request.output_ids[:-1]
    computed_keys = [*block_hashes([*prompt, *decoded], unit)]
    num_full = len(prompt) // unit
    keys = computed_keys[:num_full]
    if tail := prompt[num_full * unit :]:
        keys += block_hashes(tail, len(tail), parent=keys[-1] if keys else ROOT)
    return BlockRequest(keys, len(prompt), computed_keys, len(decoded))


def replay_trace(
    requests: Sequence[BlockRequest], unit: int, capacity: int | None
) -> Iterator[int]:
    """Yield the hit tokens of each request.

    A key is as recent as the last request that had it, so touching is one batch update.
    """
    last_request: dict[Hashable, int] = {}
    leaving = _least_recent(requests, last_request)
    for number, request in enumerate(requests):
        num_hits = len([*takewhile(last_request.__contains__, request.keys)])
        last_request.update(zip(request.keys, repeat(number)))
        if capacity is not None and len(last_request) > capacity:
            for key in islice(leaving, len(last_request) - capacity):
                del last_request[key]
        yield min(num_hits * unit, request.num_tokens)


def _least_recent(
    requests: Sequence[BlockRequest], last_request: Mapping[Hashable, int]
) -> Iterator[Hashable]:
    """Follow the replay from behind and yield the keys that no later request has touched so far."""
    number_of = last_request.get
    for number, request in enumerate(requests):
        for key in reversed(request.keys):
            if number_of(key) != number:
                break  # keys chain: who touched this one touched all before it
            yield key


def replay_vllm(
    requests: Sequence[BlockRequest], unit: int, capacity: int | None
) -> Iterator[int | None]:
    """Yield the hit tokens of each request, None where the pool cannot hold it."""
    cache = BlockCache(capacity, unit)
    for request in requests:
        yield cache.serve(request.computed_keys, request.num_tokens, request.num_decoded_tokens)


def replay_radix(
    requests: Sequence[TokenRequest], unit: int, capacity: int | None
) -> Iterator[int | None]:
    """Yield the hit tokens of each request, None where the pool cannot hold it."""
    tree = RadixCache(None if capacity is None else capacity * unit, unit)
    for request in requests:
        yield tree.serve(request.token_ids, request.output_ids)
