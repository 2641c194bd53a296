"""Options that several commands share."""

from typing import Annotated

import typer

JsonFile = Annotated[
    str | None,
    typer.Option("--json", metavar="FILE", help="Write JSON to FILE instead, - for stdout."),
]


def parse_size(text: str) -> int | None:
    """A number of blocks or tokens, at least 1; None for "inf"."""
    if text == "inf":
        return None
    if text.isdecimal() and int(text):
        return int(text)
    raise typer.BadParameter(f"{text} is neither a number, at least 1, nor inf")
