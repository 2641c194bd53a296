"""The chart of scripts/bench_itl.py: percentiles of each arm, live and as the simulator says."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

RANKS = ("p50", "p90", "p99")
COLOURS = ("#4c78a8", "#f58518", "#b3282d")


def draw_chart(result: dict[str, Any], path: Path) -> None:
    """`result` as bench_itl.py writes it in JSON."""
    with mpl.rc_context({"svg.hashsalt": "duramen", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(9.6, 4.2), layout="constrained")
        gaps, firsts = figure.subplots(1, 2)
        _panel(gaps, result["arms"], "itl_s", RANKS, "gap between tokens of the streams, s")
        gaps.axhline(result["target_ms"] / 1000, color="#888888", linestyle="--", linewidth=1)
        gaps.set_yscale("log")
        _panel(firsts, result["arms"], "ttft_s", RANKS[:2], "first token of the long prompts, s")
        firsts.set_ylim(bottom=0)
        gaps.legend(fontsize=8, frameon=False)
        figure.suptitle(f"{result['device']}; {result['engine']}; {result['model']}", fontsize=9)
        figure.savefig(path, format="svg", metadata={"Date": None})


def _panel(axes: Axes, arms: dict[str, Any], time: str, ranks: tuple[str, ...], title: str) -> None:
    places = range(len(arms))
    for rank, colour in zip(ranks, COLOURS, strict=False):
        live = [row[time][rank] for row in arms.values()]
        axes.plot(
            places, live, "o-", color=colour, linewidth=1, markersize=5, label=f"{rank}, live"
        )
        if all(row["simulated"] for row in arms.values()):
            told = [row["simulated"][time][rank] for row in arms.values()]
            axes.plot(
                places, told, "x:", color=colour, linewidth=1, markersize=6, label="simulated"
            )
    axes.set_xticks(places, [name.replace(" ", "\n", 1) for name in arms])
    axes.set_title(title, fontsize=9)
    axes.grid(axis="y", color="#dddddd", linewidth=0.5)
