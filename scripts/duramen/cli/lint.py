"""`duramen lint`: what will keep a prompt cache from hitting, in prompts, bodies and logs."""

import json
import sys
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from duramen.cli.lint_lines import as_lines
from duramen.cli.options import (
    ChatTemplateFile,
    JsonFile,
    ModelFolder,
    SkipUnreadable,
    TokenizerFolder,
)
from duramen.cli.output import check_json_file, write_json, write_text
from duramen.cli.replay import find_folders, say_skipped
from duramen.experiments.layouts.model import Model
from duramen.experiments.lint.junit import as_junit
from duramen.experiments.lint.lint import Linter, Report
from duramen.experiments.lint.page import as_page
from duramen.experiments.lint.sarif import as_sarif
from duramen.experiments.opening import load_model


def lint(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PATH...]", help="Prompt files, request bodies, recorded calls, folders."
        ),
    ] = None,
    sarif: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write SARIF 2.1.0 to FILE, too.")
    ] = None,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write JUnit XML to FILE, too.")
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(metavar="RULE", help="Leave a rule out; may be repeated.")
    ] = None,
    model: ModelFolder = None,
    tokenizer: TokenizerFolder = None,
    chat_template: ChatTemplateFile = None,
    unit: Annotated[
        int | None,
        typer.Option(min=1, help="Match unit, tokens: is each body's head at least that long?"),
    ] = None,
    skip_unreadable: SkipUnreadable = False,
    rules: Annotated[
        bool, typer.Option("--rules", help="Show every rule with examples, as Markdown.")
    ] = False,
    json_file: JsonFile = None,
) -> None:
    """Name what will keep a prompt cache from hitting; exit with 1 where something will."""
    if rules:
        sys.stdout.write(as_page())
        return
    for file in (sarif, junit):
        check_json_file(None if file is None else str(file))
    check_json_file(json_file)
    if not paths:
        raise typer.BadParameter("name files or folders to lint, or --rules")

    @cache
    def loaded() -> Model:
        return load_model(find_folders(model, tokenizer, None)[1], chat_template)

    skipped = say_skipped if skip_unreadable else None
    report = Linter(loaded, unit, frozenset(ignore or ()), skipped).lint(paths)
    if sarif is not None:
        found = as_sarif(report, version("duramen"), Path.cwd())
        write_text(json.dumps(found, indent=2) + "\n", sarif)
    if junit is not None:
        write_text(as_junit(report), junit)
    show(report, json_file)
    if report.num_failing:
        raise typer.Exit(1)


def show(report: Report, json_file: str | None) -> None:
    """Lines, or JSON."""
    if json_file is not None:
        write_json("lint", report.as_json(), json_file)
        return
    console = Console(soft_wrap=True, highlight=False)
    for line in as_lines(report):
        console.print(line)
