"""Breaks, uncached tokens and TTFT of 64 conversations whose clients change history's form.

The same run goes through the gateway and straight to vLLM's chat endpoint, at temperature 1, on one
vLLM (CPU build, SmolLM2-135M, our chat template): once with a pool that holds everything, once with
one that holds about a third.
"""

import asyncio
import sys
import uuid

from openai import AsyncOpenAI

from duramen.experiments.accounts import percentiles
from duramen.experiments.roundtrips import Summary, run_conversations, summarise
from duramen.experiments.served import served
from duramen.serving.models import fetch
from duramen.serving.vllm.engine import wait_until_ready
from duramen.serving.vllm.launch import VllmConfig, VllmProcess

NUM, TURNS, CONCURRENCY, UNIT = 64, 6, 8, 32
SMALL_POOL_TOKENS = 12_000


def main() -> None:
    print(f"{NUM} conversations x {TURNS} turns, {CONCURRENCY} at a time, unit {UNIT}")
    header = "| pool | through | follow-ups | breaks | uncached | of | off bound | off prediction |"
    print(header + " TTFT p50 | p95 |")
    print("|---|---|" + "---:|" * 8)
    for pool in (None, SMALL_POOL_TOKENS):
        asyncio.run(_on_one_engine(pool))


async def _on_one_engine(pool_tokens: int | None) -> None:
    num_blocks = None if pool_tokens is None else pool_tokens // UNIT + 1
    config = VllmConfig(
        fetch("smollm2", lambda line: None),
        max_model_len=8192,
        num_kv_blocks=num_blocks,
        scheduling_policy="priority",
    )
    process = VllmProcess(config)
    try:
        await wait_until_ready(process, lambda line: print(line, file=sys.stderr))
        pool = "holds all" if pool_tokens is None else f"{pool_tokens:,} tokens"
        async with served(process, "smollm2", ["--no-store"]) as url:
            _print(pool, "gateway", await _run(url, "smollm2"))
        _print(pool, "vLLM direct", await _run(process.url, str(config.model_dir)))
    finally:
        process.stop()


async def _run(url: str, model: str) -> Summary:
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        salt = uuid.uuid4().hex
        turns = await run_conversations(
            client, model, num=NUM, turns=TURNS, concurrency=CONCURRENCY, unit=UNIT, salt=salt
        )
    return summarise(turns)


def _print(pool: str, through: str, summary: Summary) -> None:
    ranks = percentiles(summary.ttft_s)
    off = "-" if summary.off_prediction is None else summary.off_prediction
    print(
        f"| {pool} | {through} | {summary.num_follow_ups} | {summary.num_breaks} "
        f"| {summary.uncached_tokens:,} | {summary.prompt_tokens:,} | {summary.off_bound} | {off} "
        f"| {ranks['p50']:.3f} s | {ranks['p95']:.3f} s |",
        flush=True,
    )


if __name__ == "__main__":
    main()
