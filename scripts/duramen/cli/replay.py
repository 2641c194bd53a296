"""`duramen replay`: recorded trajectories under prompt layouts, live or in the cache model."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from duramen.cli.options import (
    ChatTemplateFile,
    JsonFile,
    ModelFolder,
    SkipUnreadable,
    TokenizerFolder,
    parse_size,
)
from duramen.cli.output import check_json_file
from duramen.cli.replay_run import Choices, EngineKind, carry_out
from duramen.experiments.arrival import check_time_scale
from duramen.experiments.importers.read import read_sessions
from duramen.experiments.layout_run import Overflow
from duramen.experiments.layouts.catalogue import Layout
from duramen.experiments.opening import Opening, load_model
from duramen.experiments.record.demo import demo_paths
from duramen.experiments.timed.replay import Timing
from duramen.experiments.timed.slo import parse_slo
from duramen.experiments.trajectory import Session
from duramen.layout.errors import DuramenError, ModelError
from duramen.serving.models import fetch
from duramen.serving.timing_profile import load_timing_profile
from duramen.serving.vllm.protocol import Sampling

DEMO_MODEL = "smollm2"
MAX_REPLY = 24


class SeamKind(Enum):
    PROVEN = "proven"
    INDEPENDENT = "independent"


class ReplyKind(Enum):
    RECORDED = "recorded"
    LIVE = "live"


class ArrivalKind(Enum):
    CLOSED = "closed"
    RECORDED = "recorded"


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
    model: ModelFolder = None,
    tokenizer: TokenizerFolder = None,
    chat_template: ChatTemplateFile = None,
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
    arrival: Annotated[
        ArrivalKind,
        typer.Option(help="When calls are sent: after the reply before, or at recorded times."),
    ] = ArrivalKind.CLOSED,
    time_scale: Annotated[
        float | None,
        typer.Option(
            metavar="X", help="With recorded times: seconds per recorded second, 1 by default."
        ),
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Sessions at once.")] = 1,
    warm_up: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="N", help="Calls before the first that counts; 1 by default if live."
        ),
    ] = None,
    repeat: Annotated[
        int, typer.Option(min=1, metavar="N", help="Runs of each layout, in turn with the others.")
    ] = 1,
    timing: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Timing profile: simulate when each token comes, too."),
    ] = None,
    slo: Annotated[
        str | None,
        typer.Option(metavar="ttft=2s,itl=400ms", help="With --timing: what calls must keep."),
    ] = None,
    think: Annotated[
        float,
        typer.Option(min=0.0, metavar="S", help="With --timing: seconds from answer to next call."),
    ] = 0.0,
    limit: Annotated[int | None, typer.Option(min=1, help="Read at most so many sessions.")] = None,
    skip_unreadable: SkipUnreadable = False,
    json_file: JsonFile = None,
) -> None:
    """Replay recorded trajectories under prompt layouts and account for every prompt token.

    Sessions run one after another, and --concurrency of them at once on a live engine or a timed
    one (--timing); a session's next call is sent when its last one has answered, or with --arrival
    recorded at its own time.
    """
    check_json_file(json_file)
    pool = parse_size(kv_tokens)
    is_open = arrival is ArrivalKind.RECORDED
    if engine is EngineKind.SIMULATE:
        live_only = {
            "--upstream": upstream is not None,
            "--port": port is not None,
            "--reply live": reply is ReplyKind.LIVE,
            "--max-reply": max_reply != MAX_REPLY,
            "--temperature": temperature != 0,
            "--seed": seed is not None,
            "--warm-up": warm_up is not None,
            "--repeat": repeat > 1,
        }
        refuse(live_only, "needs --engine live")
        if timing is None:
            with_times = {"--concurrency": concurrency > 1, "--arrival recorded": is_open}
            refuse(with_times, "needs --engine live, or a profile of times: --timing FILE")
    elif upstream is not None:
        own_only = {"--port": port is not None, "--kv-tokens": pool is not None}
        refuse(own_only, "is for an engine that is started here, --upstream has its own")
    if timing is None:
        refuse({"--slo": slo is not None, "--think": think > 0}, "needs --timing FILE")
    elif engine is EngineKind.LIVE:
        raise typer.BadParameter("--timing is for --engine simulate: a live engine has its own")
    if is_open:
        waits = {"--reply live": reply is ReplyKind.LIVE}
        refuse(waits, "waits for replies, and calls at recorded times do not")
        closed_only = {"--concurrency": concurrency > 1, "--think": think > 0}
        refuse(closed_only, "is for --arrival closed: times decide here")
        check_time_scale(1.0 if time_scale is None else time_scale)
    else:
        refuse({"--time-scale": time_scale is not None}, "needs --arrival recorded")
    scale = (1.0 if time_scale is None else time_scale) if is_open else None
    timed = None
    if timing is not None:
        profile, objective = load_timing_profile(timing), None if slo is None else parse_slo(slo)
        timed = Timing(profile, objective, concurrency, think, scale)
        unit = unit or profile.block_size
    sessions = load_sessions(paths or [], demo, limit, say_skipped if skip_unreadable else None)
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
        concurrency=1 if timed else min(concurrency, len(sessions)),
        api_key=api_key,
        open_loop=is_open,
    )
    is_independent = seams is SeamKind.INDEPENDENT
    loaded = load_model(tokenizer_dir, chat_template, independent_seams=is_independent)
    choices = Choices(
        engine,
        list(dict.fromkeys(map(Layout.parse, layout))),
        live_replies=reply is ReplyKind.LIVE,
        overflow=overflow,
        time_scale=scale if timed is None else None,
        num_warm_ups=int(engine is EngineKind.LIVE) if warm_up is None else warm_up,
        num_repeats=repeat,
        timing=timed,
    )
    carry_out(sessions, loaded, opening, choices, json_file)


def refuse(options: dict[str, bool], reason: str) -> None:
    """Raise for the first option that is given."""
    for name, is_given in options.items():
        if is_given:
            raise typer.BadParameter(f"{name} {reason}")


def say_skipped(reason: str) -> None:
    print(f"duramen: skipped: {reason}", file=sys.stderr)


def load_sessions(
    paths: Sequence[Path], demo: bool, limit: int | None, skipped: Callable[[str], None] | None
) -> list[Session]:
    """The first `limit` sessions that have calls. `skipped`: see read_sessions. Raises DuramenError
    if there are none."""
    if not paths and not demo:
        raise DuramenError("name recorded trajectories to replay, or take the package's: --demo")
    read = read_sessions([*paths, *(demo_paths() if demo else [])], skipped)
    sessions = list(islice((session for session in saying_notes(read) if session.calls), limit))
    if not sessions:
        raise DuramenError("these recordings hold no call to a model")
    return sessions


def saying_notes(sessions: Iterable[Session]) -> Iterator[Session]:
    """Each note once: most hold for every session of a form."""
    said: set[str] = set()
    for session in sessions:
        for note in session.notes:
            if note not in said:
                said.add(note)
                print(f"duramen: note: {note} (first in {session.session_id!r})", file=sys.stderr)
        yield session


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
