"""Carries a replay out and shows what came of it, also of one that is cut short."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from duramen.cli.main import INTERRUPTED
from duramen.cli.output import write_json
from duramen.cli.replay_table import as_table
from duramen.cli.timing_table import as_timing_table
from duramen.experiments.accounts import Accounts
from duramen.experiments.layout_run import Overflow, not_told
from duramen.experiments.layouts.catalogue import Layout
from duramen.experiments.layouts.model import Model
from duramen.experiments.opening import DEFAULT_UNIT, Opened, Opening, open_live, open_model
from duramen.experiments.repeats import Repeats
from duramen.experiments.replay import Replay
from duramen.experiments.timed.figures import TimedFigures
from duramen.experiments.timed.replay import TimedReplay, Timing
from duramen.experiments.trajectory import Session
from duramen.layout.errors import DuramenError, ModelError
from duramen.serving.probe import device_name


class EngineKind(Enum):
    SIMULATE = "simulate"
    LIVE = "live"


@dataclass(frozen=True)
class Choices:
    """`time_scale` is None for closed loop. `timing`: when the calls of a simulation are sent, and
    how long a step takes; None without times."""

    engine: EngineKind
    layouts: list[Layout]
    live_replies: bool
    overflow: Overflow
    time_scale: float | None
    num_warm_ups: int
    num_repeats: int
    timing: Timing | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "arrival": "closed" if self.time_scale is None else "recorded",
            "time_scale": self.time_scale,
            "num_warm_ups": self.num_warm_ups,
            "num_repeats": self.num_repeats,
        }


def carry_out(
    sessions: list[Session], model: Model, opening: Opening, choices: Choices, json_file: str | None
) -> None:
    """Run all layouts and show what came of them, also of a run that was cut short."""
    runs: dict[Layout, list[Accounts]] = {}
    facts: dict[str, Any] = {"engine": None, "model": None, "unit_tokens": None}
    facts |= choices.as_json()
    timed = open_timing(sessions, opening, choices.timing)
    figures: dict[Layout, TimedFigures] = {}

    async def run() -> None:
        with replay_progress(sessions) as (starting, progress):
            async with opened(opening, choices.engine, starting) as target:
                facts.update(target.facts)
                replayed = Replay(
                    sessions,
                    model,
                    target.target,
                    live_replies=choices.live_replies,
                    overflow=choices.overflow,
                    concurrency=opening.concurrency,
                    time_scale=choices.time_scale,
                    num_warm_ups=choices.num_warm_ups,
                    num_repeats=choices.num_repeats,
                    progress=progress,
                    sent=timed.sent if timed else not_told,
                    runs=runs,
                )
                await replayed.run(choices.layouts)

    def has_calls() -> bool:
        return any(sums.num_calls for each in runs.values() for sums in each)

    interrupted = True
    try:
        asyncio.run(run())
        if timed:
            figures.update(timed.figures())
        interrupted = False
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    finally:
        if not interrupted or has_calls():
            if timed:
                facts["timing"] = timed.as_json(figures) if figures else None
            show(runs, figures, facts | {"interrupted": interrupted}, json_file)
    if not has_calls():
        raise DuramenError("no call could be replayed: see why they were skipped")


@contextmanager
def replay_progress(
    sessions: Sequence[Session],
) -> Iterator[tuple[Callable[[str], None], Callable[[Layout, Accounts], None]]]:
    """A bar on standard error: what to call while the engine starts, and what with each call."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    num_calls = sum(len(session.calls) for session in sessions)
    console = Console(stderr=True)
    with Progress(
        *columns, TimeElapsedColumn(), console=console, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task("loading", total=None)

        def starting(line: str) -> None:
            progress.update(task, description=line)

        def advance(layout: Layout, accounts: Accounts) -> None:
            num_done = accounts.num_calls + accounts.num_skipped.total()
            progress.update(task, description=layout.label, total=num_calls, completed=num_done)

        yield starting, advance


@asynccontextmanager
async def opened(
    opening: Opening, engine: EngineKind, starting: Callable[[str], None]
) -> AsyncIterator[Opened]:
    if engine is EngineKind.SIMULATE:
        yield open_model(opening)
        return
    if opening.upstream is None and opening.model_dir is None:
        raise ModelError("--engine live needs the model to start: --model DIR, or --upstream URL")
    async with open_live(opening, starting) as live:
        yield live


def open_timing(
    sessions: list[Session], opening: Opening, timing: Timing | None
) -> TimedReplay | None:
    if timing is None:
        return None
    return TimedReplay(timing, sessions, opening.unit or DEFAULT_UNIT, opening.kv_tokens)


def show(
    runs: dict[Layout, list[Accounts]],
    figures: dict[Layout, TimedFigures],
    facts: dict[str, Any],
    json_file: str | None,
) -> None:
    """The table, or JSON."""
    repeats = {layout: Repeats(each) for layout, each in runs.items()}
    facts = facts | {"device": device_name()}
    if json_file is None:
        console = Console()
        console.print(as_table(repeats, facts))
        if figures:
            console.print(as_timing_table(figures, facts["timing"]))
        return
    layouts = {layout.label: each.as_json() for layout, each in repeats.items()}
    write_json("replay", facts | {"layouts": layouts}, json_file)
