"""`duramen study layouts`: what each prompt layout costs on recorded trajectories."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from duramen.cli.main import INTERRUPTED
from duramen.cli.options import (
    ChatTemplateFile,
    ModelFolder,
    SkipUnreadable,
    TokenizerFolder,
    parse_size,
)
from duramen.cli.output import as_text, with_head, write_text
from duramen.cli.replay import find_folders, load_sessions, say_skipped
from duramen.cli.study_table import as_table
from duramen.experiments.layouts.catalogue import Layout, LayoutName
from duramen.experiments.opening import load_model
from duramen.experiments.prices.book import Entry
from duramen.experiments.prices.own_gpu import TimeModel, load_gpus, packaged_gpus
from duramen.experiments.prices.read import load_book, packaged_book
from duramen.experiments.study.arms import arms_of
from duramen.experiments.study.curves import curves, measured_shares, rates_of, typical_task
from duramen.experiments.study.page.page import render
from duramen.experiments.study.parts import Parts, digest_of
from duramen.experiments.study.report import Report
from duramen.experiments.study.results import LayoutResult
from duramen.experiments.study.schedule import Pace, with_times
from duramen.experiments.study.study import Study
from duramen.layout.errors import DuramenError, ModelError, PriceError
from duramen.layout.tokenizer_files import read_json
from duramen.serving.kv.arch import Architecture
from duramen.serving.kv.footprint import Footprint

VARIANTS = ["zoned:step=4", "zoned:change=tombstone", "zoned:align=528"]
LAYOUTS = [name.value for name in LayoutName] + VARIANTS
UNITS = [16, 32, 128, 528, 2096]
PRICES = [
    "anthropic/claude-sonnet-5-5",
    "anthropic/claude-sonnet-5-5+1h",
    "deepseek/deepseek-v4-pro",
    "google/gemini-4-hydrogen",
    "mistral/mistral-large-4",
    "openai/gpt-5.4",
    "openai/gpt-6.2-sol",
]

app = typer.Typer(no_args_is_help=True)


@app.callback()
def study() -> None:
    """Compare prompt layouts, or other choices, on recorded trajectories."""


@app.command()
def layouts(
    paths: Annotated[
        list[Path] | None, typer.Argument(help="Recorded trajectories with text: files or folders.")
    ] = None,
    demo: Annotated[bool, typer.Option("--demo", help="Add the sessions of the package.")] = False,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Where the page and its data go.")
    ] = Path("duramen-study"),
    layout: Annotated[
        list[str], typer.Option(metavar="NAME", help="Layout; may be given several times.")
    ] = LAYOUTS,
    unit: Annotated[
        list[int], typer.Option(min=1, help="Match unit, tokens; several times. The first is main.")
    ] = UNITS,
    kv_tokens: Annotated[
        list[str], typer.Option(metavar="N", help="Pool of N tokens, beside inf; several times.")
    ] = [],  # noqa: B006
    price: Annotated[
        list[str],
        typer.Option(metavar="PROVIDER/MODEL", help="Model to price, or all; several times."),
    ] = PRICES,
    prices: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Prices of yours: our YAML, or LiteLLM's JSON map."),
    ] = None,
    gpus: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="GPUs of yours, in the form of own_gpus.yaml."),
    ] = None,
    model: ModelFolder = None,
    tokenizer: TokenizerFolder = None,
    chat_template: ChatTemplateFile = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Sessions at once.")] = 1,
    gap_s: Annotated[
        float, typer.Option("--gap", metavar="S", help="Seconds between calls without a time.")
    ] = 10.0,
    limit: Annotated[int | None, typer.Option(min=1, help="Read at most so many sessions.")] = None,
    skip_unreadable: SkipUnreadable = False,
) -> None:
    """Lay recorded trajectories out in every way and say what each costs.

    Nothing runs: hits come from the exact cache model, seconds and dollars from dated figures.
    Writes index.html, study.json, calls.parquet and costs.parquet. A run that was cut short goes
    on where it was when it is started again with the same choices.
    """
    chosen = list(dict.fromkeys(map(Layout.parse, layout)))
    entries = find_prices(price, prices)
    arms = arms_of(
        list(dict.fromkeys(unit)), list(map(parse_size, kv_tokens)), draft=True, radix=True
    )
    skipped: list[str] = []

    def skip(reason: str) -> None:
        say_skipped(reason)
        skipped.append(reason)

    read = load_sessions(paths or [], demo, limit, skip if skip_unreadable else None)
    sessions = with_times(read, Pace(concurrency, gap_s))
    model_dir, tokenizer_dir = find_folders(model, tokenizer, None)
    loaded = load_model(tokenizer_dir, chat_template)
    devices = load_gpus(gpus) if gpus else packaged_gpus()
    choices = [[asdict(each) for each in arms], [e.key for e in entries], list(map(str, entries))]
    digest = digest_of(sessions, loaded, [*choices, str(devices)])
    parts = Parts.open(make_folder(out), digest)
    num_calls = sum(len(session.calls) for session in sessions)
    study = Study(sessions, loaded, arms, devices, entries, parts)
    try:
        with study_progress(num_calls) as progress:
            results = study.run(chosen, progress)
    except KeyboardInterrupt:
        print("duramen: the same command goes on where this one was", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    facts = {
        "engine": "cache model of vLLM 0.32",
        "model": tokenizer_dir.name,
        "unit_tokens": arms[0].unit,
        "device": None,
        "skipped_files": skipped,
        "devices": {name: device_json(device) for name, device in devices.items()},
    }
    config = read_json((model_dir or tokenizer_dir) / "config.json", required=False)
    write_all(report_of(study, results, facts, kv_bytes_of(config)), out)
    wide_console().print(as_table(results, arms, [entry.name for entry in entries][:2], out))


def kv_bytes_of(config: dict[str, Any]) -> int | None:
    """Per token; None where the config is not understood, or it depends on a sequence's length."""
    try:
        footprint = Footprint.of(Architecture.from_config(config))
    except ModelError:
        return None
    return footprint.bytes_per_token if footprint.is_proportional else None


