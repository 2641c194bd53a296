"""Hits, TTFT and ITL of a live replay whose cache is too small for it, against the simulator's.

Recorded sessions (the package's, and tau-bench's and SWE-agent's where they lie beside the
repository), several open at once, a call of each in turn, on a vLLM that this starts. Every reply
has as many tokens as the recorded one, up to a limit. The calls are sent one after another, which
needs no times to tell what is cached; with a timing profile of this machine also two at once. Each
way twice: what the repeats differ by is the noise.
"""

import argparse
import asyncio
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import date
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from duramen.cli.output import check_json_file, write_json
from duramen.experiments.importers.read import read_sessions
from duramen.experiments.layout_run import Place
from duramen.experiments.layouts.catalogue import Layout
from duramen.experiments.layouts.model import Model
from duramen.experiments.opening import load_model
from duramen.experiments.record.demo import demo_paths
from duramen.experiments.replay import Replay
from duramen.experiments.target import ModelTarget, Outcome, num_pool_blocks
from duramen.experiments.timed.live_compared import APART_S, Run, SentCall, compare, errors
from duramen.experiments.trajectory import Session
from duramen.layout.zones import Prompt
from duramen.serving.kv.step_time import LinearStepTime
from duramen.serving.models import fetch
from duramen.serving.probe import device_name
from duramen.serving.timing_profile import Errors, Origin, TimingProfile, load_timing_profile
from duramen.serving.vllm.engine import launch
from duramen.serving.vllm.launch import VllmConfig, default_block_size
from duramen.serving.vllm.protocol import Sampling
from duramen.serving.vllm.version import installed_build

SHARED = Path(__file__).parents[2] / "shared" / "data"
SHARED_FOLDERS = ("tau-bench", "swe-agent")
SESSIONS_PER_FOLDER = 12
NUM_CALLS, NUM_OPEN = 200, 6
MAX_OUTPUTS = 32
CONTEXT_TOKENS, POOL_TOKENS = 4096, 10_240
MAX_STEP_TOKENS, LONG_PREFILL_TOKENS, MAX_NUM_SEQS = 512, 256, 32
NUM_REPEATS = 2
TABLE_WIDTH = 106

NO_TIMES = TimingProfile(
    "none", "none", "none", date.today(), Origin.PRIOR, LinearStepTime(1.0, 0.0, 0.0, 0.0, 0.0)
)


def recordings() -> list[Path]:
    """The package's, and those beside the repository where they are."""
    return [*demo_paths(), *filter(Path.is_dir, (SHARED / name for name in SHARED_FOLDERS))]


def read(paths: Sequence[Path]) -> list[Session]:
    """The first sessions of each path, one of each in turn. What cannot be read is left out."""
    folders = [
        [
            session
            for session in islice(read_sessions([path], lambda reason: None), SESSIONS_PER_FOLDER)
            if session.calls
        ]
        for path in paths
    ]
    return [each for each in chain.from_iterable(zip_longest(*folders)) if each is not None]


async def render(
    sessions: Sequence[Session], model: Model, max_model_len: int, max_outputs: int
) -> list[list[SentCall]]:
    """The calls of each session that fit in the context, append-only, as if the model had sampled
    the recorded replies."""
    rendered: dict[str, list[SentCall]] = {}

    def sent(layout: Layout, place: Place, prompt: Prompt, outcome: Outcome) -> None:
        name, num_outputs = place.session.session_id, len(outcome.token_ids)
        call = SentCall(name, place.index, prompt.token_ids, min(max(num_outputs, 1), max_outputs))
        rendered.setdefault(name, []).append(call)

    target = ModelTarget(None, 1, max_model_len)
    await Replay(sessions, model, target, sent=sent).run([Layout.parse("stable")])
    return list(rendered.values())


def interleave(sessions: Sequence[Sequence[SentCall]], num_open: int) -> Iterator[SentCall]:
    """A call of each open session in turn; where one has ended, the next one is opened."""
    waiting = map(iter, sessions)
    opened = deque(islice(waiting, num_open))
    while opened:
        session = opened.popleft()
        call = next(session, None)
        if call is None:
            opened.extend(islice(waiting, 1))
            continue
        yield call
        opened.append(session)


