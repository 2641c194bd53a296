"""Is the planner's pick the best of the swept settings live? On vLLM's CPU build, in turn.

Made-up agents send the same token ids to each setting and to the simulator. One vLLM for each
setting (SmolLM2-135M), all up at once and idle but for one; each round goes through them in another
order, each with a salt of its own. Their figure is good calls per second, as the pick's is. Needs a
timing profile of this machine.
"""

import argparse
import asyncio
import random
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from duramen.cli.output import check_json_file, write_json
from duramen.experiments.plan.kv_pool import KvPool
from duramen.experiments.plan.order import Order
from duramen.experiments.plan.plan import Plan, make_plan, new_search
from duramen.experiments.plan.setting import Setting, space_of
from duramen.experiments.plan.traffic import ClosedTraffic
from duramen.experiments.plan.trial import Trial, Trials
from duramen.experiments.timed.call import TimedCall
from duramen.experiments.timed.figures import Ranks
from duramen.experiments.timed.slo import Slo, parse_slo
from duramen.serving.models import fetch
from duramen.serving.probe import device_name
from duramen.serving.timing_profile import load_timing_profile
from duramen.serving.vllm.engine import VllmEngine, launch
from duramen.serving.vllm.itl_target import ItlTarget
from duramen.serving.vllm.launch import VllmConfig, default_block_size
from duramen.serving.vllm.protocol import Completion, Sampling
from duramen.serving.vllm.version import installed_build

SLO = "ttft=5s,itl=400ms"
KV_CACHE_GIB = 1
KV_TOKENS = KV_CACHE_GIB * 2**30 // 23_040  # of SmolLM2-135M in bf16
NUM_SESSIONS, CALLS_PER_SESSION, CONCURRENCY = 8, 4, 4
NEW_TOKENS, OUTPUTS = (100, 1200), (16, 48)
NUM_ARMS, NUM_ROUNDS = 5, 5
FIRST_ID, LAST_ID = 1000, 40_000  # ordinary tokens
NUM_DRAWS, SEED = 10_000, 0
NEAR = 0.9  # of the best
TABLE_WIDTH = 106


@dataclass(frozen=True)
class LiveCall:
    """What is sent, and what the simulator is told of it: the reply is not part of what follows,
    so no later call reuses its tokens."""

    token_ids: tuple[int, ...]
    num_outputs: int


@dataclass
class Arm:
    """`goodputs`: good calls per second, one for each round."""

    name: str
    trial: Trial
    engine: VllmEngine
    goodputs: list[float] = field(default_factory=list)
    ttfts_s: list[float] = field(default_factory=list)
    gaps_s: list[float] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return {
            "simulated": self.trial.as_json(),
            "goodput_calls_per_s": self.goodputs,
            "ttft_s": asdict(Ranks.of(np.array(self.ttfts_s))),
            "itl_s": asdict(Ranks.of(np.array(self.gaps_s))),
        }


def made_up_sessions(number: int) -> list[list[LiveCall]]:
    """Agents: each call has the prompt before it and some more."""
    draw = random.Random(SEED)
    return [_session(draw) for _ in range(number)]


def _session(draw: random.Random) -> list[LiveCall]:
    ids: list[int] = []
    calls = []
    for _ in range(CALLS_PER_SESSION):
        ids += draw.choices(range(FIRST_ID, LAST_ID), k=draw.randint(*NEW_TOKENS))
        calls.append(LiveCall(tuple(ids), draw.randint(*OUTPUTS)))
    return calls


