"""`duramen model`: get the real demo model, or make a tiny random one."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from duramen.serving.models import fetch, tiny

app = typer.Typer(no_args_is_help=True, help="Models for development, CI and the demo.")


@app.command("fetch")
def fetch_model(name: Annotated[str, typer.Argument(help="smollm2")]) -> None:
    """Download a model into the cache, convert it, and print its directory."""
    console = Console(stderr=True)
    with console.status(f"fetching {name}") as status:
        directory = fetch(name, status.update)
    print(directory)


@app.command("tiny")
def tiny_model(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="a new directory")],
    positions: Annotated[int, typer.Option(help="context length, tokens")] = 131_072,
) -> None:
    """Make a two-layer random Llama with SmolLM2's tokenizer, and print its directory."""
    console = Console(stderr=True)
    with console.status(f"making {directory}") as status:
        print(tiny(directory, positions, status.update))
