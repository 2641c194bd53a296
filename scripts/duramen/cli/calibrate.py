"""`duramen calibrate`: from a running vLLM to a timing profile with its error on held-out calls."""

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer
import yaml
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from duramen.cli.main import INTERRUPTED
from duramen.cli.output import check_json_file, write_text
from duramen.cli.replay import find_folders
from duramen.cli.serve_checks import check_upstreams
from duramen.experiments.calibrate.calibrate import Subject
from duramen.experiments.calibrate.calibrate import calibrate as measure
from duramen.experiments.calibrate.measure import Report
from duramen.layout.errors import DuramenError
from duramen.layout.tokenizer_files import read_json
from duramen.serving.conditions import Watch, probe_rates, watch_cpu, watch_gpu
from duramen.serving.gateway.addresses import is_loopback
from duramen.serving.kv.arch import Architecture
from duramen.serving.probe import device_name
from duramen.serving.timing_profile import Errors, Flag, TimingProfile
from duramen.serving.vllm.engine import VllmEngine, attach, launch
from duramen.serving.vllm.launch import VllmConfig
from duramen.serving.vllm.version import installed_build

MINUTES = 5.0


@dataclass(frozen=True)
class Choices:
    """`upstream` None: vLLM is started on `model_dir`. `watch` None: the device is elsewhere."""

    upstream: str | None
    api_key: str | None
    model_dir: Path | None
    flags: Mapping[str, Flag]
    device: str
    watch: Watch | None
    minutes: float
    force: bool


def calibrate(
    out: Annotated[Path, typer.Option(metavar="PROFILE", help="Timing profile to write, YAML.")],
    upstream: Annotated[
        str | None, typer.Option(metavar="URL", help="A vLLM that runs and has nothing to do.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Model folder, or smollm2: what to start, or what runs."),
    ] = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="DURAMEN_API_KEY", help="Key of the upstream.")
    ] = None,
    minutes: Annotated[float, typer.Option(min=0.1, help="How long to measure.")] = MINUTES,
    flag: Annotated[
        list[str],
        typer.Option(metavar="NAME=VALUE", help="One of vLLM's that it does not say itself."),
    ] = [],  # noqa: B006
    device: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of an upstream on another machine.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Measure although the device is busy; marked so.")
    ] = False,
) -> None:
    """Measure what a step of vLLM costs, and how far predictions of held-out calls are off.

    Without --upstream it starts vLLM on --model. Times are those of a device that does nothing
    else: where it does, nothing is written.
    """
    check_json_file(str(out))
    model_dir = None if model is None else find_folders(model, None, None)[0]
    if upstream is not None:
        (upstream,) = check_upstreams([upstream])
    elif model_dir is None:
        raise DuramenError("name a server that runs, --upstream URL, or what to start, --model DIR")
    watch = find_watch(upstream, device)
    choices = Choices(
        upstream,
        api_key,
        model_dir,
        dict(map(parse_flag, flag)),
        find_device(watch, device),
        watch,
        minutes,
        force,
    )
    try:
        with calibrate_progress() as report:
            profile = asyncio.run(carry_out(choices, report))
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    write_text(profile.as_yaml(), out)
    Console().print(as_table(profile, out))


def parse_flag(text: str) -> tuple[str, Flag]:
    name, _, value = text.partition("=")
    read = yaml.safe_load(value) if value else None
    if not name or read is None or not isinstance(read, Flag):
        raise typer.BadParameter(f"--flag {text} is no flag: write it like max_num_seqs=128")
    return name.strip("-").replace("-", "_"), read


def find_watch(upstream: str | None, device: str | None) -> Watch | None:
    """Raises DuramenError for an upstream elsewhere whose device has no name."""
    if upstream is None:
        return watch_cpu() if installed_build()[0] == "cpu" else watch_gpu(os.environ)
    if is_loopback(urlsplit(upstream).hostname or ""):
        return watch_gpu(os.environ)
    if device is None:
        raise DuramenError(
            f"{upstream} is another machine, whose device cannot be seen from here: name it with "
            "--device, a GPU as nvidia-smi -L does"
        )
    return None


def find_device(watch: Watch | None, device: str | None) -> str:
    if device is not None:
        return device
    return device_name() if watch is None or watch.gpu is None else watch.gpu.name


