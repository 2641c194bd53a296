"""Times the simulator of continuous batching: 100,000 calls of agents, on one core.

Sessions of 20 calls, each with all that was said before and some more, over eight shared roots; 80
at once, a second between an answer and the next call. Making the calls is not timed; the figures
of all calls are. On a machine that others use, look at the time of the core.
"""

import argparse
import platform
import resource
import time
from dataclasses import replace
from itertools import count
from random import Random
from typing import Any

from rich.console import Console
from rich.table import Table

from duramen.cli.output import write_json
from duramen.experiments.timed.arrivals import ClosedLoop
from duramen.experiments.timed.call import TimedCall
from duramen.experiments.timed.engine import TimedEngine
from duramen.experiments.timed.figures import figures
from duramen.experiments.timed.slo import Slo
from duramen.serving.kv.batching.rules import Policy, Rules
from duramen.serving.kv.step_time import LinearStepTime
from duramen.serving.probe import device_name

NUM_CALLS, CALLS_PER_SESSION = 100_000, 20
BLOCK_SIZE, ROOT_BLOCKS, NUM_ROOTS = 16, 64, 8
CONCURRENCY, THINK_S = 80, 1.0
SLO = Slo(ttft_s=2.0, itl_s=0.05)
TIMES = LinearStepTime(0.008, 3e-5, 1e-9, 2e-8, 5e-5)  # made up; about those of an 8B on one GPU
RULES = Rules(BLOCK_SIZE, 60_000, max_num_batched_tokens=2_048, max_num_seqs=64)
CASES = {
    "async": RULES,
    "sync": replace(RULES, async_scheduling=False),
    "priority, small pool": replace(RULES, policy=Policy.PRIORITY, num_blocks=12_000),
}


def made_up_sessions(num_calls: int, seed: int = 1) -> list[list[TimedCall]]:
    random, fresh = Random(seed), count()
    roots = [[next(fresh) for _ in range(ROOT_BLOCKS)] for _ in range(NUM_ROOTS)]
    return [
        _session(str(number), random, [*random.choice(roots)], fresh)
        for number in range(-(-num_calls // CALLS_PER_SESSION))
    ]


def _session(name: str, random: Random, keys: list[int], fresh: "count[int]") -> list[TimedCall]:
    num_tokens = len(keys) * BLOCK_SIZE
    calls = []
    for index in range(CALLS_PER_SESSION):
        num_prompt = num_tokens + random.randint(20, 600)
        num_tokens = num_prompt + random.randint(20, 280)
        keys += [next(fresh) for _ in range(num_tokens // BLOCK_SIZE - len(keys))]
        num_outputs = num_tokens - num_prompt
        priority = random.randint(0, 2)
        calls.append(
            TimedCall(name, index, keys, num_prompt, num_outputs, num_outputs + 1, priority)
        )
    return calls


def measure(sessions: list[list[TimedCall]], rules: Rules) -> dict[str, Any]:
    started_s, started_cpu_s = time.perf_counter(), time.process_time()
    timeline = TimedEngine(rules, TIMES).run(ClosedLoop(sessions, CONCURRENCY, THINK_S))
    found = figures(timeline, SLO).as_json()
    elapsed_s, cpu_s = time.perf_counter() - started_s, time.process_time() - started_cpu_s
    del found["calls"]
    return found | {"elapsed_s": elapsed_s, "cpu_s": cpu_s}


def as_table(result: dict[str, Any]) -> Table:
    table = Table(title=f"{result['device']}, Python {result['python']}", title_justify="left")
    columns = ("rules", "calls", "steps", "output tokens", "preempted", "elapsed", "of the core")
    for column in columns:
        table.add_column(column, justify="left" if column == "rules" else "right")
    for name, row in result["rows"].items():
        counts = ("num_calls", "num_steps", "output_tokens", "num_preemptions")
        cells = [f"{row[key]:,}" for key in counts]
        table.add_row(name, *cells, f"{row['elapsed_s']:.1f} s", f"{row['cpu_s']:.1f} s")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=NUM_CALLS)
    parser.add_argument("--json", choices=["-"], help="print JSON instead of a table")
    arguments = parser.parse_args()
    sessions = made_up_sessions(arguments.calls)
    result = {
        "device": device_name(),
        "python": platform.python_version(),
        "rows": {name: measure(sessions, rules) for name, rules in CASES.items()},
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    if arguments.json:
        write_json("bench batching", result, "-")
    else:
        Console().print(as_table(result))


if __name__ == "__main__":
    main()
