"""The real engine: what is sent is what runs, and what is predicted is what is delivered."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from mirror_cases import predict

from duramen.layout.errors import EngineError, RequestError
from duramen.serving.vllm.engine import VllmEngine, attach
from duramen.serving.vllm.http import KEEP_ALIVE_S
from duramen.serving.vllm.launch import VllmProcess
from duramen.serving.vllm.protocol import Completion, Sampling
from duramen.serving.vllm.seam import ChatSeam, GenerateSeam, Seam

pytestmark = pytest.mark.live

Encode = Callable[[str], list[int]]
Decode = Callable[[list[int]], str]

QUESTION = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
STORY = "<|im_start|>user\nTell me a long story about a ship.<|im_end|>\n<|im_start|>assistant\n"
READ = {
    "type": "function",
    "function": {
        "name": "read",
        "description": "Read a file.",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
    },
}
EXAMPLES = "".join(
    f"<|im_start|>user\nRead {path}<|im_end|>\n<|im_start|>assistant\n<tool_call>\n"
    f'{{"name": "read", "arguments": {{"path": "{path}"}}}}\n</tool_call><|im_end|>\n'
    for path in ("a.py", "b.py", "c.py", "d.py")
)


def test_a_connection_is_left_before_vllm_closes_it() -> None:
    from vllm import envs

    assert KEEP_ALIVE_S < envs.VLLM_HTTP_TIMEOUT_KEEP_ALIVE


@pytest.fixture(params=[ChatSeam, GenerateSeam])
def seam(request: pytest.FixtureRequest, live_engine: VllmEngine) -> Seam:
    """Both ways through: what one promises the other must keep."""
    made: Seam = request.param(live_engine._http, live_engine.info.model)
    return made


async def run(seam: Seam, token_ids: list[int], sampling: Sampling, **more: Any) -> Completion:
    return await seam.run(token_ids, sampling, more.get("tools", ()), "", None)


async def test_answers_and_streams_what_it_sampled(
    live_engine: VllmEngine, encode: Encode, decode: Decode
) -> None:
    pieces: list[tuple[tuple[int, ...], str]] = []
    done = await live_engine.complete(
        encode(QUESTION), Sampling(max_tokens=30), on_tokens=lambda *piece: pieces.append(piece)
    )
    assert done.message == {"role": "assistant", "content": "The capital of France is Paris."}
    assert tuple(i for ids, _ in pieces for i in ids) == done.token_ids
    assert "".join(text for _, text in pieces) == done.message["content"]
    assert (done.prompt_tokens, done.cached_tokens) == (len(encode(QUESTION)), 0)
    assert len(done.itl_s) == len(pieces) - 1


async def test_ids_that_no_encoding_gives_run_as_they_are(
    live_engine: VllmEngine, encode: Encode
) -> None:
    letters = [i for letter in "capital" for i in encode(letter)]
    assert letters != encode("capital")
    prompt = encode(QUESTION.partition("capital")[0]) + letters + encode(" of France?<|im_end|>\n")
    done = await live_engine.complete(prompt, Sampling(max_tokens=1))
    assert done.prompt_tokens == len(prompt)  # and the seam compared every id


async def test_ending_by_eos(seam: Seam, encode: Encode, live_engine: VllmEngine) -> None:
    done = await run(seam, encode(QUESTION), Sampling(max_tokens=30))
    assert (done.finish_reason, done.stop_reason) == ("stop", None)
    assert list(done.token_ids) == [*encode("The capital of France is Paris."), 2]
    assert live_engine.info.eos_token_ids == (2,)
    assert done.message["content"] == "The capital of France is Paris."


async def test_ending_by_length(seam: Seam, encode: Encode) -> None:
    done = await run(seam, encode(QUESTION), Sampling(max_tokens=4))
    assert (done.finish_reason, done.stop_reason) == ("length", None)
    assert list(done.token_ids) == encode("The capital of France")
    assert done.message["content"] == "The capital of France"


async def test_ending_by_stop_string(seam: Seam, encode: Encode) -> None:
    done = await run(seam, encode(QUESTION), Sampling(max_tokens=30, stop=("ance",)))
    assert (done.finish_reason, done.stop_reason) == ("stop", "ance")
    assert list(done.token_ids) == encode("The capital of France")  # the whole last token
    assert done.message["content"] == "The capital of Fr"


async def test_eos_alone_is_an_empty_message(seam: Seam, encode: Encode) -> None:
    said = encode(QUESTION) + encode("The capital of France is Paris.")
    done = await run(seam, said, Sampling(max_tokens=5))
    assert done.token_ids == (2,)
    assert done.message == {"role": "assistant", "content": None}


async def test_ending_by_tool_call(seam: Seam, encode: Encode, decode: Decode) -> None:
    prompt = encode(EXAMPLES + "<|im_start|>user\nRead e.py<|im_end|>\n<|im_start|>assistant\n")
    done = await run(seam, prompt, Sampling(max_tokens=60), tools=[READ])
    assert done.finish_reason == "tool_calls"
    assert done.token_ids[-1] == 2
    assert decode(list(done.token_ids)).endswith("</tool_call><|im_end|>")
    (call,) = done.message["tool_calls"]
    assert call["function"]["name"] == "read"
    assert json.loads(call["function"]["arguments"]) == {"path": "e.py"}
    assert not done.message["content"]


async def test_serial_predicted_is_delivered(live_engine: VllmEngine, encode: Encode) -> None:
    """A conversation with sampled ids fed back: each call hits all that the last one computed."""
    assert live_engine.mirror is not None
    prompt, computed, hits = encode(STORY), 0, []
    for turn in range(4):
        predicted = predict(live_engine.mirror, prompt)
        done = await live_engine.complete(prompt, Sampling(max_tokens=40, min_tokens=40))
        assert done.cached_tokens == predicted == computed // 32 * 32
        assert await live_engine.settle([*prompt, *done.token_ids[:-1]])
        computed = len(prompt) + len(done.token_ids) - 1
        hits.append(done.cached_tokens)
        prompt = [*prompt, *done.token_ids, *encode(f"\n<|im_start|>user\nGo on, {turn}.")]
    assert hits[0] == 0
    assert hits == sorted(set(hits))


async def test_salt_separates(live_engine: VllmEngine, encode: Encode) -> None:
    assert live_engine.mirror is not None
    prompt = encode(STORY * 4)
    for salt, cached in (("a", 0), ("b", 0), ("", 0), ("a", 64)):
        done = await live_engine.complete(prompt, Sampling(max_tokens=1), salt=salt)
        assert await live_engine.settle(prompt, salt)
        assert done.cached_tokens == cached
        assert predict(live_engine.mirror, prompt, salt) == 64
    assert predict(live_engine.mirror, prompt, "c") == 0


async def test_reset_empties_cache_and_mirror(live_engine: VllmEngine, encode: Encode) -> None:
    assert live_engine.mirror is not None
    prompt = encode(STORY * 4)
    await live_engine.complete(prompt, Sampling(max_tokens=1))
    assert await live_engine.reset_prefix_cache()
    assert predict(live_engine.mirror, prompt) == 0
    assert (await live_engine.complete(prompt, Sampling(max_tokens=1))).cached_tokens == 0


async def test_a_late_connection_replays_the_past(
    live_engine: VllmEngine, live_server: VllmProcess, encode: Encode
) -> None:
    prompt = encode(STORY * 4)
    await live_engine.complete(prompt, Sampling(max_tokens=1))
    late = await attach(live_server.url, events=live_server.events)
    try:
        assert late.mirror is not None
        assert predict(late.mirror, prompt) == 64
    finally:
        await late.close()


async def test_concurrent_calls(live_engine: VllmEngine, encode: Encode) -> None:
    prompts = [encode(f"{STORY}Once, {i}") for i in range(8)]
    sampling = Sampling(max_tokens=8, min_tokens=8)
    together = await asyncio.gather(*(live_engine.complete(p, sampling) for p in prompts))
    assert [len(done.token_ids) for done in together] == [8] * 8
    assert [done.prompt_tokens for done in together] == [len(p) for p in prompts]


async def test_a_call_that_is_given_up_ends_in_the_engine(
    live_engine: VllmEngine, encode: Encode
) -> None:
    begun = asyncio.Event()
    sampling = Sampling(max_tokens=2000, min_tokens=2000)
    call = asyncio.create_task(
        live_engine.complete(encode(STORY), sampling, on_tokens=lambda *_: begun.set())
    )
    await begun.wait()
    assert not await live_engine.reset_prefix_cache()  # it holds blocks
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    async with asyncio.timeout(30):
        while not await live_engine.reset_prefix_cache():
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("prompt", "reason"), [([5] * 8192, "400"), ([5] * 9000, "8192"), ([60_000], "60000")]
)
async def test_refusals(seam: Seam, prompt: list[int], reason: str) -> None:
    with pytest.raises(RequestError, match=reason) as refused:
        await run(seam, prompt, Sampling(max_tokens=1))
    assert refused.value.status == 400
    assert "\n" not in str(refused.value)


async def test_attach_checks_the_model(live_server: VllmProcess) -> None:
    with pytest.raises(EngineError, match="does not serve 'gpt'"):
        await attach(live_server.url, model="gpt")
