"""TTFT of long prompts and ITL of streams beside them: static token budgets against a target.

Some streams decode all the time; beside them come prompts of 4,000 to 6,000 tokens that nobody sent
before, each a second after the first token of the one before. One vLLM for each arm (CPU build,
SmolLM2-135M), all up at once and idle but for one: the arms take turns in slices, in another order
each round. The simulator plays the same slices with the step times of a timing profile of this
machine; without one only the static budgets run, live alone.
"""

import argparse
import asyncio
import random
import sys
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table

from duramen.cli.output import check_json_file, write_json
from duramen.experiments.timed.figures import Ranks
from duramen.experiments.timed.itl_budget import itl_budget
from duramen.experiments.timed.mixed_load import MixedLoad, simulate_mixed
from duramen.experiments.timed.rules import rules_of
from duramen.serving.models import fetch
from duramen.serving.probe import device_name
from duramen.serving.timing_profile import TimingProfile
from duramen.serving.vllm.engine import wait_until_ready
from duramen.serving.vllm.itl_target import ItlTarget
from duramen.serving.vllm.launch import VllmConfig, VllmProcess, default_block_size
from duramen.serving.vllm.version import installed_build
from itl_chart import draw_chart

BUDGETS = (256, 512, 1024, 2048, 8192)
OPEN_BUDGET = 8192  # of our arm, where nothing decodes
TARGET_MS = 400.0
MAX_NUM_SEQS = 32
NUM_STREAMS, STREAM_PROMPT_TOKENS, STREAM_TOKENS = 4, (30, 60), 600
LONG_TOKENS = (4000, 6000)
PAUSE_S, LONGS_PER_SLICE, NUM_ROUNDS = 1.0, 4, 3
SETTLE_S = 3.0  # from the streams' first tokens on
FIRST_ID, LAST_ID = 1000, 40_000  # ordinary tokens
TABLE_WIDTH = 106

Gap = tuple[float, float]  # when it ended, and its seconds


@dataclass(frozen=True)
class Slice:
    """The same prompts for each arm of a round."""

    streams: list[list[int]]
    longs: list[list[int]]

    @classmethod
    def draw(cls, number: int, num_streams: int, num_longs: int) -> "Slice":
        draw = random.Random(number)
        return cls(
            [_ids(draw, *STREAM_PROMPT_TOKENS) for _ in range(num_streams)],
            [_ids(draw, *LONG_TOKENS) for _ in range(num_longs)],
        )

    def as_load(self) -> MixedLoad:
        streams, longs = ([len(ids) for ids in each] for each in (self.streams, self.longs))
        return MixedLoad(streams, longs, STREAM_TOKENS, SETTLE_S, PAUSE_S)


@dataclass
class Arm:
    """`budget`: of tokens in a step; of our arm where nothing decodes."""

    name: str
    budget: int
    process: VllmProcess
    model: str
    itl: ItlTarget | None
    gaps_s: list[float] = field(default_factory=list)
    ttfts_s: list[float] = field(default_factory=list)

    def as_json(self, target_s: float) -> dict[str, Any]:
        report = self.process.itl_report()
        return {
            **as_ranks(self.gaps_s, self.ttfts_s),
            "within_target": sum(gap <= target_s for gap in self.gaps_s) / len(self.gaps_s),
            "scheduler": None if report is None else asdict(report),
            "gaps_s": [round(gap, 4) for gap in self.gaps_s],
            "ttfts_s": [round(ttft, 3) for ttft in self.ttfts_s],
        }


def as_ranks(gaps_s: Sequence[float], ttfts_s: Sequence[float]) -> dict[str, Any]:
    return {
        "itl_s": asdict(Ranks.of(np.array(gaps_s))),
        "ttft_s": asdict(Ranks.of(np.array(ttfts_s))),
    }


def simulate(arm: Arm, slices: Sequence[Slice], timing: TimingProfile) -> dict[str, Any]:
    """Each slice on an engine of its own. Steps take exactly what the profile says."""
    flags = {
        **timing.flags,
        "max_num_batched_tokens": arm.budget,
        "max_num_seqs": MAX_NUM_SEQS,
    }
    rules = rules_of(replace(timing, flags=flags), default_block_size("cpu"), None)
    gaps_s: list[float] = []
    ttfts_s: list[float] = []
    for each in slices:
        budget = None
        if arm.itl is not None:
            budget = itl_budget(timing.step, arm.itl.target_s, arm.budget)
        times = simulate_mixed(
            each.as_load(), rules, timing.step, budget, call_fixed_s=timing.call_fixed_s
        )
        gaps_s += times.gaps_s
        ttfts_s += times.ttfts_s
    return as_ranks(gaps_s, ttfts_s)


