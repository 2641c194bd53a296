"""`duramen export`: recorded trajectories in the forms of other tools."""

import os
import sys
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from duramen.cli.options import ChatTemplateFile, SkipUnreadable, TokenizerFolder
from duramen.cli.output import check_json_file, write_text
from duramen.cli.replay import find_folders, load_sessions, refuse, say_skipped
from duramen.experiments.exporters.aiperf import to_inputs_json, to_raw_payloads
from duramen.experiments.exporters.atif import to_atif
from duramen.experiments.exporters.exported import Exported
from duramen.experiments.exporters.mooncake import to_mooncake
from duramen.experiments.exporters.otel import to_otel
from duramen.experiments.importers.mooncake import UNIT_TOKENS
from duramen.experiments.opening import load_model
from duramen.experiments.trajectory import Session
from duramen.layout.errors import DuramenError


class Form(Enum):
    MOONCAKE = "mooncake"
    AIPERF = "aiperf"
    ATIF = "atif"
    OTEL = "otel"


def export(
    paths: Annotated[list[Path], typer.Argument(help="Recorded trajectories: files or folders.")],
    to: Annotated[Form, typer.Option(help="Whose form.")],
    out: Annotated[
        Path,
        typer.Option(
            metavar="FILE|FOLDER",
            help="File to write. For aiperf and atif a new FOLDER, with a file per session, or one "
            "file if its name ends in .json.",
        ),
    ],
    model: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="For mooncake: model folder, or smollm2 (the default)."),
    ] = None,
    tokenizer: TokenizerFolder = None,
    chat_template: ChatTemplateFile = None,
    block_size: Annotated[
        int | None,
        typer.Option(min=1, help=f"For mooncake: tokens per block, {UNIT_TOKENS} by default."),
    ] = None,
    skip_unreadable: SkipUnreadable = False,
) -> None:
    """Write recorded trajectories in the form of another tool; say what that form cannot hold."""
    if to is not Form.MOONCAKE:
        only = {
            "--model": model is not None,
            "--tokenizer": tokenizer is not None,
            "--chat-template": chat_template is not None,
            "--block-size": block_size is not None,
        }
        refuse(only, "is for --to mooncake, which bears tokens instead of text")
    is_folder = to in (Form.AIPERF, Form.ATIF) and out.suffix != ".json"
    check_folder(out) if is_folder else check_json_file(str(out))
    sessions = load_sessions(paths, False, None, say_skipped if skip_unreadable else None)
    if to is Form.MOONCAKE:
        _, folder = find_folders(model, tokenizer, None)
        exported = to_mooncake(
            sessions, load_model(folder, chat_template), block_size or UNIT_TOKENS
        )
    else:
        exported = with_text(sessions, to, one_file=not is_folder)
    write(exported, out, is_folder=is_folder)
    print(f"{exported.num_calls} calls of {exported.num_sessions} sessions: {out}")
    for note in exported.notes:
        print(f"duramen: note: {note}", file=sys.stderr)


def with_text(sessions: Sequence[Session], form: Form, *, one_file: bool) -> Exported:
    if form is Form.AIPERF:
        return to_inputs_json(sessions) if one_file else to_raw_payloads(sessions)
    return to_atif(sessions) if form is Form.ATIF else to_otel(sessions)


def check_folder(folder: Path) -> None:
    """Raise DuramenError where a folder of files cannot be made: one with files in it, too, since
    what stands there already would be read along with what is written."""
    if folder.is_dir():
        if any(folder.iterdir()):
            raise DuramenError(f"{folder} is not empty: name a new folder, or a .json file")
        return
    if folder.exists():
        raise DuramenError(f"{folder} is a file: name a new folder, or a .json file")
    if not os.access(folder.parent, os.W_OK):
        raise DuramenError(f"cannot make {folder}: its folder is not there or not writable")


def write(exported: Exported, out: Path, *, is_folder: bool) -> None:
    if is_folder:
        out.mkdir(exist_ok=True)
        for file in exported.files:
            write_text(file.text, out / file.name)
        return
    if len(exported.files) > 1:
        raise DuramenError(
            f"these recordings are {len(exported.files)} trajectories, one file each: "
            f"name a folder instead of {out}"
        )
    write_text(exported.files[0].text, out)
