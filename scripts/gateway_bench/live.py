"""A real vLLM on the tiny model: warm calls with and without the gateway in front of it."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from duramen.layout.tokenizer import Tokenizer
from duramen.serving.vllm.engine import wait_until_ready
from duramen.serving.vllm.launch import VllmConfig, VllmProcess
from gateway_bench.client import Answer, Client
from gateway_bench.load import NEW_TOKENS, Words, ids_body
from gateway_bench.processes import gateway

SHAPE = {"max_tokens": 4, "temperature": 0, "stream": True}
NUM_COLD = 2
MODEL = "tiny"


@dataclass(frozen=True)
class Compared:
    """Medians over warm calls. `ids`: straight to vLLM with token ids, as the gateway sends them;
    `chat`: straight to vLLM with the messages. `added_ms` (gateway over ids) and `chat_to_gateway`
    are medians of the calls' own differences and ratios."""

    prompt_tokens: int
    ids_ms: float
    gateway_ms: float
    chat_ms: float
    added_ms: float
    chat_to_gateway: float


@asynccontextmanager
async def vllm(model_dir: Path) -> AsyncIterator[int]:
    """Its port."""
    process = VllmProcess(VllmConfig(model_dir, max_model_len=131_072, model_name=MODEL))
    try:
        await wait_until_ready(process, lambda line: None)
        port = urlsplit(process.url).port
        assert port is not None
        yield port
    finally:
        process.stop()


async def compare(model_dir: Path, vllm_port: int, num_tokens: int, num_calls: int) -> Compared:
    """Three conversations go on by a message each time, in turn: through a gateway with a store,
    straight with messages, straight with ids. The first calls, which are cold, do not count."""
    words = Words(Tokenizer.load(model_dir, template(model_dir)), seed=num_tokens)
    rows = []
    with (
        tempfile.TemporaryDirectory() as folder,
        gateway(model_dir, vllm_port, None, Path(folder) / "sessions.db") as (port, _),
    ):
        there = words.conversation(num_tokens)
        here, ids = list(there), words.ids(num_tokens)
        for _ in range(NUM_COLD + num_calls):
            answers = (
                await _called(port, {"messages": here, **SHAPE}),
                await _called(vllm_port, {"messages": there, "model": MODEL, **SHAPE}),
                await _called(vllm_port, ids_body(ids) | {"model": MODEL, **SHAPE}),
            )
            rows.append([answer.elapsed_s * 1e3 for answer in answers])
            new = {"role": "user", "content": words.text(NEW_TOKENS)}
            here += [{"role": "assistant", "content": answers[0].content}, new]
            there += [{"role": "assistant", "content": answers[1].content}, new]
            ids += words.ids(NEW_TOKENS)
    warm = rows[NUM_COLD:]
    return Compared(
        prompt_tokens=len(ids),
        ids_ms=median(ids for _, _, ids in warm),
        gateway_ms=median(ours for ours, _, _ in warm),
        chat_ms=median(theirs for _, theirs, _ in warm),
        added_ms=median(ours - ids for ours, _, ids in warm),
        chat_to_gateway=median(theirs / ours for ours, theirs, _ in warm),
    )


async def _called(port: int, body: dict[str, Any]) -> Answer:
    """On a connection of its own: vLLM closes one that is idle while another way is at work."""
    client = await Client.connect(port, keep=True)
    try:
        return await client.call(body)
    finally:
        client.close()


def template(model_dir: Path) -> str:
    return (model_dir / "chat_template.jinja").read_text(encoding="utf-8")
