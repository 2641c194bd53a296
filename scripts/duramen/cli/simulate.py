"""`duramen simulate`: run traces without text through a cache model."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from duramen.cli.options import JsonFile, parse_size
from duramen.cli.output import write_json
from duramen.experiments.simulate import Semantics, Simulation
from duramen.experiments.simulate import simulate as run


def simulate(
    traces: Annotated[
        list[Path],
        typer.Argument(
            metavar="TRACE...",
            help="Mooncake, Weka, TraceLab or token_ids: files or folders, one form at a time.",
        ),
    ],
    capacity_blocks: Annotated[
        str, typer.Option(help="Blocks that the cache holds; inf evicts nothing.")
    ] = "inf",
    semantics: Annotated[
        Semantics, typer.Option(help="Whose rules the cache follows; radix needs token_ids.")
    ] = Semantics.TRACE,
    unit: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Tokens per block. By default 512 for Mooncake, 64 for Weka (or a multiple), "
            "16 for token ids (a page of 1 with radix).",
        ),
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Run traces without text through a cache model: in order of time, file after file."""
    simulation = run(traces, semantics, parse_size(capacity_blocks), unit)
    if json_file is None:
        console = Console()
        console.print(as_table(simulation, traces))
        for note in simulation.notes:
            console.print(f"note: {note}", markup=False, highlight=False)
        return
    write_json("simulate", as_json(simulation), json_file)


def as_json(simulation: Simulation) -> dict[str, Any]:
    skipped = {"larger_than_pool": simulation.num_skipped} if simulation.num_skipped else {}
    return {
        "semantics": simulation.semantics.value,
        "unit_tokens": simulation.unit_tokens,
        "capacity_blocks": simulation.capacity_blocks,
        "num_sessions": simulation.num_sessions,
        "num_requests": simulation.num_requests,
        "num_skipped": skipped,
        "num_blocks": simulation.num_blocks,
        "block_hit_rate": simulation.block_hit_rate,
        "prompt_tokens": simulation.prompt_tokens,
        "cached_tokens": simulation.cached_tokens,
        "token_hit_rate": simulation.token_hit_rate,
        "output_tokens": simulation.output_tokens,
        "notes": list(simulation.notes),
        "elapsed_s": simulation.elapsed_s,
    }


def as_table(simulation: Simulation, traces: Sequence[Path]) -> Table:
    more = f" and {len(traces) - 1} more" if len(traces) > 1 else ""
    capacity = simulation.capacity_blocks
    table = Table(
        "",
        "",
        title=escape(f"{traces[0].name}{more}, {simulation.semantics.value} semantics"),
        title_justify="left",
        show_header=False,
    )
    table.add_row("capacity", "infinite" if capacity is None else f"{capacity:,} blocks")
    table.add_row("block", f"{simulation.unit_tokens} tokens")
    if simulation.num_sessions is not None:
        table.add_row("sessions", f"{simulation.num_sessions:,}")
    table.add_row("requests", f"{simulation.num_requests:,}")
    if simulation.num_skipped:
        table.add_row("skipped, larger than the pool", f"[red]{simulation.num_skipped:,}[/red]")
    table.add_row("blocks", f"{simulation.num_blocks:,}")
    table.add_row("block hit rate", as_percent(simulation.block_hit_rate))
    table.add_row("prompt tokens", f"{simulation.prompt_tokens:,}")
    table.add_row("uncached tokens", f"{simulation.prompt_tokens - simulation.cached_tokens:,}")
    table.add_row("token hit rate", as_percent(simulation.token_hit_rate))
    table.add_row("elapsed", f"{simulation.elapsed_s:.3f} s")
    return table


def as_percent(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:.2%}"