async def carry_out(choices: Choices, report: Report) -> TimingProfile:
    """Raises DuramenError where the device is busy, unless that is to be marked alone."""
    watch = choices.watch
    before = None if watch is None else watch.read()
    busy = None if watch is None else watch.busy(has_server=choices.upstream is not None)
    refuse_busy(busy, choices)
    report("probing the device", 0.0)
    rates = await asyncio.to_thread(probe_gpu, choices, busy)
    engine = await open_engine(choices, lambda line: report(line, 0.0))
    try:
        profile = await measure(engine, await subject(engine, choices), choices.minutes, report)
        after = None if watch is None else watch.read()
        busy = busy or (None if watch is None else watch.joined())
    finally:
        await engine.close()
    refuse_busy(busy, choices)
    seen = {"before": before, "after": after, "busy": busy, "rates": rates}
    return replace(profile, conditions={**profile.conditions, **seen})


def probe_gpu(choices: Choices, busy: str | None) -> dict[str, Any] | None:
    """None where the GPU holds a server already, or is busy; on a CPU the steps say it all."""
    if choices.watch is None or choices.watch.gpu is None or busy is not None:
        return None
    if choices.upstream is not None or choices.model_dir is None:
        return None
    return probe_rates(choices.model_dir, "cuda")


def refuse_busy(busy: str | None, choices: Choices) -> None:
    if busy is not None and not choices.force:
        raise DuramenError(
            f"{busy}: nothing is written, since the figures would not be the device's alone; wait, "
            "or take them all the same, marked, with --force"
        )


async def open_engine(choices: Choices, starting: Callable[[str], None]) -> VllmEngine:
    if choices.upstream is not None:
        return await attach(choices.upstream, api_key=choices.api_key)
    assert choices.model_dir is not None
    return await launch(VllmConfig(choices.model_dir), starting)


async def subject(engine: VllmEngine, choices: Choices) -> Subject:
    """Raises DuramenError for a flag that the server has otherwise."""
    said = await engine.flags()
    for name, value in choices.flags.items():
        if said.get(name, value) != value:
            raise DuramenError(f"--flag {name}={value}: the server says that it is {said[name]}")
    folder = choices.model_dir
    config = read_json(folder / "config.json") if folder is not None else None
    return Subject(
        device=choices.device,
        model=plain_name(engine.info.model) if folder is None else folder.resolve().name,
        flags={**choices.flags, **said},
        arch=None if config is None else Architecture.from_config(config),
    )


def plain_name(served: str) -> str:
    """Of a model that is served under the path of its folder, the folder."""
    return Path(served).name if served.startswith("/") else served


@contextmanager
def calibrate_progress() -> Iterator[Report]:
    """A bar on standard error: how much of the time is over."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("connecting", total=1.0)
        yield lambda line, share: bar.update(task, description=line, completed=share)


def as_table(profile: TimingProfile, out: Path) -> Table:
    title = f"{profile.model} on {profile.device}, {profile.engine}: {out}"
    table = Table("", "", title=escape(title), title_justify="left", show_header=False)
    for name, seconds in asdict(profile.step).items():
        table.add_row(f"step: {name.removesuffix('_s').replace('_', ' ')}", as_time(seconds))
    table.add_row("each call, beside its steps", as_time(profile.call_fixed_s))
    if profile.ttft is not None:
        shares = f"{profile.ttft.linear_mfu:.0%} / {profile.ttft.attention_mfu:.0%}"
        table.add_row("of the peak: matrices / attention", shares)
    if (held_out := profile.validation) is not None:
        at_once = " and ".join(map(str, held_out.at_once))
        table.add_row("held out", f"{held_out.num_calls} calls, {at_once} at once")
        table.add_row("TTFT: error (noise), median and p90", as_errors(held_out.ttft))
        table.add_row("ITL: error (noise), median and p90", as_errors(held_out.itl))
    for name, value in rows_of_conditions(profile.conditions):
        table.add_row(name, value)
    return table


def rows_of_conditions(conditions: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    outliers, times = conditions["num_outliers"], conditions["num_times"]
    yield "rounds", f"{conditions['num_rounds']} in {conditions['minutes']} minutes"
    yield "left out", f"{outliers} of {times} times, {conditions['num_scenes_thrown_out']} scenes"
    if (before := conditions["before"]) is not None:
        yield "load average before", f"{before['load_average']} on {before['num_cores']} cores"
    if conditions["busy"] is not None:
        yield "busy", f"[red]{escape(conditions['busy'])}[/red]"


def as_time(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 0.1:
            return f"{seconds * factor:,.3g} {unit}"
    return f"{seconds * 1e9:,.3g} ns"


def as_errors(errors: Errors) -> str:
    median = f"{errors.median:.1%} ({errors.noise_median:.1%})"
    return f"{median}, {errors.p90:.1%} ({errors.noise_p90:.1%})"
