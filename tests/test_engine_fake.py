"""The fake engine keeps the protocol's promises: deterministic ids, exact cache, true mirror."""

import asyncio

import pytest
from mirror_cases import predict

from duramen.layout.errors import LayoutError, RequestError
from duramen.serving.vllm.fake import EOS, FakeEngine
from duramen.serving.vllm.protocol import Engine, Sampling

PROMPT = list(range(100, 140))


def engine(**sizes: int) -> FakeEngine:
    return FakeEngine(lambda ids: "".join(f"<{i}>" for i in ids), block_size=4, **sizes)


async def test_same_prompt_same_answer_and_its_prefix_is_cached() -> None:
    fake: Engine = engine()
    first = await fake.complete(PROMPT, Sampling(max_tokens=8))
    assert fake.mirror is not None
    assert predict(fake.mirror, PROMPT) == 36  # 40 tokens: the last block is computed again
    second = await fake.complete(PROMPT, Sampling(max_tokens=8))
    assert (first.cached_tokens, second.cached_tokens) == (0, 36)
    assert first.token_ids == second.token_ids
    assert (len(first.token_ids), first.finish_reason) == (8, "length")
    assert first.message["content"] == "".join(f"<{i}>" for i in first.token_ids)


async def test_seed_counts_only_when_sampling() -> None:
    async def ids(temperature: float, seed: int) -> tuple[int, ...]:
        sampling = Sampling(max_tokens=8, temperature=temperature, seed=seed)
        return (await engine().complete(PROMPT, sampling)).token_ids

    assert await ids(0.0, 1) == await ids(0.0, 2)
    assert await ids(1.0, 1) != await ids(1.0, 2)
    assert await ids(1.0, 1) == await ids(1.0, 1)


async def test_eos_is_the_last_sampled_id_and_not_in_the_message() -> None:
    streamed: list[int] = []
    done = await engine().complete(
        PROMPT, Sampling(max_tokens=2000), on_tokens=lambda ids, text: streamed.extend(ids)
    )
    assert done.finish_reason == "stop"
    assert done.token_ids[-1] == EOS
    assert EOS not in done.token_ids[:-1]
    assert str(done.message["content"]).count("<") == len(done.token_ids) - 1
    assert tuple(streamed) == done.token_ids


async def test_salt_and_reset() -> None:
    fake = engine()
    await fake.complete(PROMPT, Sampling(max_tokens=1), salt="a")
    assert (await fake.complete(PROMPT, Sampling(max_tokens=1), salt="b")).cached_tokens == 0
    assert (await fake.complete(PROMPT, Sampling(max_tokens=1), salt="a")).cached_tokens == 36
    assert await fake.reset_prefix_cache()
    assert (await fake.complete(PROMPT, Sampling(max_tokens=1), salt="a")).cached_tokens == 0


async def test_predicted_equals_delivered_on_a_small_pool() -> None:
    fake = engine(num_kv_blocks=24)
    assert fake.mirror is not None
    delivered = []
    for turn in range(30):
        prompt = [100 + turn % 3, *PROMPT[: 20 + turn % 5 * 4]]
        predicted = predict(fake.mirror, prompt)
        done = await fake.complete(prompt, Sampling(max_tokens=6))
        assert await fake.settle([*prompt, *done.token_ids[:-1]])
        assert done.cached_tokens == predicted
        delivered.append(done.cached_tokens or 0)
    assert min(delivered[3:]) < 20  # every prompt had its first 20 tokens sent before
    assert max(delivered) > 20


async def test_concurrent_calls_on_a_pool_too_small_for_them_all_end() -> None:
    fake = engine(num_kv_blocks=24)
    prompts = [[200 + i, *PROMPT] for i in range(8)]
    calls = [fake.complete(prompt, Sampling(max_tokens=40, min_tokens=40)) for prompt in prompts]
    together = await asyncio.gather(*calls)
    alone = [await engine().complete(p, Sampling(max_tokens=40, min_tokens=40)) for p in prompts]
    assert [c.token_ids for c in together] == [c.token_ids for c in alone]


async def test_refuses_what_does_not_fit() -> None:
    fake = engine(max_model_len=64)
    with pytest.raises(RequestError, match="64 tokens leaves no room"):
        await fake.complete([100] * 64, Sampling(max_tokens=1))
    assert len((await fake.complete([100] * 62, Sampling(max_tokens=9))).token_ids) <= 2


@pytest.mark.parametrize("lengths", [(0, 0), (4, 5), (4, -1)])
def test_sampling_refuses_lengths_that_make_no_sense(lengths: tuple[int, int]) -> None:
    with pytest.raises(LayoutError, match="max_tokens"):
        Sampling(max_tokens=lengths[0], min_tokens=lengths[1])
