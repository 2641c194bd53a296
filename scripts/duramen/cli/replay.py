"""`duramen replay`: recorded trajectories under prompt layouts, live or in the cache model."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from duramen.cli.main import INTERRUPTED
from duramen.cli.options import JsonFile, parse_size
from duramen.cli.output import check_json_file, write_json
from duramen.cli.replay_table import as_table
from duramen.experiments.accounts import Accounts
from duramen.experiments.importers.read import read_sessions
from duramen.experiments.layouts.catalogue import Layout
from duramen.experiments.layouts.model import Model
from duramen.experiments.opening import Opened, Opening, load_model, open_live, open_model
from duramen.experiments.record.demo import demo_paths
from duramen.experiments.replay import Overflow, Replay
from duramen.experiments.trajectory import Session
from duramen.layout.errors import DuramenError, ModelError
from duramen.serving.models import fetch
from duramen.serving.probe import device_name
from duramen.serving.vllm.protocol import Sampling

DEMO_MODEL = "smollm2"
MAX_REPLY = 24


class EngineKind(Enum):
    SIMULATE = "simulate"
    LIVE = "live"


class SeamKind(Enum):
    PROVEN = "proven"
    INDEPENDENT = "independent"


class ReplyKind(Enum):
    RECORDED = "recorded"
    LIVE = "live"


def replay(
    paths: Annotated[
        list[Path] | None, typer.Argument(help="Recorded trajectories: files or folders.")
    ] = None,
    demo: Annotated[bool, typer.Option("--demo", help="Add the sessions of the package.")] = False,
    layout: Annotated[
        list[str], typer.Option(metavar="NAME", help="Prompt layout; may be given several times.")
    ] = ["recorded", "stable"],  # noqa: B006 - typer copies it
    engine: Annotated[
        EngineKind, typer.Option(help="The cache model, or a real vLLM.")
    ] = EngineKind.SIMULATE,
    model: Annotated[
        str | None, typer.Option(metavar="DIR", help="Model folder, or smollm2 (the default).")
    ] = None,
    tokenizer: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Tokenizer folder, if not the model's.")
    ] = None,
    chat_template: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Chat template, if not the model's.")
    ] = None,
    upstream: Annotated[
        str | None, typer.Option(metavar="URL", help="A vLLM that runs already; it is left alone.")
    ] = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="DURAMEN_API_KEY", help="Key of the upstream.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=1, max=65535, help="Port of the vLLM that is started; a free one by default."
        ),
    ] = None,
    unit: Annotated[
        int | None,
        typer.Option(min=1, help="Match unit, tokens: 16 in the model, the engine's own if live."),
    ] = None,
    kv_tokens: Annotated[
        str, typer.Option(metavar="N|inf", help="Tokens that the cache holds.")
    ] = "inf",
    reply: Annotated[
        ReplyKind, typer.Option(help="Whose replies the conversations go on with.")
    ] = ReplyKind.RECORDED,
    max_reply: Annotated[int, typer.Option(min=1, help="Tokens per live reply.")] = MAX_REPLY,
    temperature: Annotated[float, typer.Option(min=0.0, help="Of live replies.")] = 0.0,
    seed: Annotated[
        int | None,
        typer.Option(help="Of live replies; 0 by default, none with --upstream."),
    ] = None,
    seams: Annotated[
        SeamKind,
        typer.Option(help="Where text is cut for encoding: canonical ids, or each piece alone."),
    ] = SeamKind.PROVEN,
    overflow: Annotated[
        Overflow, typer.Option(help="What happens to calls that are longer than the context.")
    ] = Overflow.SKIP,
    concurrency: Annotated[int, typer.Option(min=1, help="Sessions at once.")] = 1,
    limit: Annotated[int | None, typer.Option(min=1, help="Read at most so many sessions.")] = None,
    json_file: JsonFile = None,
) -> None:
    """Replay recorded trajectories under prompt layouts and account for every prompt token.

    Sessions run one after another, and --concurrency of them at once on a live engine; a session's
    next call is sent when its last one has answered.
    """
    check_json_file(json_file)
    pool = parse_size(kv_tokens)
    if engine is EngineKind.SIMULATE:
        live_only = {
            "--upstream": upstream is not None,
            "--port": port is not None,
            "--reply live": reply is ReplyKind.LIVE,
            "--max-reply": max_reply != MAX_REPLY,
            "--temperature": temperature != 0,
            "--seed": seed is not None,
            "--concurrency": concurrency > 1,
        }
        refuse(live_only, "needs --engine live")
    elif upstream is not None:
        own_only = {"--port": port is not None, "--kv-tokens": pool is not None}
        refuse(own_only, "is for an engine that is started here, --upstream has its own")
    sessions = load_sessions(paths or [], demo, limit)
    model_dir, tokenizer_dir = find_folders(model, tokenizer, upstream)
    opening = Opening(
        tokenizer_dir=tokenizer_dir,
        model_dir=model_dir,
        chat_template=chat_template,
        upstream=upstream,
        port=port,
        unit=unit,
        kv_tokens=pool,
        sampling=Sampling(max_reply, temperature, seed if upstream else seed or 0),
        concurrency=min(concurrency, len(sessions)),
        api_key=api_key,
    )
    is_independent = seams is SeamKind.INDEPENDENT
    loaded = load_model(tokenizer_dir, chat_template, independent_seams=is_independent)
    choices = Choices(
        engine, list(dict.fromkeys(map(Layout.parse, layout))), reply is ReplyKind.LIVE, overflow
    )
    carry_out(sessions, loaded, opening, choices, json_file)


@dataclass(frozen=True)
class Choices:
    engine: EngineKind
    layouts: list[Layout]
    live_replies: bool
    overflow: Overflow


def carry_out(
    sessions: list[Session], model: Model, opening: Opening, choices: Choices, json_file: str | None
) -> None:
    """Run all layouts and show what came of them, also of a run that was cut short."""
    accounts: dict[Layout, Accounts] = {}
    facts: dict[str, Any] = {"engine": None, "model": None, "unit_tokens": None}

    async def run() -> None:
        with replay_progress(sessions) as (starting, progress):
            async with opened(opening, choices.engine, starting) as target:
                facts.update(target.facts)
                replayed = Replay(
                    sessions,
                    model,
                    target.target,
                    live_replies=choices.live_replies,
                    overflow=choices.overflow,
                    concurrency=opening.concurrency,
                    progress=progress,
                    accounts=accounts,
                )
                await replayed.run(choices.layouts)

    interrupted = True
    try:
        asyncio.run(run())
        interrupted = False
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    finally:
        if not interrupted or any(sums.num_calls for sums in accounts.values()):
            show(accounts, facts | {"interrupted": interrupted}, json_file)
    if not any(sums.num_calls for sums in accounts.values()):
        raise DuramenError("no call could be replayed: see why they were skipped")


def refuse(options: dict[str, bool], reason: str) -> None:
    """Raise for the first option that is given."""
    for name, is_given in options.items():
        if is_given:
            raise typer.BadParameter(f"{name} {reason}")


def load_sessions(paths: Sequence[Path], demo: bool, limit: int | None) -> list[Session]:
    """The first `limit` sessions that have calls. Raises DuramenError if there are none."""
    if not paths and not demo:
        raise DuramenError("name recorded trajectories to replay, or take the package's: --demo")
    read = read_sessions([*paths, *(demo_paths() if demo else [])])
    sessions = list(islice((session for session in read if session.calls), limit))
    if not sessions:
        raise DuramenError("these recordings hold no call to a model")
    return sessions


def find_folders(
    model: str | None, tokenizer: Path | None, upstream: str | None
) -> tuple[Path | None, Path]:
    """The model's folder, None if only `tokenizer` is known; and the tokenizer's."""
    if model is None and tokenizer is not None:
        return None, tokenizer
    if model is None and upstream is not None:
        raise DuramenError(
            f"--upstream {upstream} needs the served model's tokenizer: --tokenizer DIR"
        )
    if model is None or model == DEMO_MODEL:
        with Console(stderr=True).status(f"fetching {DEMO_MODEL}") as status:
            model_dir = fetch(DEMO_MODEL, status.update)
    else:
        model_dir = Path(model)
    if not model_dir.is_dir():
        raise ModelError(f"unknown model {model}: name a model's folder, or {DEMO_MODEL}")
    return model_dir, tokenizer or model_dir


@contextmanager
def replay_progress(
    sessions: Sequence[Session],
) -> Iterator[tuple[Callable[[str], None], Callable[[Layout, Accounts], None]]]:
    """A bar on standard error: what to call while the engine starts, and what with each call."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    num_calls = sum(len(session.calls) for session in sessions)
    console = Console(stderr=True)
    with Progress(
        *columns, TimeElapsedColumn(), console=console, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task("loading", total=None)

        def starting(line: str) -> None:
            progress.update(task, description=line)

        def advance(layout: Layout, accounts: Accounts) -> None:
            num_done = accounts.num_calls + accounts.num_skipped.total()
            progress.update(task, description=layout.label, total=num_calls, completed=num_done)

        yield starting, advance


@asynccontextmanager
async def opened(
    opening: Opening, engine: EngineKind, starting: Callable[[str], None]
) -> AsyncIterator[Opened]:
    if engine is EngineKind.SIMULATE:
        yield open_model(opening)
        return
    if opening.upstream is None and opening.model_dir is None:
        raise ModelError("--engine live needs the model to start: --model DIR, or --upstream URL")
    async with open_live(opening, starting) as live:
        yield live


def show(accounts: dict[Layout, Accounts], facts: dict[str, Any], json_file: str | None) -> None:
    """The table, or JSON."""
    facts = facts | {"device": device_name()}
    if json_file is None:
        Console().print(as_table(accounts, facts))
        return
    layouts = {layout.label: sums.as_json() for layout, sums in accounts.items()}
    write_json("replay", facts | {"layouts": layouts}, json_file)
