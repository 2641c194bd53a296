"""`duramen why`: which token broke the prefix, between two requests or in a whole log."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from duramen.cli.options import (
    ChatTemplateFile,
    JsonFile,
    ModelFolder,
    SkipUnreadable,
    TokenizerFolder,
    parse_size,
)
from duramen.cli.output import check_json_file, write_json, write_text
from duramen.cli.replay import find_folders, refuse, say_skipped, saying_notes
from duramen.cli.study import PRICES, find_prices, wide_console
from duramen.cli.what_if_table import show_what_if
from duramen.cli.why_table import as_table
from duramen.experiments.importers.read import read_sessions
from duramen.experiments.opening import DEFAULT_UNIT, load_model
from duramen.experiments.prices.own_gpu import packaged_gpus
from duramen.experiments.why.explain import explain
from duramen.experiments.why.explained import ExplainedCall, totals
from duramen.experiments.why.gateway_session import explain_session, fetch_session
from duramen.experiments.why.log import Settings
from duramen.experiments.why.notices import notices
from duramen.experiments.why.page.page import render
from duramen.experiments.why.pair import explain_files
from duramen.experiments.why.what_if.bills import Payers
from duramen.experiments.why.what_if.plan import Plan
from duramen.experiments.why.what_if.what_if import what_if as ask_what_if
from duramen.layout.errors import DuramenError

GATEWAY = "http://127.0.0.1:8080"  # where `duramen serve` listens


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
        str | None,
        typer.Option(
            metavar="URL", help=f"The gateway that has the session ({GATEWAY} if not named)."
        ),
    ] = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="DURAMEN_API_KEY", help="Key of the gateway.")
    ] = None,
    model: ModelFolder = None,
    tokenizer: TokenizerFolder = None,
    chat_template: ChatTemplateFile = None,
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
    what_if: Annotated[
        str | None,
        typer.Option(
            metavar="PLAN",
            help="What a change would cost now and save later: drop-tool-outputs:k=3, "
            "truncate:tokens=500, move-clock or sort-tools.",
        ),
    ] = None,
    tables: Annotated[
        bool, typer.Option("--tables", help="With --what-if: every payer for each session, too.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page for the browser, too.")
    ] = None,
    skip_unreadable: SkipUnreadable = False,
    json_file: JsonFile = None,
) -> None:
    """Name the token that broke the prefix, its cause, what it cost and how to mend it."""
    check_json_file(json_file)
    check_json_file(None if out is None else str(out))
    if session is None and gateway is not None:
        raise typer.BadParameter("--gateway URL goes with --session ID")
    facts: dict[str, Any] = {
        "unit_tokens": unit,
        "draft": draft,
        "kv_tokens": parse_size(kv_tokens),
    }
    plan = None if what_if is None else Plan.parse(what_if)
    if plan is not None and (not log or out is not None):
        raise typer.BadParameter("--what-if goes with --log PATH, and writes no --out")
    if session is not None:
        refuse({"A B": bool(files), "--log": bool(log)}, "is no part of a gateway's session")
        page = asyncio.run(fetch_session(gateway or GATEWAY, session, api_key))
        facts |= {"model": None, "price": None}
        show(list(explain_session(page, unit)), facts, json_file, out)
        return
    entry = find_prices([price], None)[0] if price else None
    settings = Settings(unit, facts["kv_tokens"], draft, entry)
    _, folder = find_folders(model, tokenizer, None)
    loaded = load_model(folder, chat_template)
    facts |= {"model": folder.name, "price": entry.key if entry else None}
    if log:
        skipped = say_skipped if skip_unreadable else None
        sessions = saying_notes(read_sessions([*log, *(files or [])], skipped))
        if plan is not None:
            entries = [entry] if entry else find_prices(PRICES, None)
            payers = Payers(entries, packaged_gpus(), unit, facts["kv_tokens"], draft)
            answers = ask_what_if(plan, sessions, loaded, payers)
            show_what_if(plan, answers, payers, facts, json_file, tables=tables)
            return
        calls = list(explain(sessions, loaded, settings))
    else:
        calls = list(explain_files(*_two(files or []), loaded, settings))
    if not calls:
        raise DuramenError("these recordings hold no call to a model")
    is_default = model is None and tokenizer is None and chat_template is None
    facts["notes"] = list(notices(calls, unit, folder.name, is_default=is_default))
    show(calls, facts, json_file, out)


def _two(files: Sequence[Path]) -> tuple[Path, Path]:
    if len(files) != 2:
        raise typer.BadParameter(
            "name two requests, A and B, or a log: --log PATH, or --session ID"
        )
    return files[0], files[1]


def show(
    calls: Sequence[ExplainedCall], facts: dict[str, Any], json_file: str | None, out: Path | None
) -> None:
    """The table, or JSON; and the page, if it is wanted."""
    if out is not None:
        write_text(render(calls, facts), out)
    if json_file is None:
        wide_console().print(as_table(calls, facts))
        return
    explained = {"calls": [call.as_json() for call in calls], "totals": totals(calls)}
    write_json("why", facts | explained, json_file)