def report_of(
    study: Study, results: Sequence[LayoutResult], facts: dict[str, Any], kv_bytes: int | None
) -> Report:
    """Raises DuramenError where no layout has a call."""
    if not any(result.num_calls for result in results):
        reasons = (reason for result in results for reason in result.num_refused)
        raise DuramenError(f"no call could be laid out: {next(reasons, 'there is none')}")
    prices = {e.name: {"date": e.date, "caveat": e.caveat or None} for e in study.entries}
    task = typical_task(results)
    drawn = curves(task, rates_of(study.entries), measured_shares(results)) if task else {}
    return Report(facts, study.sessions, study.arms, results, prices, drawn, kv_bytes)


def wide_console() -> Console:
    """A pipe or a file has no width of its own: figures are not cut there."""
    console = Console()
    return console if console.is_terminal else Console(width=max(console.width, 140))


def find_prices(names: Sequence[str], file: Path | None) -> list[Entry]:
    """The entries to price. Raises PriceError for one that is not in the book."""
    book = load_book(file) if file else packaged_book()
    if "all" not in names and file and list(names) == PRICES:
        if len(book.names()) > 20:
            raise PriceError(
                f"{file} prices {len(book.names()):,} models: choose with --price PROVIDER/MODEL"
            )
        names = book.names()
    if "all" in names:
        for entry in filter(lacks_write, book):
            say_skipped(f"{entry.name} has no price '{entry.rules.write}'")
        return [entry for entry in book if not lacks_write(entry)]
    chosen = [book.entry(name) for name in dict.fromkeys(names)]
    for entry in filter(lacks_write, chosen):
        raise PriceError(
            f"{entry.name} has no price '{entry.rules.write}', which its cache bills: "
            "add it to the price file"
        )
    return chosen


def lacks_write(entry: Entry) -> bool:
    write = entry.rules.write
    return write is not None and getattr(entry.tariff.prices, write) is None


def device_json(device: TimeModel) -> dict[str, Any]:
    figures = asdict(device)
    return {**figures, "usd_per_hour": str(device.usd_per_hour), "assumed": list(device.assumed)}


def make_folder(out: Path) -> Path:
    if out == Path():
        raise DuramenError("--out needs a folder of its own for the page and its data")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DuramenError(f"cannot write to {out}: {error.strerror}") from error
    return out


@contextmanager
def study_progress(num_calls: int) -> Iterator[Callable[[Layout, int], None]]:
    """A bar on standard error, for the layout that runs."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    with Progress(
        *columns, TimeElapsedColumn(), console=console, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("loading", total=num_calls)

        def progress(layout: Layout, num_done: int) -> None:
            bar.update(task, description=layout.label, completed=num_done)

        yield progress


def write_all(report: Report, out: Path) -> None:
    command, study = "study layouts", report.as_json()
    try:
        report.write_parquet(out / "calls.parquet", out / "costs.parquet")
    except OSError as error:
        raise DuramenError(f"cannot write to {out}: {error.strerror}") from error
    write_text(as_text(command, study), out / "study.json")
    write_text(render(with_head(command, study)), out / "index.html")
