"""What clients do to the server at a port, and what is measured of it."""

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from duramen.layout.tokenizer import Tokenizer
from gateway_bench.client import Answer, Client
from gateway_bench.processes import cpu_s

Message = dict[str, Any]

ENDLESS = 10**6
FIRST_ID, LAST_ID = 1000, 49_000  # of SmolLM2's vocabulary: plain text
MESSAGE_TOKENS = 250
NEW_TOKENS = 100
LONGEST_PAUSE_S = 1.0
UNMEASURED = 2  # the first calls of a conversation


@dataclass(frozen=True)
class Streamed:
    """`cpu_us`: of the process for each token; `age_us`: median from written to read."""

    tokens_per_s: float
    tokens_per_read: float
    age_us: float
    cpu_us: float
    busy: float


@dataclass(frozen=True)
class Called:
    """Medians over calls; `cpu_ms`: of the process for each, the first ones and what is sampled
    included."""

    ttft_ms: float
    call_ms: float
    cpu_ms: float


async def streams(
    port: int, num_streams: int, shape: dict[str, Any], seconds: float, pid: int | None = None
) -> Streamed:
    """Open endless streams, and look at them for `seconds` once all of them run. `pid`: of the
    gateway; None: `port` is the fake's own."""
    clients = [await Client.connect(port) for _ in range(num_streams)]
    calls = [
        asyncio.create_task(client.call(_stream_body(i, shape, direct=pid is None)))
        for i, client in enumerate(clients)
    ]
    while not all(client.num_tokens for client in clients):
        for call in calls:
            if call.done():
                call.result()  # it has failed
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.5)
    reads, seen = sum(c.num_reads for c in clients), [c.num_tokens for c in clients]
    started_s, used_s = time.perf_counter(), cpu_s(pid) if pid else 0.0
    await asyncio.sleep(seconds)
    elapsed_s = time.perf_counter() - started_s
    used_s = (cpu_s(pid) if pid else 0.0) - used_s
    reads = sum(c.num_reads for c in clients) - reads
    ages = [age for c, start in zip(clients, seen, strict=True) for age in c.ages_s[start:]]
    for client in clients:
        client.close()
    await asyncio.gather(*calls, return_exceptions=True)
    return Streamed(
        tokens_per_s=len(ages) / elapsed_s,
        tokens_per_read=len(ages) / reads,
        age_us=median(ages) * 1e6,
        cpu_us=used_s / len(ages) * 1e6,
        busy=used_s / elapsed_s,
    )


def _stream_body(i: int, shape: dict[str, Any], *, direct: bool) -> dict[str, Any]:
    body = {"stream": True, "max_tokens": ENDLESS, **shape}
    if direct:
        return ids_body([1, 2, 3]) | body
    return body | {"messages": [{"role": "user", "content": f"stream {i}, {time.time_ns()}"}]}


class Words:
    """Text of a given number of tokens, by chance, the same for the same seed."""

    def __init__(self, tokenizer: Tokenizer, seed: int) -> None:
        self._tokenizer = tokenizer
        self._random = random.Random(seed)

    def ids(self, num_tokens: int) -> list[int]:
        return [self._random.randrange(FIRST_ID, LAST_ID) for _ in range(num_tokens)]

    def text(self, num_tokens: int) -> str:
        """Encoded anew it has about as many."""
        return self._tokenizer.decode(self.ids(num_tokens * 2 // 3)).replace("\ufffd", "")

    async def think(self) -> None:
        """A pause, so that conversations do not call in step."""
        await asyncio.sleep(self._random.random() * LONGEST_PAUSE_S)

    def conversation(self, num_tokens: int) -> list[Message]:
        """Of about so many tokens: it ends with a user message."""
        num_turns = max(1, num_tokens // (2 * MESSAGE_TOKENS))
        messages: list[Message] = []
        for _ in range(num_turns):
            messages.append({"role": "user", "content": self.text(MESSAGE_TOKENS)})
            messages.append({"role": "assistant", "content": self.text(MESSAGE_TOKENS)})
        return [*messages, {"role": "user", "content": self.text(NEW_TOKENS)}]


async def converse(
    port: int,
    words: Sequence[Words],
    num_tokens: int,
    num_calls: int,
    shape: dict[str, Any],
    pid: int | None,
) -> Called:
    """Conversations at once, one for each of `words`; messages are sent, as by an agent."""

    async def one(client: Client, say: Words) -> list[Answer]:
        messages = say.conversation(num_tokens)
        answers = []
        for _ in range(num_calls + UNMEASURED):
            await say.think()
            answers.append(await client.call({"messages": messages, "stream": True, **shape}))
            messages.append({"role": "assistant", "content": answers[-1].content})
            messages.append({"role": "user", "content": say.text(NEW_TOKENS)})
        return answers

    return await _all(port, words, one, pid)


async def send_ids(
    port: int,
    words: Sequence[Words],
    num_tokens: int,
    num_calls: int,
    shape: dict[str, Any],
    pid: int | None,
) -> Called:
    """The same without a gateway: token ids are sent."""

    async def one(client: Client, say: Words) -> list[Answer]:
        ids = say.ids(num_tokens)
        answers = []
        for _ in range(num_calls + UNMEASURED):
            await say.think()
            answers.append(await client.call(ids_body(ids) | shape))
            ids += say.ids(NEW_TOKENS)
        return answers

    return await _all(port, words, one, pid)


async def _all(
    port: int,
    words: Sequence[Words],
    run: Callable[[Client, Words], Coroutine[Any, Any, list[Answer]]],
    pid: int | None,
) -> Called:
    clients = [await Client.connect(port, keep=True) for _ in words]
    used_s = cpu_s(pid) if pid else 0.0
    answered = await asyncio.gather(*map(run, clients, words))
    used_s = (cpu_s(pid) if pid else 0.0) - used_s
    for client in clients:
        client.close()
    answers = [answer for each in answered for answer in each[UNMEASURED:]]
    return Called(
        ttft_ms=median(answer.ttft_s for answer in answers) * 1e3,
        call_ms=median(answer.elapsed_s for answer in answers) * 1e3,
        cpu_ms=used_s / sum(map(len, answered)) * 1e3,
    )


def ids_body(ids: Sequence[int]) -> dict[str, Any]:
    params = {"prompt_token_ids": ids}
    return {
        "messages": [],
        "stream": True,
        "return_token_ids": True,
        "kv_transfer_params": params,
    }
