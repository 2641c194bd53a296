"""TTFT of long prompts and ITL of streams beside them: static token budgets against a target.

Some streams decode all the time; beside them come prompts of 4,000 to 6,000 tokens that nobody sent
before, each a second after the first token of the one before. One vLLM for each arm (CPU build,
SmolLM2-135M), all up at once and idle but for one: the arms take turns in slices, in another order
each round. Needs a timing profile of this machine; without one only the static budgets run.
"""

import argparse
import asyncio
import random
import sys
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table

from duramen.cli.output import check_json_file, write_json
from duramen.experiments.timed.figures import Ranks
from duramen.serving.models import fetch
from duramen.serving.probe import device_name
from duramen.serving.vllm.engine import wait_until_ready
from duramen.serving.vllm.itl_target import ItlTarget
from duramen.serving.vllm.launch import VllmConfig, VllmProcess
from duramen.serving.vllm.version import installed_build

BUDGETS = (256, 512, 1024, 2048, 8192)
OPEN_BUDGET = 8192  # of our arm, where nothing decodes
TARGET_MS = 400.0
NUM_STREAMS, STREAM_TOKENS = 4, 600
LONG_TOKENS = (4000, 6000)
PAUSE_S, LONGS_PER_SLICE, NUM_ROUNDS = 1.0, 4, 3
SETTLE_S = 3.0  # from the streams' first tokens on
FIRST_ID, LAST_ID = 1000, 40_000  # ordinary tokens
TABLE_WIDTH = 106

Gap = tuple[float, float]  # when it ended, and its seconds


@dataclass(frozen=True)
class Load:
    num_streams: int
    longs_per_slice: int
    pause_s: float
    num_rounds: int


@dataclass
class Arm:
    name: str
    process: VllmProcess
    model: str
    gaps_s: list[float] = field(default_factory=list)
    ttfts_s: list[float] = field(default_factory=list)

    def as_json(self, target_s: float) -> dict[str, Any]:
        report = self.process.itl_report()
        return {
            "itl_s": asdict(Ranks.of(np.array(self.gaps_s))),
            "ttft_s": asdict(Ranks.of(np.array(self.ttfts_s))),
            "within_target": sum(gap <= target_s for gap in self.gaps_s) / len(self.gaps_s),
            "scheduler": None if report is None else asdict(report),
            "gaps_s": [round(gap, 4) for gap in self.gaps_s],
            "ttfts_s": [round(ttft, 3) for ttft in self.ttfts_s],
        }


async def run(arms: Sequence[Arm], load: Load) -> None:
    for number in range(load.num_rounds):
        shift = number % len(arms)
        for arm in [*arms[shift:], *arms[:shift]]:
            await _slice(arm, load, number)
            num_gaps, num_longs = len(arm.gaps_s), len(arm.ttfts_s)
            say(f"round {number + 1}: {arm.name}: {num_gaps} gaps, {num_longs} long prompts so far")


async def _slice(arm: Arm, load: Load, number: int) -> None:
    """The same prompts for each arm of a round."""
    draw = random.Random(number)
    salt = uuid.uuid4().hex
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=600)) as http:
        begun = [asyncio.Event() for _ in range(load.num_streams)]
        gaps: list[Gap] = []
        streams = [
            asyncio.create_task(_stream(arm, http, gaps, draw.random(), salt, event))
            for event in begun
        ]
        try:
            await asyncio.gather(*(event.wait() for event in begun))
            await asyncio.sleep(SETTLE_S)
            started_s = time.monotonic()
            for _ in range(load.longs_per_slice):
                await _long(arm, http, _ids(draw, *LONG_TOKENS), salt)
                await asyncio.sleep(load.pause_s)
            arm.gaps_s += [gap_s for ended_s, gap_s in gaps if ended_s > started_s]
        finally:
            for stream in streams:
                stream.cancel()
                with suppress(asyncio.CancelledError):
                    await stream


def _ids(draw: random.Random, least: int, most: int) -> list[int]:
    return draw.choices(range(FIRST_ID, LAST_ID), k=draw.randint(least, most))


async def _stream(
    arm: Arm,
    http: aiohttp.ClientSession,
    gaps: list[Gap],
    seed: float,
    salt: str,
    begun: asyncio.Event,
) -> None:
    """Reply after reply, until cancelled. `begun` is set at the first token, or where it fails."""
    draw = random.Random(seed)
    try:
        while True:
            last_s = None
            async for now_s in _tokens(arm, http, _ids(draw, 30, 60), STREAM_TOKENS, salt):
                if last_s is not None:
                    gaps.append((now_s, now_s - last_s))
                last_s = now_s
                begun.set()
    finally:
        begun.set()