async def run(arms: Sequence[Arm], slices: Sequence[Slice]) -> None:
    for number, each in enumerate(slices):
        shift = number % len(arms)
        for arm in [*arms[shift:], *arms[:shift]]:
            await _play(arm, each)
            num_gaps, num_longs = len(arm.gaps_s), len(arm.ttfts_s)
            say(f"round {number + 1}: {arm.name}: {num_gaps} gaps, {num_longs} long prompts so far")


async def _play(arm: Arm, each: Slice) -> None:
    salt = uuid.uuid4().hex
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=600)) as http:
        begun = [asyncio.Event() for _ in each.streams]
        gaps: list[Gap] = []
        streams = [
            asyncio.create_task(_stream(arm, http, gaps, ids, salt, event))
            for ids, event in zip(each.streams, begun, strict=True)
        ]
        try:
            await asyncio.gather(*(event.wait() for event in begun))
            await asyncio.sleep(SETTLE_S)
            started_s = time.monotonic()
            for ids in each.longs:
                await _long(arm, http, ids, salt)
                await asyncio.sleep(PAUSE_S)
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
    ids: list[int],
    salt: str,
    begun: asyncio.Event,
) -> None:
    """Reply after reply, until cancelled. `begun` is set at the first token, or where it fails."""
    try:
        while True:
            last_s = None
            async for now_s in _tokens(arm, http, ids, STREAM_TOKENS, salt):
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
            max_num_seqs=MAX_NUM_SEQS,
            max_num_batched_tokens=budget,
            tool_parser=None,
            itl=target,
        )
        arms.append(Arm(name, budget, VllmProcess(config), str(model_dir), target))
        await wait_until_ready(arms[-1].process, lambda line: None)
        say(f"{name} is up")


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def as_table(result: dict[str, Any]) -> Table:
    title = f"{result['device']}; {result['engine']}; target {result['target_ms']:g} ms"
    table = Table(title=f"{title}; (simulated)", title_justify="left")
    for column in ("arm", "gaps", "in target", "ITL p50", "p90", "p99", "TTFT p50", "p90"):
        table.add_column(column, justify="left" if column == "arm" else "right")
    for name, row in result["arms"].items():
        told = row["simulated"]
        cells = [f"{len(row['gaps_s']):,}", f"{row['within_target']:.1%}"]
        cells += [_cell(row, told, "itl_s", rank) for rank in ("p50", "p90", "p99")]
        cells += [_cell(row, told, "ttft_s", rank) for rank in ("p50", "p90")]
        table.add_row(name, *cells)
    return table


def _cell(live: dict[str, Any], told: dict[str, Any] | None, time: str, rank: str) -> str:
    found = f"{live[time][rank]:.3f}"
    return found if told is None else f"{found} ({told[time][rank]:.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--timing", type=Path, help="timing profile of this machine")
    parser.add_argument("--target-ms", type=float, default=TARGET_MS)
    parser.add_argument("--budgets", type=int, nargs="*", default=BUDGETS)
    parser.add_argument("--streams", type=int, default=NUM_STREAMS)
    parser.add_argument("--rounds", type=int, default=NUM_ROUNDS)
    parser.add_argument("--longs", type=int, default=LONGS_PER_SLICE, help="in each slice")
    parser.add_argument("--json", help="where to write the result, - for stdout")
    parser.add_argument("--chart", type=Path, help="SVG to draw")
    options = parser.parse_args()
    check_json_file(options.json)
    itl = None if options.timing is None else ItlTarget(options.target_ms, options.timing)
    timing = None if itl is None else itl.load_timing()
    slices = [
        Slice.draw(number, options.streams, options.longs) for number in range(options.rounds)
    ]
    arms: list[Arm] = []

    async def measure() -> None:
        await start(fetch("smollm2", lambda line: None), options.budgets, itl, arms)
        await run(arms, slices)

    try:
        asyncio.run(measure())
        result = {
            "device": device_name(),
            "engine": "vllm-{} {}".format(*installed_build()),
            "model": "SmolLM2-135M-Instruct",
            "target_ms": options.target_ms,
            "timing": timing and timing.as_fields(),
            "load": [asdict(each.as_load()) for each in slices],
            "arms": {
                arm.name: arm.as_json(options.target_ms / 1000)
                | {"simulated": timing and simulate(arm, slices, timing)}
                for arm in arms
            },
        }
    finally:
        for arm in arms:
            arm.process.stop()
    if options.chart:
        draw_chart(result, options.chart)
    if options.json:
        write_json("bench itl", result, options.json)
    if options.json != "-":
        Console(width=TABLE_WIDTH).print(as_table(result))


if __name__ == "__main__":
    main()
