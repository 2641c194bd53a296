"""TTFT of short continuing sessions beside a cold long prompt: our priority, FCFS, vLLM direct.

8 sessions go on call after call; every 20 s a prompt of 6,000 tokens that nobody sent before comes
in between. One vLLM (CPU build, SmolLM2-135M, the cpu profile's flags), two gateways in front of
it, and itself; a second vLLM with its own default flags. The arms take turns in slices.
"""

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from duramen.experiments.accounts import percentiles
from duramen.experiments.served import served, with_limits
from duramen.layout.tokenizer import Tokenizer
from duramen.serving.models import fetch
from duramen.serving.profile_file import load_profile
from duramen.serving.profiles import vllm_config
from duramen.serving.vllm.engine import wait_until_ready
from duramen.serving.vllm.launch import VllmConfig, VllmProcess

NUM_SESSIONS, COLD_TOKENS, COLD_EVERY_S = 8, 6000, 20.0
SLICE_S, NUM_ROUNDS = 100.0, 3
THINK_S = 0.5
WORDS = ["river", "stone", "paper", "wind", "copper", "garden", "bridge", "letter", "clock"]


@dataclass
class Arm:
    name: str
    url: str
    model: str
    short_s: list[float] = field(default_factory=list)
    cold_s: list[float] = field(default_factory=list)


async def run(slice_s: float, num_rounds: int) -> list[Arm]:
    model_dir = fetch("smollm2", lambda line: None)
    profile = load_profile("cpu")
    ours = VllmProcess(vllm_config(profile, model_dir, max_model_len=8192))
    plain = VllmProcess(VllmConfig(model_dir, max_model_len=8192))
    try:
        for process in (ours, plain):
            await wait_until_ready(process, lambda line: print(line, file=sys.stderr))
        async with AsyncExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            arms = []
            for scheduling in ("priority", "fcfs"):
                file = with_limits(folder, scheduling, f"scheduling: {scheduling}")
                options = ["--no-store", "--profile", str(file)]
                url = await stack.enter_async_context(served(ours, "smollm2", options))
                arms.append(Arm(f"gateway, {scheduling}", url, "smollm2"))
            arms.append(Arm("vLLM direct, same flags", ours.url, str(model_dir)))
            arms.append(Arm("vLLM direct, its defaults", plain.url, str(model_dir)))
            tokenizer = Tokenizer.load(model_dir)
            for number in range(num_rounds):
                for arm in arms[number % len(arms) :] + arms[: number % len(arms)]:
                    await _slice(arm, slice_s, tokenizer)
                    print(f"round {number + 1}: {arm.name} done", file=sys.stderr)
        return arms
    finally:
        for process in (ours, plain):
            process.stop()


async def _slice(arm: Arm, slice_s: float, tokenizer: Tokenizer) -> None:
    ends_s = time.monotonic() + slice_s
    salt = uuid.uuid4().hex
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        sessions = [_short(arm, http, number, ends_s, salt) for number in range(NUM_SESSIONS)]
        await asyncio.gather(_cold(arm, http, ends_s, salt, tokenizer), *sessions)


async def _short(
    arm: Arm, http: aiohttp.ClientSession, number: int, ends_s: float, salt: str
) -> None:
    """A session that goes on until the slice ends; its first, cold call is not counted."""
    draw = random.Random(f"{salt} {number}")
    system = f"You are assistant {number}. " + " ".join(draw.choices(WORDS, k=400))
    history: list[dict[str, Any]] = [{"role": "system", "content": system}]
    is_first = True
    while time.monotonic() < ends_s:
        question = " ".join(draw.choices(WORDS, k=12))
        history.append({"role": "user", "content": question})
        ttft_s, reply = await _call(arm, http, history, 16, salt)
        if not is_first:
            arm.short_s.append(ttft_s)
        is_first = False
        history.append({"role": "assistant", "content": reply})
        if len(history) > 40:
            del history[1:]
            is_first = True
        await asyncio.sleep(THINK_S * (0.5 + draw.random()))


async def _cold(
    arm: Arm, http: aiohttp.ClientSession, ends_s: float, salt: str, tokenizer: Tokenizer
) -> None:
    draw = random.Random(f"{salt} cold")
    running: list[asyncio.Task[None]] = []

    async def one() -> None:
        words = draw.choices(WORDS, k=COLD_TOKENS)
        text = " ".join(words)
        ids = list(tokenizer.encode_text(text))[: COLD_TOKENS - 60]
        message = {"role": "user", "content": f"{uuid.uuid4()} {tokenizer.decode(ids)}"}
        ttft_s, _ = await _call(arm, http, [message], 1, salt)
        arm.cold_s.append(ttft_s)

    await asyncio.sleep(5.0)  # the sessions have begun
    while time.monotonic() + COLD_EVERY_S / 2 < ends_s:
        running.append(asyncio.create_task(one()))
        await asyncio.sleep(COLD_EVERY_S)
    await asyncio.gather(*running)


async def _call(
    arm: Arm,
    http: aiohttp.ClientSession,
    messages: Sequence[dict[str, Any]],
    max_tokens: int,
    salt: str,
) -> tuple[float, str]:
    """Time to the first content, and the whole content."""
    body = {"model": arm.model, "messages": messages, "max_tokens": max_tokens, "stream": True}
    body |= {"temperature": 1.0, "ignore_eos": True, "cache_salt": salt}
    started_s = time.monotonic()
    ttft_s, content = None, ""
    async with http.post(f"{arm.url}/v1/chat/completions", json=body) as response:
        response.raise_for_status()
        async for line in response.content:
            if not line.startswith(b"data: {"):
                continue
            for choice in msgspec.json.decode(line[6:])["choices"]:
                text = choice["delta"].get("content") or ""
                if text and ttft_s is None:
                    ttft_s = time.monotonic() - started_s
                content += text
    return ttft_s if ttft_s is not None else time.monotonic() - started_s, content


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slice-s", type=float, default=SLICE_S)
    parser.add_argument("--num-rounds", type=int, default=NUM_ROUNDS)
    options = parser.parse_args()
    arms = asyncio.run(run(options.slice_s, options.num_rounds))
    print(f"{options.num_rounds} slices of {options.slice_s:.0f} s for each arm")
    print("| arm | short calls | TTFT p50 | p99 | max | cold calls | cold TTFT p50 |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for arm in arms:
        ranks = percentiles(arm.short_s)
        cold_s = statistics.median(arm.cold_s)
        print(
            f"| {arm.name} | {len(arm.short_s)} | {ranks['p50']:.2f} s | {ranks['p99']:.2f} s "
            f"| {max(arm.short_s):.2f} s | {len(arm.cold_s)} | {cold_s:.1f} s |"
        )


if __name__ == "__main__":
    main()