async def _long(arm: Arm, http: aiohttp.ClientSession, ids: list[int], salt: str) -> None:
    sent_s = time.monotonic()
    async for now_s in _tokens(arm, http, ids, 1, salt):
        arm.ttfts_s.append(now_s - sent_s)


async def _tokens(
    arm: Arm, http: aiohttp.ClientSession, ids: list[int], max_tokens: int, salt: str
) -> Any:
    """When each token of a reply came."""
    body = {"model": arm.model, "prompt": ids, "max_tokens": max_tokens, "stream": True}
    body |= {"temperature": 1.0, "ignore_eos": True, "cache_salt": salt}
    async with http.post(f"{arm.process.url}/v1/completions", json=body) as response:
        response.raise_for_status()
        async for line in response.content:
            if line.startswith(b"data: {") and msgspec.json.decode(line[6:])["choices"]:
                yield time.monotonic()


async def start(
    model_dir: Path, budgets: Sequence[int], itl: ItlTarget | None, arms: list[Arm]
) -> None:
    """Fills `arms` as their servers come up, one after the other."""
    wanted: list[tuple[str, int, ItlTarget | None]] = [
        (f"static {budget:,}", budget, None) for budget in budgets
    ]
    if itl is not None:
        wanted.append((f"target {itl.target_ms:g} ms", OPEN_BUDGET, itl))
    for name, budget, target in wanted:
        config = VllmConfig(
            model_dir,
            max_model_len=8192,
            kv_cache_gib=1,
            max_num_seqs=32,
            max_num_batched_tokens=budget,
            tool_parser=None,
            itl=target,
        )
        arms.append(Arm(name, VllmProcess(config), str(model_dir)))
        await wait_until_ready(arms[-1].process, lambda line: None)
        say(f"{name} is up")


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def as_table(result: dict[str, Any]) -> Table:
    title = f"{result['device']}; {result['engine']}; target {result['target_ms']:g} ms"
    table = Table(title=title, title_justify="left")
    for column in ("arm", "gaps", "ITL p50", "p90", "p99", "max", "in target", "TTFT p50", "p90"):
        table.add_column(column, justify="left" if column == "arm" else "right")
    for name, row in result["arms"].items():
        itl, ttft = row["itl_s"], row["ttft_s"]
        cells = [f"{len(row['gaps_s']):,}"]
        cells += [f"{itl[key] * 1000:,.0f} ms" for key in ("p50", "p90", "p99", "max")]
        cells += [f"{row['within_target']:.1%}", f"{ttft['p50']:.1f} s", f"{ttft['p90']:.1f} s"]
        table.add_row(name, *cells)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--timing", type=Path, help="timing profile of this machine")
    parser.add_argument("--target-ms", type=float, default=TARGET_MS)
    parser.add_argument("--budgets", type=int, nargs="*", default=BUDGETS)
    parser.add_argument("--streams", type=int, default=NUM_STREAMS)
    parser.add_argument("--rounds", type=int, default=NUM_ROUNDS)
    parser.add_argument("--longs", type=int, default=LONGS_PER_SLICE, help="in each slice")
    parser.add_argument("--json", help="where to write the result, - for stdout")
    options = parser.parse_args()
    check_json_file(options.json)
    itl = None if options.timing is None else ItlTarget(options.target_ms, options.timing)
    timing = None if itl is None else itl.load_timing().as_fields()
    load = Load(options.streams, options.longs, PAUSE_S, options.rounds)
    arms: list[Arm] = []

    async def measure() -> None:
        await start(fetch("smollm2", lambda line: None), options.budgets, itl, arms)
        await run(arms, load)

    try:
        asyncio.run(measure())
        result = {
            "device": device_name(),
            "engine": "vllm-{} {}".format(*installed_build()),
            "model": "SmolLM2-135M-Instruct",
            "target_ms": options.target_ms,
            "timing": timing,
            "load": asdict(load),
            "arms": {arm.name: arm.as_json(options.target_ms / 1000) for arm in arms},
        }
    finally:
        for arm in arms:
            arm.process.stop()
    if options.json:
        write_json("bench itl", result, options.json)
    if options.json != "-":
        Console(width=TABLE_WIDTH).print(as_table(result))


if __name__ == "__main__":
    main()
