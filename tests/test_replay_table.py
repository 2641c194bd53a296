"""The table of `duramen replay`: medians with their spread, and figures to doubt said aloud."""

from io import StringIO
from typing import Any

from rich.console import Console

from duramen.cli.replay_table import as_table
from duramen.experiments.accounts import Accounts
from duramen.experiments.arrival import OpenLoop
from duramen.experiments.layouts.catalogue import Layout
from duramen.experiments.repeats import Repeats
from duramen.serving.vllm.timings import EngineTimes, Summed

STABLE, CLOCK = Layout.parse("stable"), Layout.parse("clock")


def ran(ttft_s: float, delivered: int = 960, **more: Any) -> Accounts:
    """Two calls that took as long."""
    fixed = {"num_calls": 2, "prompt_tokens": 1000, "makespan_s": 2 * ttft_s, "is_complete": True}
    return Accounts(16, delivered=delivered, ttft_s=[ttft_s] * 2, **(fixed | more))


def shown(layouts: dict[Layout, list[Accounts]], *, interrupted: bool = False) -> list[str]:
    """Lines without the frame; cells two blanks apart."""
    facts = {"engine": "e", "model": "m", "unit_tokens": 16, "device": "d"}
    console = Console(width=200, record=True, file=StringIO())
    repeats = {layout: Repeats(runs) for layout, runs in layouts.items()}
    console.print(as_table(repeats, facts | {"interrupted": interrupted}))
    lines = [line.strip("│┃ ") for line in console.export_text().splitlines()]
    return ["  ".join(cell.strip() for cell in line.split("│")) for line in lines]


def test_one_run_has_no_spread() -> None:
    lines = shown({STABLE: [ran(0.25)], CLOCK: [ran(0.5, delivered=0)]})
    assert "TTFT p50  0.250 s  0.500 s" in lines
    assert "uncached tokens  40  1,000" in lines
    names = " ".join(lines)
    for absent in ("runs", "in the engine", "due", "late", "in flight"):
        assert absent not in names


def test_several_runs() -> None:
    lines = shown({STABLE: [ran(0.25), ran(0.5), ran(0.375)], CLOCK: [ran(1.0)]})
    assert "TTFT p50  0.375 s (0.250..0.500)  1.000 s" in lines
    assert "makespan  0.750 s (0.500..1.000)  2.000 s" in lines
    assert "runs  3  -" in lines


def test_runs_that_were_delivered_other_counts() -> None:
    lines = shown({STABLE: [ran(1, 960), ran(1, 928), ran(1, 100, is_complete=False)]})
    assert "stable: runs were delivered 960, 928 tokens" in lines
    assert "uncached tokens  40" in lines


def test_what_only_an_open_loop_has() -> None:
    sums = OpenLoop(late_s=[0.0, 0.5], ttft_from_due_s=[0.25, 0.75], max_in_flight=2)
    lines = shown({STABLE: [ran(0.25, open_loop=sums)], CLOCK: [ran(1.0)]})
    assert "TTFT from due time, p50  0.250 s  -" in lines
    assert "TTFT from due time, p95  0.750 s  -" in lines
    assert "lateness max  0.500 s  -" in lines
    assert "sent over 10 ms late  1  -" in lines
    assert "most in flight  2  -" in lines


def test_what_the_engine_measured_beside_what_the_client_did() -> None:
    alone, crowded = (EngineTimes(Summed(0.25 * num, num)) for num in (2, 5))
    lines = shown({STABLE: [ran(0.5, engine_times=alone)], CLOCK: [ran(1, engine_times=crowded)]})
    assert "TTFT mean  0.500 s  1.000 s" in lines
    assert "TTFT mean, in the engine  0.250 s  0.250 s" in lines
    [doubt] = [line for line in lines if "the engine timed" in line]
    assert doubt.startswith("clock: the engine timed 5 calls, 2 of them ours")
