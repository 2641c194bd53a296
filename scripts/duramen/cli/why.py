"""`duramen why`: which token broke the prefix, between two requests or in a whole log."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from duramen.cli.options import JsonFile, SkipUnreadable, parse_size
from duramen.cli.output import check_json_file, write_json
from duramen.cli.replay import find_folders, refuse, say_skipped
from duramen.cli.study import find_prices, wide_console
from duramen.cli.why_table import as_table
from duramen.experiments.importers.read import read_sessions
from duramen.experiments.opening import DEFAULT_UNIT, load_model
from duramen.experiments.why.explain import explain
from duramen.experiments.why.explained import ExplainedCall, totals
from duramen.experiments.why.gateway_session import explain_session, fetch_session
from duramen.experiments.why.log import Settings
from duramen.experiments.why.pair import explain_files
from duramen.layout.errors import DuramenError


def why(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[A B]", help="Two requests: bodies (OpenAI, Anthropic), text or token ids."
        ),
    ] = None,
    log: Annotated[
        list[Path] | None,
        typer.Option(metavar="PATH...", help="Recorded calls instead: what replay reads."),
    ] = None,
    session: Annotated[
        str | None, typer.Option(metavar="ID", help="A session of a running gateway instead.")
    ] = None,
    gateway: Annotated[
        str | None, typer.Option(metavar="URL", help="The gateway that has the session.")
    ] = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="DURAMEN_API_KEY", help="Key of the gateway.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="DIR", help="Model folder, or smollm2 (the default).")
    ] = None,
    tokenizer: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Tokenizer folder, if not the model's.")
    ] = None,
    chat_template: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Chat template, if not the model's.")
    ] = None,
    unit: Annotated[int, typer.Option(min=1, help="Match unit, tokens.")] = DEFAULT_UNIT,
    kv_tokens: Annotated[
        str, typer.Option(metavar="N|inf", help="Tokens that the cache holds.")
    ] = "inf",
    draft: Annotated[
        bool, typer.Option("--draft", help="The engine serves with a draft model.")
    ] = False,
    price: Annotated[
        str | None, typer.Option(metavar="PROVIDER/MODEL", help="Price the lost tokens.")
    ] = None,
    skip_unreadable: SkipUnreadable = False,
    json_file: JsonFile = None,
) -> None:
    """Name the token that broke the prefix, its cause, what it cost and how to mend it."""
    check_json_file(json_file)
    if (session is None) != (gateway is None):
        raise typer.BadParameter("--session ID and --gateway URL go together")
    facts: dict[str, Any] = {
        "unit_tokens": unit,
        "draft": draft,
        "kv_tokens": parse_size(kv_tokens),
    }
    if session is not None and gateway is not None:
        refuse({"A B": bool(files), "--log": bool(log)}, "is no part of a gateway's session")
        page = asyncio.run(fetch_session(gateway, session, api_key))
        show(list(explain_session(page, unit)), facts | {"model": None, "price": None}, json_file)
        return
    entry = find_prices([price], None)[0] if price else None
    settings = Settings(unit, facts["kv_tokens"], draft, entry)
    _, folder = find_folders(model, tokenizer, None)
    loaded = load_model(folder, chat_template)
    facts |= {"model": folder.name, "price": entry.key if entry else None}
    if log:
        skipped = say_skipped if skip_unreadable else None
        sessions = read_sessions([*log, *(files or [])], skipped)
        calls = list(explain(sessions, loaded, settings))
    else:
        calls = list(explain_files(*_two(files or []), loaded, settings))
    if not calls:
        raise DuramenError("these recordings hold no call to a model")
    show(calls, facts, json_file)


def _two(files: Sequence[Path]) -> tuple[Path, Path]:
    if len(files) != 2:
        raise typer.BadParameter(
            "name two requests, A and B, or a log: --log PATH, or --session ID --gateway URL"
        )
    return files[0], files[1]


def show(calls: Sequence[ExplainedCall], facts: dict[str, Any], json_file: str | None) -> None:
    """The table, or JSON."""
    if json_file is None:
        wide_console().print(as_table(calls, facts))
        return
    explained = {"calls": [call.as_json() for call in calls], "totals": totals(calls)}
    write_json("why", facts | explained, json_file)
