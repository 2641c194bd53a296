"""Times the cache models: blocks per second, against a plain OrderedDict loop in the same run.

Without a trace it makes one: agents whose prompts grow, and share their first blocks. Reading and
hashing are not timed. Each round runs every contender once, in turn; medians of the rounds are
shown, and the ratio is the median of the rounds' ratios.
"""

import argparse
import platform
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from duramen.cli.output import write_json
from duramen.experiments.importers.mooncake import UNIT_TOKENS, HashedRequest
from duramen.experiments.simulate import (
    BlockRequest,
    hashed_blocks,
    read_trace,
    replay_trace,
    replay_vllm,
)
from duramen.serving.probe import device_name

Replay = Callable[[Sequence[BlockRequest], int, int | None], Iterable[object]]

CAPACITIES = (None, 1_000, 10_000, 30_000)  # blocks; None is infinite


def plain_loop(requests: Sequence[BlockRequest], unit: int, capacity: int | None) -> list[int]:
    """Trace semantics as anyone would write them."""
    present: OrderedDict[object, None] = OrderedDict()
    hits = []
    for request in requests:
        num_hits = 0
        for key in request.keys:
            if key not in present:
                break
            num_hits += 1
        hits.append(min(num_hits * unit, request.num_tokens))
        for key in reversed(request.keys):
            if key in present:
                present.move_to_end(key)
            else:
                present[key] = None
                if capacity is not None and len(present) > capacity:
                    present.popitem(last=False)
    return hits


def made_up_requests(num_sessions: int = 300, seed: int = 2) -> list[HashedRequest]:
    """Sessions that take turns at random, each turn with all blocks of the last one and some new;
    four kinds of agents with first blocks of their own."""
    random, fresh = Random(seed), count()
    system = [[next(fresh) for _ in range(8)] for _ in range(4)]
    sessions = [[*random.choice(system)] for _ in range(num_sessions)]
    requests = []
    for _ in range(4_000):
        blocks = random.choice(sessions)
        blocks += [next(fresh) for _ in range(random.randint(0, 6))]
        tail = [next(fresh)]  # a partial block, which the next turn fills with something else
        num_tokens = len(blocks) * UNIT_TOKENS + random.randint(1, UNIT_TOKENS - 1)
        requests.append(HashedRequest(blocks + tail, num_tokens, 0.0))
    return requests


def blocks_per_s(replay: Replay, requests: Sequence[BlockRequest], capacity: int | None) -> float:
    num_blocks = sum(len(request.keys) for request in requests)
    started = time.perf_counter()
    for _ in replay(requests, UNIT_TOKENS, capacity):
        pass
    return num_blocks / (time.perf_counter() - started)


def measure(
    requests: Sequence[BlockRequest], capacity: int | None, num_rounds: int
) -> dict[str, Any]:
    assert [*replay_trace(requests, UNIT_TOKENS, capacity)] == plain_loop(
        requests, UNIT_TOKENS, capacity
    )
    rounds = [
        [
            blocks_per_s(replay, requests, capacity)
            for replay in (plain_loop, replay_trace, replay_vllm)
        ]
        for _ in range(num_rounds)
    ]
    plain, trace, vllm = (median(speeds) for speeds in zip(*rounds, strict=True))
    return {
        "capacity_blocks": capacity,
        "plain_loop_blocks_per_s": plain,
        "trace_blocks_per_s": trace,
        "trace_over_plain_loop": median(trace / plain for plain, trace, _ in rounds),
        "vllm_blocks_per_s": vllm,
    }


def as_table(result: dict[str, Any]) -> Table:
    table = Table(title=f"{result['trace']}: {result['num_blocks']:,} blocks\n{result['device']}")
    for column in ("capacity", "plain loop", "trace", "trace : plain", "vllm"):
        table.add_column(column, justify="right")
    for row in result["rows"]:
        capacity = row["capacity_blocks"]
        table.add_row(
            "inf" if capacity is None else f"{capacity:,}",
            f"{row['plain_loop_blocks_per_s'] / 1e6:.2f} M/s",
            f"{row['trace_blocks_per_s'] / 1e6:.2f} M/s",
            f"{row['trace_over_plain_loop']:.2f}",
            f"{row['vllm_blocks_per_s'] / 1e6:.2f} M/s",
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", nargs="?", type=Path, help="a Mooncake trace")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", choices=["-"], help="print JSON instead of a table")
    arguments = parser.parse_args()
    hashed = read_trace(arguments.trace, None)[0] if arguments.trace else made_up_requests()
    requests = [hashed_blocks(request) for request in hashed]
    result = {
        "device": device_name(),
        "python": platform.python_version(),
        "trace": arguments.trace.name if arguments.trace else "made up",
        "num_blocks": sum(len(request.keys) for request in requests),
        "num_rounds": arguments.rounds,
        "rows": [measure(requests, capacity, arguments.rounds) for capacity in CAPACITIES],
    }
    if arguments.json:
        write_json("bench simulate", result, "-")
    else:
        Console().print(as_table(result))


if __name__ == "__main__":
    main()
