"""The command `duramen`. Each command is one file beside this one, imported only when it runs.

Exit codes: 0 done, 2 a mistake that one line on standard error explains, 130 interrupted. Any other
exception is a bug of ours and shows its traceback.
"""

import errno
import os
import sys
from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from duramen.layout.errors import DuramenError

INTERRUPTED = 130  # what typer exits with after Ctrl-C: 128 + SIGINT
DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class Entry(NamedTuple):
    """Where a command is (a function or a sub-app), and its line in the list of commands."""

    module: str
    attribute: str
    summary: str


COMMANDS = {
    "replay": Entry(
        "duramen.cli.replay",
        "replay",
        "Run recorded trajectories under prompt layouts, on a live engine or in the cache model.",
    ),
    "study": Entry(
        "duramen.cli.study", "app", "Say what each prompt layout costs on recorded trajectories."
    ),
    "simulate": Entry(
        "duramen.cli.simulate", "simulate", "Run a trace without text through a cache model."
    ),
    "model": Entry("duramen.cli.model", "app", "Fetch or make small models to try things with."),
    "serve": Entry(
        "duramen.cli.serve",
        "serve",
        "Serve a model over OpenAI's API, every conversation token-exact.",
    ),
    "kv": Entry(
        "duramen.cli.kv", "kv", "Say what a model's KV cache takes, from its config.json alone."
    ),
    "calibrate": Entry(
        "duramen.cli.calibrate",
        "calibrate",
        "Measure what a step costs on a running vLLM, and how far predictions are off.",
    ),
    "plan": Entry(
        "duramen.cli.plan",
        "plan",
        "Choose vLLM's settings for a trace and objectives, in the simulator.",
    ),
    "why": Entry(
        "duramen.cli.why", "why", "Name the token that broke a prefix, the cause and the mend."
    ),
    "lint": Entry(
        "duramen.cli.lint",
        "lint",
        "Name what will keep a cache from hitting, in prompts, request bodies and logs.",
    ),
    "verify": Entry(
        "duramen.cli.verify",
        "verify",
        "Try each assumption about the engine on a running vLLM, of whatever version.",
    ),
    "export": Entry(
        "duramen.cli.export", "export", "Write recorded trajectories in the forms of other tools."
    ),
    "key": Entry("duramen.cli.key", "key", "Make an API key for a tenant of the gateway."),
    "certify": Entry(
        "duramen.cli.certify",
        "certify",
        "Say which steps of a conversation a chat template keeps, and mend it where that is small.",
    ),
    "doctor": Entry(
        "duramen.cli.doctor",
        "doctor",
        "Show what is installed, what can run here, what is missing.",
    ),
}


class LazyGroup(TyperGroup):
    """Lists the commands from the table above; imports one only to run it or to show its help."""

    def __init__(self, **attributes: Any) -> None:
        listed = {name: TyperCommand(name, help=entry.summary) for name, entry in COMMANDS.items()}
        super().__init__(**attributes | {"commands": listed})

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        name, _, rest = super().resolve_command(ctx, args)
        assert name is not None  # only shell completion, which is off, resolves what is not there
        return name, load(name, COMMANDS[name]), rest


def load(name: str, entry: Entry) -> Any:
    """The command as typer runs it."""
    command = getattr(import_module(entry.module), entry.attribute)
    if isinstance(command, typer.Typer):
        return typer.main.get_group(command)
    single = typer.Typer(add_completion=False)
    single.command(name)(command)
    return typer.main.get_command(single)


app = typer.Typer(
    cls=LazyGroup, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
)


def show_version(wanted: bool) -> None:
    if wanted:
        print(f"duramen {version('duramen')}")
        raise typer.Exit


@app.callback()
def duramen(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show it, exit.")
    ] = False,
) -> None:
    """Prompt prefixes that stay stable token for token, in front of vLLM."""


def run() -> int:
    """Run the command line; returns the exit code."""
    try:
        exit_code: int = app(standalone_mode=False) or 0  # typer hands back the code of an Exit
    except DuramenError as error:
        print(f"duramen: error: {error}", file=sys.stderr)
        return 2
    except typer.TyperException as error:
        message = error.format_message()
        if message:  # empty where a group was called without a command and has shown its help
            print(f"duramen: error: {message}", file=sys.stderr)
        return 2
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        say_disk_full(error)
        return 2
    if exit_code == INTERRUPTED:
        print("duramen: interrupted", file=sys.stderr)
    return exit_code


def say_disk_full(error: OSError) -> None:
    """An error of a write, unlike one of an opening, names no file: mostly it is the output."""
    file = error.filename or "the output"
    print(f"duramen: error: cannot write {file}: {error.strerror}", file=sys.stderr)


def main() -> None:
    exit_code = run()
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has gone: nothing more to say
        discard_output()
        exit_code = 1
    except OSError as error:
        discard_output()
        if exit_code != 2:
            say_disk_full(error)
        exit_code = 2
    sys.exit(exit_code)


def discard_output() -> None:
    """What standard output still holds would fail once more at interpreter exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