def small_engine(model_dir: Path, kv_tokens: int) -> VllmConfig:
    return VllmConfig(
        model_dir,
        max_model_len=CONTEXT_TOKENS,
        num_kv_blocks=num_pool_blocks(kv_tokens, default_block_size()) + 1,  # one is never used
        max_num_seqs=MAX_NUM_SEQS,
        max_num_batched_tokens=MAX_STEP_TOKENS,
        long_prefill_token_threshold=LONG_PREFILL_TOKENS,
    )


async def run(
    calls: Sequence[SentCall], config: VllmConfig, profile: TimingProfile, ways: Sequence[int]
) -> list[Run]:
    engine = await launch(config)
    runs: list[Run] = []
    try:
        await engine.complete(calls[0].token_ids, Sampling(1))  # the first call is slower
        for _ in range(NUM_REPEATS):
            for at_once in ways:
                runs.append(await compare(engine, calls, profile, at_once))
                done = runs[-1]
                say(f"{at_once} at once: {done.num_equal} of {len(calls)} calls hit as predicted")
    finally:
        await engine.close()
    return runs


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def repeats_of(runs: Sequence[Run]) -> dict[int, list[Run]]:
    """By how many calls were sent at once."""
    return {
        at_once: [each for each in runs if each.at_once == at_once]
        for at_once in dict.fromkeys(each.at_once for each in runs)
    }


def as_table(runs: Sequence[Run], num_calls: int, *, is_timed: bool) -> Table:
    title = f"{num_calls} calls, {NUM_REPEATS} repeats; errors of the times, and their noise"
    table = Table(title=title, title_justify="left")
    columns = ("at once", "hits as predicted", "fewer by eviction")
    for column in (*columns, "TTFT median", "p90", "ITL median", "p90"):
        table.add_column(column, justify="right")
    for at_once, repeats in repeats_of(runs).items():
        times = [errors(repeats, name) for name in ("ttft_s", "itl_s")] if is_timed else []
        table.add_row(
            str(at_once),
            ", ".join(str(each.num_equal) for each in repeats),
            ", ".join(str(each.num_evicted) for each in repeats),
            *chain.from_iterable(map(_cells, times)),
        )
    return table


def _cells(of: Errors) -> tuple[str, str]:
    median = f"{of.median:.1%} ({of.noise_median:.1%})"
    return median, f"{of.p90:.1%} ({of.noise_p90:.1%})"


def errors_as_json(runs: Sequence[Run]) -> list[dict[str, Any]]:
    return [
        {
            "at_once": at_once,
            "ttft": asdict(errors(repeats, "ttft_s")),
            "itl": asdict(errors(repeats, "itl_s")),
        }
        for at_once, repeats in repeats_of(runs).items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--timing", type=Path, help="timing profile of this machine")
    parser.add_argument("--model", type=Path, help="folder; without it SmolLM2-135M")
    parser.add_argument("--calls", type=int, default=NUM_CALLS)
    parser.add_argument("--max-outputs", type=int, default=MAX_OUTPUTS, help="tokens of a reply")
    parser.add_argument("--kv-tokens", type=int, default=POOL_TOKENS, help="that the cache holds")
    parser.add_argument("--json", help="where to write the result, - for stdout")
    options = parser.parse_args()
    check_json_file(options.json)
    timing = None if options.timing is None else load_timing_profile(options.timing)
    model_dir = options.model or fetch("smollm2", say)
    sessions, model = read(recordings()), load_model(model_dir, None)
    rendered = asyncio.run(render(sessions, model, CONTEXT_TOKENS, options.max_outputs))
    calls = [*islice(interleave(rendered, NUM_OPEN), options.calls)]
    config = small_engine(model_dir, options.kv_tokens)
    ways = (1,) if timing is None else (1, 2)
    runs = asyncio.run(run(calls, config, timing or NO_TIMES, ways))
    result = {
        "device": device_name(),
        "engine": "vllm-{} {}".format(*installed_build()),
        "model": model_dir.name,
        "kv_tokens": options.kv_tokens,
        "context_tokens": CONTEXT_TOKENS,
        "num_open": NUM_OPEN,
        "apart_s": APART_S,
        "max_outputs": options.max_outputs,
        "timing": timing and timing.as_fields(),
        "errors": None if timing is None else errors_as_json(runs),
        "runs": [each.as_json() for each in runs],
    }
    if options.json:
        write_json("bench validate", result, options.json)
    if options.json != "-":
        Console(width=TABLE_WIDTH).print(as_table(runs, len(calls), is_timed=timing is not None))


if __name__ == "__main__":
    main()
