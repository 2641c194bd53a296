"""SIGKILL of the gateway and of vLLM in the middle of streams, and a full disk."""

import asyncio
import os
import resource
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import httpx
import openai
import pytest
from gateway_cases import Message, user
from gateway_live_cases import MODEL, UNIT, Served, behind, fresh, serving, wait_for

from duramen.layout.blocks import common_prefix
from duramen.serving.vllm.launch import VllmProcess

pytestmark = pytest.mark.live

Decode = Callable[[list[int]], str]
BROKEN_OFF = (openai.APIError, httpx.HTTPError)


@dataclass
class Heard:
    """What a client has of one call: the prompt's ids, those sampled, and the content."""

    prompt: list[int] = field(default_factory=list)
    sampled: list[int] = field(default_factory=list)
    content: str = ""
    finish: str | None = None
    error: Exception | None = None

    def take(self, chunk: Any) -> None:
        self.prompt = (chunk.model_extra or {}).get("prompt_token_ids") or self.prompt
        for choice in chunk.choices:
            self.sampled += (choice.model_extra or {}).get("token_ids") or []
            self.content += choice.delta.content or ""
            self.finish = choice.finish_reason or self.finish


@dataclass
class Talk:
    """One conversation. `last`: the last call of which anything came; `num_shortened`: prompts that
    left off a tail of what was sampled before."""

    messages: list[Message]
    decode: Decode
    last: Heard | None = None
    now: Heard = field(default_factory=Heard)
    num_shortened: int = 0

    async def call(self, client: openai.AsyncOpenAI, max_tokens: int) -> None:
        """A streamed call, to its end or until it breaks off; then its prompt is checked and the
        next thing to say is thought of."""
        self.now = Heard()
        try:
            stream = await client.chat.completions.create(
                model=MODEL,
                messages=self.messages,  # type: ignore[arg-type]
                max_completion_tokens=max_tokens,
                temperature=1,
                stream=True,
                extra_body={"return_token_ids": True},
            )
            async for chunk in stream:
                self.now.take(chunk)
        except BROKEN_OFF as error:
            self.now.error = error
        if not self.now.prompt:
            return
        if self.last is not None:
            num_kept = check_exact(self.last, self.now.prompt, self.decode)
            self.num_shortened += num_kept < len(self.last.sampled)
        self.last = self.now
        if self.now.content.strip():
            reply = {"role": "assistant", "content": self.now.content}
            self.messages = [*self.messages, reply, user("Go on.")]


def check_exact(before: Heard, prompt: list[int], decode: Decode) -> int:
    """`prompt` is the one of the call after `before`, which may have broken off. How many of the
    ids sampled there it begins with, behind those sent there.

    Where no content came, the client asked the same again: the same ids, none of those sampled.
    Else all of them but for a tail that adds nothing but blanks to the content that came, or of
    which no content has come yet (vLLM holds back what spells half a character).
    """
    assert prompt[: len(before.prompt)] == before.prompt
    if not before.content.strip():
        assert len(prompt) == len(before.prompt)
        return len(before.sampled)
    num_kept = common_prefix(prompt[len(before.prompt) :], before.sampled)
    if num_kept < len(before.sampled):
        assert before.finish is None
        spelled = decode(before.sampled[:num_kept])
        assert before.content.startswith(spelled)
        assert not before.content[len(spelled) :].strip()
    return num_kept


async def cut(served: Served, talks: Sequence[Talk], random: Random) -> int:
    """Kill the gateway while they stream; how many broke off."""
    async with served.client() as client:
        running = [
            asyncio.create_task(talk.call(client, random.choice((20, 300, 300, 300))))
            for talk in talks
        ]
        await wait_for(
            lambda: any(talk.now.sampled for talk in talks) or all(task.done() for task in running)
        )
        await asyncio.sleep(random.uniform(0, 3))
        served.kill()
        await asyncio.gather(*running)
    for talk in talks:
        print(repr(talk.now.error), talk.now.finish, len(talk.now.sampled))
        assert (talk.now.finish is None) == (talk.now.error is not None)
    return sum(talk.now.error is not None for talk in talks)


@pytest.mark.parametrize("num_points", [4, pytest.param(50, marks=pytest.mark.long)])
@pytest.mark.timeout(600)
async def test_kill_9_of_the_gateway(
    live_server: VllmProcess,
    tmp_path: Path,
    decode: Decode,
    notice: Callable[[str], None],
    num_points: int,
) -> None:
    """Every stream that was cut is one point. The next turn's prompt is checked by check_exact."""
    random = Random(num_points)
    arguments = behind(live_server, tmp_path / "sessions.sqlite")
    story = "Tell me a long story of the sea, with cafés, naïve émigrés and 🐙."
    talks = [Talk(fresh(story), decode) for _ in range(8)]
    num_cut = 0
    while num_cut < num_points:
        with serving(*arguments) as served:
            await served.ready()
            num_cut += await cut(served, talks, random)
    with serving(*arguments) as served:
        await served.ready()
        async with served.client() as client:
            await asyncio.gather(*(talk.call(client, 8) for talk in talks))
        assert [talk.now.error for talk in talks] == [None] * len(talks)
        assert served.terminate() == 0
    num_shortened = sum(talk.num_shortened for talk in talks)
    notice(f"{num_cut} streams cut by SIGKILL: {num_shortened} went on without blanks at their end")