def as_timed(sessions: Sequence[Sequence[LiveCall]], block_size: int) -> list[list[TimedCall]]:
    fresh = count()
    timed = []
    for number, session in enumerate(sessions):
        shared: list[int] = []
        row = []
        for index, call in enumerate(session):
            num_prompt, num_all = len(call.token_ids), len(call.token_ids) + call.num_outputs
            shared += [next(fresh) for _ in range(num_prompt // block_size - len(shared))]
            own = [next(fresh) for _ in range(num_all // block_size - len(shared))]
            keys = [*shared, *own]
            outputs = call.num_outputs
            row.append(TimedCall(str(number), index, keys, num_prompt, outputs, outputs))
        timed.append(row)
    return timed


def choose(plan: Plan, order: Order, number: int) -> dict[str, Trial]:
    """The pick, what the profile was measured with, and others from the second best to the worst,
    by their place in the simulator's order."""
    ranked = [trial for trial in sorted(plan.whole, key=order.key) if trial != plan.pick]
    chosen = {"pick": plan.pick}
    if plan.present in ranked:
        assert plan.present is not None
        ranked.remove(plan.present)
        chosen["now"] = plan.present
    num_others = min(number - len(chosen), len(ranked))
    places = np.linspace(0, len(ranked) - 1, num_others).astype(int)
    return chosen | {f"{place + 2} of {len(plan.whole)}": ranked[place] for place in places}


async def start(model_dir: Path, setting: Setting, timing: Path) -> VllmEngine:
    itl = None if setting.itl_target_ms is None else ItlTarget(setting.itl_target_ms, timing)
    return await launch(
        VllmConfig(
            model_dir,
            block_size=setting.block_size,
            max_model_len=8192,
            kv_cache_gib=KV_CACHE_GIB,
            max_num_seqs=setting.max_num_seqs,
            max_num_batched_tokens=setting.max_num_batched_tokens,
            long_prefill_token_threshold=setting.long_prefill_token_threshold,
            tool_parser=None,
            itl=itl,
        ),
        lambda line: None,
    )


async def play(arm: Arm, sessions: Sequence[Sequence[LiveCall]], slo: Slo, at_once: int) -> None:
    """One round: all sessions, `at_once` of them at a time."""
    salt, waiting = uuid.uuid4().hex, iter(sessions)
    answers: list[Completion] = []

    async def worker() -> None:
        for session in waiting:
            for call in session:
                sampling = Sampling(call.num_outputs, min_tokens=call.num_outputs)
                answers.append(await arm.engine.complete(call.token_ids, sampling, salt=salt))

    started_s = time.monotonic()
    async with asyncio.TaskGroup() as workers:
        for _ in range(at_once):
            workers.create_task(worker())
    elapsed_s = time.monotonic() - started_s
    gaps_s = [np.array(answer.itl_s) for answer in answers]
    num_good = sum(
        slo.is_met(answer.ttft_s, Ranks.of(gaps).p99)
        for answer, gaps in zip(answers, gaps_s, strict=True)
    )
    arm.goodputs.append(num_good / elapsed_s)
    arm.ttfts_s += [answer.ttft_s for answer in answers]
    arm.gaps_s += np.concatenate(gaps_s).tolist()


def verdict(goodputs: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """The pick against the best by mean goodput: the ratio, and what 95% of redrawn rounds give.
    `is_separable`: all of that lies below 1. None of it where no setting had a good call."""
    means = {name: float(np.mean(each)) for name, each in goodputs.items()}
    best = max(means, key=lambda name: means[name])
    if not means[best]:
        return {"best": None, "holds": None}
    draw = np.random.default_rng(SEED)
    num_rounds = len(goodputs["pick"])
    rounds = draw.integers(num_rounds, size=(NUM_DRAWS, num_rounds))  # the same for both: paired
    ours, theirs = (np.array(goodputs[name])[rounds].mean(axis=1) for name in ("pick", best))
    usable = theirs > 0
    low, high = (float(each) for each in np.quantile(ours[usable] / theirs[usable], (0.025, 0.975)))
    ratio = means["pick"] / means[best]
    return {
        "best": best,
        "ratio": ratio,
        "interval": [low, high],
        "is_separable": high < 1,
        "is_within_10_percent": ratio >= NEAR,
        "holds": high >= 1 or ratio >= NEAR,
    }


def as_table(result: dict[str, Any]) -> Table:
    title = f"{result['device']}; {result['engine']}; {result['num_rounds']} rounds"
    table = Table(title=title, title_justify="left")
    table.add_column("setting")
    for column in ("good calls/s", "simulated", "TTFT p99", "simulated", "ITL p99", "simulated"):
        table.add_column(column, justify="right")
    for name, row in result["arms"].items():
        told, mean = row["simulated"], float(np.mean(row["goodput_calls_per_s"]))
        cells = [f"{mean:.3f}", f"{told['goodput']['calls_per_s']:.3f}"]
        for key in ("ttft_s", "itl_s"):
            cells += [f"{each['p99']:.3f} s" for each in (row[key], told[key])]
        table.add_row(name, *cells)
    return table


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


async def measure(
    chosen: Mapping[str, Trial],
    sessions: Sequence[Sequence[LiveCall]],
    slo: Slo,
    options: argparse.Namespace,
) -> dict[str, Arm]:
    model_dir = fetch("smollm2", lambda line: None)
    arms: dict[str, Arm] = {}
    try:
        for name, trial in chosen.items():
            engine = await start(model_dir, trial.setting, options.timing)
            arms[name] = Arm(name, trial, engine)
            say(f"{name} is up: {trial.setting}")
        order, draw = [*arms.values()], random.Random(SEED)
        for number in range(options.rounds):
            draw.shuffle(order)
            for arm in order:
                await play(arm, sessions, slo, options.concurrency)
                say(f"round {number + 1}: {arm.name}: {arm.goodputs[-1]:.3f} good calls/s")
    finally:
        for arm in arms.values():
            await arm.engine.close()
    return arms


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--timing", type=Path, help="timing profile of this machine")
    parser.add_argument("--slo", type=parse_slo, default=SLO)
    parser.add_argument("--rounds", type=int, default=NUM_ROUNDS)
    parser.add_argument("--arms", type=int, default=NUM_ARMS)
    parser.add_argument("--sessions", type=int, default=NUM_SESSIONS)
    parser.add_argument("--concurrency", type=int, default=CONCURRENCY)
    parser.add_argument("--json", help="where to write the result, - for stdout")
    options = parser.parse_args()
    check_json_file(options.json)
    if options.timing is None:
        say("nothing to measure without a timing profile of this machine: --timing FILE")
        return
    profile, granule = load_timing_profile(options.timing), default_block_size("cpu")
    sessions = made_up_sessions(options.sessions)
    traffic = ClosedTraffic(as_timed(sessions, granule), options.concurrency)
    space = space_of(profile, granule, itl_s=options.slo.itl_s)
    trials = Trials(profile, KvPool(kv_tokens=KV_TOKENS), options.slo, granule)
    search = new_search(trials, space, traffic, say)
    plan = make_plan(search)
    say(f"pick: {plan.pick.setting}: {plan.why}")
    chosen = choose(plan, search.order, options.arms)
    arms = asyncio.run(measure(chosen, sessions, options.slo, options))
    result = {
        "device": device_name(),
        "engine": "vllm-{} {}".format(*installed_build()),
        "model": "SmolLM2-135M-Instruct",
        "timing": profile.as_fields(),
        "slo": asdict(options.slo),
        "num_rounds": options.rounds,
        "load": replace(traffic, sessions=()).as_json() | {"num_sessions": options.sessions},
        "arms": {name: arm.as_json() for name, arm in arms.items()},
        "verdict": verdict({name: arm.goodputs for name, arm in arms.items()}),
    }
    if options.json:
        write_json("bench plan", result, options.json)
    if options.json != "-":
        console = Console(width=TABLE_WIDTH)
        console.print(as_table(result))
        console.print(result["verdict"])


if __name__ == "__main__":
    main()
