"""`duramen certify`: does a chat template keep the prompt that was sent, and how could it?"""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from duramen.cli.certify_bounded import certified_within
from duramen.cli.certify_table import as_table, legend, of_one, reasons
from duramen.cli.lint_lines import printable
from duramen.cli.options import JsonFile
from duramen.cli.output import check_json_file, write_json, write_text
from duramen.experiments.gallery import gallery
from duramen.layout.certify.certified import Certified
from duramen.layout.certify.mend import Mend
from duramen.layout.certify.transitions import TRANSITIONS
from duramen.layout.errors import DuramenError, TemplateError
from duramen.layout.template import load_template

WIDTH = 200  # of the table where the output is no terminal


def certify(
    model: Annotated[
        Path | None,
        typer.Argument(metavar="[MODEL_DIR]", help="A model's folder: template and tokenizer."),
    ] = None,
    tokenizer: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder with tokenizer.json: tokens, BOS and seams, too."),
    ] = None,
    chat_template: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The template, instead of the folder's own.")
    ] = None,
    every: Annotated[
        Path | None,
        typer.Option("--all", metavar="DIR", help="Every .jinja file of a folder, in one table."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write mended templates here, as NAME.mended.jinja."),
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the table and the reasons as a page.")
    ] = None,
    require: Annotated[
        list[str] | None,
        typer.Option(metavar="STEP", help="Exit with 1 where it is not kept; may be repeated."),
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Say for each step of a conversation whether a template keeps the prompt that was sent."""
    check_json_file(json_file)
    required = _steps(require or ())
    sources = _sources(model, tokenizer, chat_template, every)
    folder = tokenizer if tokenizer is not None else model
    console = Console(stderr=True)
    found: dict[str, Certified] = {}
    with console.status("") as status:
        for name, source in sources.items():
            status.update(f"certifying {name}")
            found[name] = _certified(source, folder, alone=every is None)
    written = _write_mended(found, out)
    if markdown is not None:
        write_text(gallery(found), markdown)
    if json_file is not None:
        write_json("certify", as_json(found), json_file)
    else:
        _print(found, written)
    outcomes = [one.outcomes[step] for one in found.values() for step in required]
    if any(outcome.verdict != "kept" for outcome in outcomes):
        raise typer.Exit(1)


def _steps(names: Sequence[str]) -> Sequence[str]:
    known = [transition.name for transition in TRANSITIONS]
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, n=1) or known
            raise DuramenError(f"no step is called {name!r}: {', '.join(near)}")
    return names


def as_json(found: Mapping[str, Certified]) -> dict[str, Any]:
    return {
        "templates": {name: one.verdicts_as_json() for name, one in found.items()},
        "certificates": {name: one.as_json() for name, one in found.items()},
    }


def _sources(
    model: Path | None, tokenizer: Path | None, chat_template: Path | None, every: Path | None
) -> dict[str, str]:
    """Name of a template -> its source."""
    if every is not None:
        if model is not None or chat_template is not None:
            raise DuramenError("--all DIR takes neither MODEL_DIR nor --chat-template beside it")
        return _folder(every)
    folder = model if model is not None else tokenizer
    if chat_template is not None:
        return {chat_template.name: load_template(folder or Path(), chat_template)}
    if folder is None:
        raise DuramenError(
            "name what to certify: MODEL_DIR, --chat-template FILE (with --tokenizer DIR for "
            "tokens, too) or --all DIR"
        )
    own = "chat_template.jinja"
    name = own if (folder / own).exists() else "tokenizer_config.json"
    return {name: load_template(folder, has_tools=True)}


def _folder(directory: Path) -> dict[str, str]:
    if not directory.is_dir():
        raise DuramenError(f"{directory} is no folder: name one that holds .jinja files")
    files = sorted(path for path in directory.glob("*.jinja") if path.is_file())
    files = [path for path in files if not path.name.endswith(".mended.jinja")]
    if not files:
        raise DuramenError(f"{directory} holds no .jinja file")
    return {path.name: load_template(directory, path) for path in files}


def _certified(source: str, folder: Path | None, *, alone: bool) -> Certified:
    found = certified_within(source, folder)
    if alone and found.refused is not None:
        raise TemplateError(found.refused)
    return found


def _write_mended(found: Mapping[str, Certified], out: Path | None) -> dict[str, Path]:
    """Name of a template -> the file with its mend."""
    if out is None:
        return {}
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DuramenError(f"cannot make {out}: {error.strerror}") from None
    written = {}
    for name, one in found.items():
        if one.mend is not None:
            written[name] = out / f"{name.removesuffix('.jinja')}.mended.jinja"
            write_text(f"{about(name, one.mend)}\n{one.mend.source}", written[name])
    return written


def about(name: str, mend: Mend) -> str:
    """A comment of a mended template: by what, from which file and why it was changed. With
    trim_blocks, which chat templates are rendered with, it and its line end write nothing."""
    changes = "; ".join(f"line {change.line}: {change.rule}" for change in mend.changes)
    said = (
        f"Mended by duramen {version('duramen')} from {name}, to keep the prompts that were sent "
        f"({', '.join(mend.gained)}): {changes}"
    )
    return f"{{# {printable(said).replace('#}', '# }')} #}}"


def _print(found: Mapping[str, Certified], written: Mapping[str, Path]) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    if len(found) == 1:
        console.print(of_one(*found.values()))
    else:
        console.print(as_table(found))
        for line in legend():
            console.print(line)
    for name, one in found.items():
        for line in reasons(name, one, written.get(name)):
            console.print(line, markup=False, highlight=False)
