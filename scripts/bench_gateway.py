"""Times the gateway: streamed tokens, calls, and what the durable write costs.

The gateway has one core for itself; the clients and a fake vLLM, which answers over HTTP, share the
other. What is compared takes turns; medians over the rounds are shown. Then a real vLLM (its CPU
build, the two-layer random model) answers warm calls of two lengths, on all cores; --no-live leaves
that out.
"""

import argparse
import asyncio
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import uvloop
from rich.console import Console
from rich.table import Table

from duramen.layout.tokenizer import Tokenizer
from duramen.serving.models import tiny
from gateway_bench import live, processes
from gateway_bench.load import Called, Streamed, Words, converse, send_ids, streams

STEP = {"pace_ms": 12.5, "in_step": True}  # 256 streams: 20,480 tokens/s
FLOOD = {"pace_ms": 8.0, "in_step": True}
SPREAD = {"pace_ms": 50.0, "at_random": True}
STREAMS = ((256, STEP), (256, FLOOD), (64, SPREAD))
STREAM_S = 3.0
CALL: dict[str, Any] = {"pace_ms": 20.0, "at_random": True, "max_tokens": 64}
CALL_TOKENS = 8000
CALLS = {1: 6, 16: 3, 64: 2}  # at once: calls in a round of each
LIVE_TOKENS = (8000, 100_000)
SERVER_CORES, CLIENT_CORES = {0}, {1}

Ways = dict[str, tuple[int, int | None]]  # name: port, process id of the gateway


@contextmanager
def ways(model_dir: Path) -> Iterator[Ways]:
    """To the fake: straight, and through gateways."""
    with (
        tempfile.TemporaryDirectory() as folder,
        processes.upstream(CLIENT_CORES) as port,
        processes.gateway(model_dir, port, SERVER_CORES, Path(folder) / "sessions.db") as stored,
        processes.gateway(model_dir, port, SERVER_CORES) as unstored,
    ):
        yield {"straight": (port, None), "gateway": stored, "--no-store": unstored}


async def bench_streams(model_dir: Path, num_rounds: int, console: Console) -> None:
    table = Table(title=f"Streamed tokens; {num_rounds} rounds of {STREAM_S:.0f} s")
    columns = ("streams", "offered/s", "way", "tokens/s", "a read", "CPU/token", "core", "age")
    for column in columns:
        table.add_column(column, justify="right")
    with ways(model_dir) as every_way:
        for num_streams, shape in STREAMS:
            found: dict[str, list[Streamed]] = defaultdict(list)
            for _ in range(num_rounds):
                for name, (port, pid) in every_way.items():
                    found[name].append(await streams(port, num_streams, shape, STREAM_S, pid))
            for name, rounds in found.items():
                offered = f"{num_streams * 1000 / shape['pace_ms']:,.0f}"
                table.add_row(str(num_streams), offered, name, *_stream_cells(rounds))
    console.print(table)
    console.print(
        "a read: tokens that the client found together; CPU/token: of the gateway's process; age: "
        "of a token when the client read it"
    )


def _stream_cells(rounds: Sequence[Streamed]) -> list[str]:
    cpu_us = median(one.cpu_us for one in rounds)
    return [
        f"{median(one.tokens_per_s for one in rounds):,.0f}",
        f"{median(one.tokens_per_read for one in rounds):.2f}",
        f"{cpu_us:.0f} us" if cpu_us else "",
        f"{median(one.busy for one in rounds):.0%}" if cpu_us else "",
        f"{median(one.age_us for one in rounds):,.0f} us",
    ]


async def bench_calls(model_dir: Path, num_rounds: int, console: Console) -> None:
    title = f"Calls of {CALL_TOKENS:,} tokens that go on, {CALL['max_tokens']} sampled"
    table = Table(title=f"{title}; {num_rounds} rounds")
    for column in ("at once", "way", "first token", "added", "whole call", "added", "CPU/call"):
        table.add_column(column, justify="right")
    tokenizer = Tokenizer.load(model_dir, live.template(model_dir))
    with ways(model_dir) as every_way:
        for at_once, num_calls in CALLS.items():
            found: dict[str, list[Called]] = defaultdict(list)
            for number in range(num_rounds):
                for name, (port, pid) in every_way.items():
                    run = send_ids if pid is None else converse
                    words = [Words(tokenizer, number * at_once + i) for i in range(at_once)]
                    found[name].append(await run(port, words, CALL_TOKENS, num_calls, CALL, pid))
            for name, rounds in found.items():
                table.add_row(str(at_once), name, *_call_cells(rounds, found["straight"]))
    console.print(table)


def _call_cells(rounds: Sequence[Called], straight: Sequence[Called]) -> list[str]:
    cells = []
    for field in ("ttft_ms", "call_ms"):
        ours = median(getattr(one, field) for one in rounds)
        cells.append(f"{ours:.2f} ms")
        pairs = zip(rounds, straight, strict=True)
        added = median(getattr(one, field) - getattr(base, field) for one, base in pairs)
        cells.append(f"{added:.2f} ms" if rounds is not straight else "")
    cpu_ms = median(one.cpu_ms for one in rounds)
    return [*cells, f"{cpu_ms:.2f} ms" if cpu_ms else ""]


async def bench_live(model_dir: Path, num_calls: int, console: Console) -> None:
    table = Table(title=f"Warm calls to vLLM's CPU build, two-layer model; {num_calls} in turn")
    for column in ("tokens", "ids straight", "gateway", "added", "vLLM's chat", "chat : gateway"):
        table.add_column(column, justify="right")
    async with live.vllm(model_dir) as port:
        for num_tokens in LIVE_TOKENS:
            found = await live.compare(model_dir, port, num_tokens, num_calls)
            table.add_row(
                f"{found.prompt_tokens:,}",
                f"{found.ids_ms:.1f} ms",
                f"{found.gateway_ms:.1f} ms",
                f"{found.added_ms:.1f} ms",
                f"{found.chat_ms:.1f} ms",
                f"{found.chat_to_gateway:.2f}",
            )
    console.print(table)


async def bench(arguments: argparse.Namespace) -> None:
    console = Console(width=120)
    with tempfile.TemporaryDirectory() as folder:
        model_dir = tiny(Path(folder) / "tiny")
        with processes.on_cores(CLIENT_CORES):
            await bench_streams(model_dir, arguments.rounds, console)
            await bench_calls(model_dir, arguments.rounds, console)
        if arguments.live:
            await bench_live(model_dir, arguments.live_calls, console)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--live", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--live-calls", type=int, default=15)
    arguments = parser.parse_args()
    asyncio.Runner(loop_factory=uvloop.new_event_loop).run(bench(arguments))


if __name__ == "__main__":
    main()
