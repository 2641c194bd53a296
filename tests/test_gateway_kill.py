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

Encode = Callable[[str], list[int]]
Decode = Callable[[list[int]], str]
ENDLESS = 30_000  # tokens: minutes, also for the tiny model
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
    left off a tail of what was sampled before; `num_odd`: replies gone on with whose text would be
    encoded to other ids than those sampled."""

    messages: list[Message]
    encode: Encode
    decode: Decode
    last: Heard | None = None
    now: Heard = field(default_factory=Heard)
    num_shortened: int = 0
    num_odd: int = 0

    async def call(
        self, client: openai.AsyncOpenAI, max_tokens: int, *, ignore_eos: bool = False
    ) -> None:
        """A streamed call, to its end or until it breaks off; then its prompt is checked and the
        next thing to say is thought of."""
        self.now = Heard()
        try:
            create: Any = client.chat.completions.create
            stream = await create(
                model=MODEL,
                messages=self.messages,
                max_completion_tokens=max_tokens,
                temperature=2,  # odd ids, which their own text does not lead back to
                stream=True,
                extra_body={"return_token_ids": True, "ignore_eos": ignore_eos},
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
            if self.last.content.strip():
                self.num_odd += self.encode(self.last.content) != self.last.sampled[:num_kept]
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


async def cut(served: Served, talks: Sequence[Talk], random: Random) -> tuple[int, int]:
    """Kill the gateway while they stream. How many broke off, and before any content came."""
    async with served.client() as client:
        running = [
            asyncio.create_task(talk.call(client, random.choice((20, 300, 300, 300))))
            for talk in talks
        ]
        await wait_for(
            lambda: any(talk.now.sampled for talk in talks) or all(task.done() for task in running)
        )
        await asyncio.sleep(random.uniform(0, 4))
        served.kill()
        await asyncio.gather(*running)
    for talk in talks:
        assert (talk.now.finish is None) == (talk.now.error is not None)
    broken = [talk.now for talk in talks if talk.now.error is not None]
    return len(broken), sum(not heard.content for heard in broken)


@pytest.mark.parametrize("num_points", [12, pytest.param(50, marks=pytest.mark.long)])
@pytest.mark.timeout(600)
async def test_kill_9_of_the_gateway(
    live_server: VllmProcess,
    tmp_path: Path,
    encode: Encode,
    decode: Decode,
    notice: Callable[[str], None],
    num_points: int,
) -> None:
    """Every stream that was cut is one point. The next turn's prompt is checked by check_exact."""
    random = Random(num_points)
    arguments = behind(live_server, tmp_path / "sessions.sqlite")
    story = "Tell me a long story of the sea, with cafés, naïve émigrés and 🐙."
    talks = [Talk(fresh(story), encode, decode) for _ in range(8)]
    num_cut = num_silent = 0
    while num_cut < num_points:
        with serving(*arguments) as served:
            await served.ready()
            more_cut, more_silent = await cut(served, talks, random)
            num_cut, num_silent = num_cut + more_cut, num_silent + more_silent
    with serving(*arguments) as served:
        await served.ready()
        async with served.client() as client:
            await asyncio.gather(*(talk.call(client, 8) for talk in talks))
        assert [talk.now.error for talk in talks] == [None] * len(talks)
        assert served.terminate() == 0
    num_shortened = sum(talk.num_shortened for talk in talks)
    num_odd = sum(talk.num_odd for talk in talks)
    assert num_odd
    notice(
        f"{num_cut} streams cut by SIGKILL, {num_silent} of them before any content came; "
        f"{num_odd} had ids that their text does not lead back to, {num_shortened} went on without "
        "the blanks at their end"
    )


