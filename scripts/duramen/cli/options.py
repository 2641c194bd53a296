"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

ModelFolder = Annotated[
    str | None, typer.Option(metavar="DIR", help="Model folder, or smollm2 (the default).")
]

TokenizerFolder = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Tokenizer folder, if not the model's.")
]

ChatTemplateFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Chat template, if not the model's.")
]

JsonFile = Annotated[
    str | None,
    typer.Option("--json", metavar="FILE", help="Write JSON to FILE instead, - for stdout."),
]

SkipUnreadable = Annotated[
    bool,
    typer.Option(
        "--skip-unreadable",
        help="Leave out what is no recording, files and broken lines, and say so.",
    ),
]


MAX_SIZE = 10**9  # of tokens or blocks: more is as good as inf


def parse_size(text: str) -> int | None:
    """A number of blocks or tokens, at least 1; None for "inf"."""
    if text == "inf":
        return None
    if text.isdecimal() and 0 < int(text) <= MAX_SIZE:
        return int(text)
    raise typer.BadParameter(f"{text} is neither a number, 1 to {MAX_SIZE}, nor inf")