async def explained(served: Served, messages: list[Message], max_tokens: int = 8) -> Any:
    async with served.client() as client:
        return await client.chat.completions.create(
            model=MODEL,
            messages=messages,  # type: ignore[arg-type]
            max_completion_tokens=max_tokens,
            extra_body={"return_token_ids": True, "ignore_eos": True},
            extra_headers={"x-duramen-explain": "1"},
        )


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def descendants(pid: int) -> dict[int, str]:
    """Processes below `pid`, with their command lines."""
    found = {}
    for child in children(pid):
        with suppress(OSError):  # it has ended meanwhile
            found[child] = Path(f"/proc/{child}/cmdline").read_text()
            found |= descendants(child)
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds vLLM in /proc")
@pytest.mark.parametrize(
    "victim", ["api_server", pytest.param("EngineCore", marks=pytest.mark.long)]
)
@pytest.mark.timeout(600)
async def test_kill_9_of_vllm(
    tiny_model: Path, tmp_path: Path, encode: Encode, decode: Decode, victim: str
) -> None:
    """Calls end in an error that a client understands; the next vLLM starts with an empty cache,
    which the gateway knows, and the conversations go on where they were."""
    store = tmp_path / "sessions.sqlite"
    arguments = [str(tiny_model), "--model-name", MODEL, "--profile", "cpu", "--store", str(store)]
    talks = [Talk(fresh("word " * 100), encode, decode) for _ in range(3)]
    with serving(*arguments) as served:
        await served.ready()
        await kill_vllm_under(served, talks, victim)
        await wait_for(lambda: served.health()[0] == 503)
        async with served.client() as client:
            with pytest.raises(openai.InternalServerError) as caught:
                await client.chat.completions.create(model=MODEL, messages=[user("Hello.")])  # type: ignore[list-item]
            assert (caught.value.status_code, caught.value.code) == (503, "engine_unavailable")
            assert "retry-after" in caught.value.response.headers
        await served.ready()
        messages = talks[0].messages
        for cached_before in (False, True):
            answer = await explained(served, messages)
            check = Heard(prompt=answer.prompt_token_ids)
            assert talks[0].last is not None
            check_exact(talks[0].last, check.prompt, decode)
            told = answer.duramen
            expected = told["bounds"]["unit"] if cached_before else 0
            assert told["relation"] == ("retries" if cached_before else "extends")
            assert told["predicted_tokens"] == [expected, expected]
            assert told["delivered_tokens"] == expected
        assert expected >= UNIT
        async with served.client() as client:
            await asyncio.gather(*(talk.call(client, 8) for talk in talks[1:]))
        assert [talk.now.error for talk in talks[1:]] == [None, None]
        below = descendants(served.process.pid)
        assert served.terminate() == 0
    await wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below))


async def kill_vllm_under(served: Served, talks: Sequence[Talk], victim: str) -> None:
    """While all `talks` stream and one call waits for its whole answer."""
    async with served.client() as client:
        streams = [
            asyncio.create_task(talk.call(client, ENDLESS, ignore_eos=True)) for talk in talks
        ]
        whole = asyncio.create_task(explained(served, [user("Hello.")], ENDLESS))
        await wait_for(lambda: all(len(talk.now.sampled) > 20 for talk in talks))
        below = descendants(served.process.pid).items()
        named = [pid for pid, line in below if victim in line and "vllm.guard" not in line]
        os.kill(named[0], signal.SIGKILL)
        await asyncio.gather(*streams)
        with pytest.raises(openai.InternalServerError) as caught:
            await whole
    assert (caught.value.status_code, caught.value.code) == (503, "engine_unavailable")
    for talk in talks:
        assert isinstance(talk.now.error, openai.APIError)
        assert not isinstance(talk.now.error, openai.APIConnectionError)  # the stream ended in form
        assert talk.now.error.code == "engine_unavailable"


async def test_a_full_disk(
    live_server: VllmProcess, tmp_path: Path, encode: Encode, decode: Decode
) -> None:
    """A limit on the size of its files stands for one: writes beyond it fail. Calls go on from
    memory and /health says it; with space again new conversations are kept, and those of
    meanwhile are never half kept: the next gateway goes on with what is whole."""
    arguments = behind(live_server, tmp_path / "sessions.sqlite")
    old = Talk(fresh("Tell me of the sea."), encode, decode)
    new = Talk(fresh("Tell me of the wood."), encode, decode)
    with serving(*arguments) as served:
        await served.ready()
        async with served.client() as client:
            await old.call(client, 24)
            written, written_messages = old.last, old.messages
            assert written is not None
            limit_files(served, 1024)
            for _ in range(2):
                await old.call(client, 24)
            status, health = served.health()
            assert status == 200
            assert health["store"].startswith("cannot write the session store")
            limit_files(served, resource.RLIM_INFINITY)
            async with asyncio.timeout(60):
                while served.health()[1]["store"] != "ok":  # checkpoints are tried every 2 s
                    await old.call(client, 8)
            for _ in range(2):
                await new.call(client, 24)
        served.kill()
    with serving(*arguments) as served:
        await served.ready()
        answer = await explained(served, old.messages)
        assert answer.duramen["recorded_tokens"] >= len(written.prompt) + len(written.sampled)
        check_exact(written, answer.prompt_token_ids, decode)
        async with served.client() as client:
            await new.call(client, 8)
        assert (old.now.error, new.now.error) == (None, None)
        assert written_messages == old.messages[: len(written_messages)]


def limit_files(served: Served, num_bytes: int) -> None:
    """Python ignores SIGXFSZ, so a write beyond it fails with EFBIG."""
    _, hard = resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, (num_bytes, hard))
