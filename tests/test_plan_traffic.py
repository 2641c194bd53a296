"""Traffic of `duramen plan`: when calls are sent, parts of it, larger blocks; and its pools."""

from dataclasses import replace

import pytest
from model_configs import QWEN_3_NEXT_80B
from plan_cases import BLOCK, PRESENT, poisson, sessions, trials

from duramen.experiments.plan.kv_pool import Blocks, KvPool
from duramen.experiments.plan.traffic import (
    ClosedTraffic,
    PoissonTraffic,
    RecordedTraffic,
    in_blocks,
    num_calls,
)
from duramen.experiments.studies.example_models import llama_3_8b
from duramen.experiments.timed.call import TimedCall
from duramen.layout.errors import DuramenError
from duramen.serving.kv.arch import Architecture
from duramen.serving.kv.footprint import KvDtype


def calls(number: int, session: str = "a") -> list[TimedCall]:
    return [TimedCall(session, index, range(7), 100, 10, 11) for index in range(number)]


def test_recorded_calls_come_at_their_times() -> None:
    traffic = RecordedTraffic([calls(2), calls(2, "b")], [[0.0, 5.0], [2.0, 10.0]])
    assert sorted(time_s for time_s, _ in traffic.arrivals(1).first()) == [0, 2, 5, 10]
    assert traffic.rate_per_s == 0.4
    assert traffic.faster(2.0).rate_per_s == 0.8
    part = traffic.prefix(3)
    assert (num_calls(part), part.due_s) == (3, [[0.0, 5.0], [2.0]])


def test_poisson_sessions_begin_at_random_and_go_on_after_an_answer() -> None:
    many = PoissonTraffic([calls(2) for _ in range(2000)], rate_per_s=4.0, think_s=1.5)
    assert many.starts_s[-1] == pytest.approx(500, rel=0.1)
    assert many.faster(4.0).starts_s == pytest.approx([each / 4 for each in many.starts_s])
    assert many.prefix(21).starts_s == many.starts_s[:11]
    arrivals = many.prefix(2).arrivals(1)
    ((start_s, first),) = arrivals.first()
    assert (start_s, first.index) == (many.starts_s[0], 0)
    ((next_s, second),) = arrivals.answered(first, 20.0)
    assert (next_s, second.index) == (21.5, 1)
    assert arrivals.answered(second, 30.0) == ()


def test_closed_traffic_takes_whole_sessions() -> None:
    traffic = ClosedTraffic([calls(3), calls(3), calls(3)], concurrency=2)
    assert traffic.rate_per_s is None
    assert [num_calls(traffic.prefix(number)) for number in (1, 3, 4, 9)] == [3, 3, 6, 9]
    assert len(traffic.arrivals(1).first()) == 2


def test_keys_of_larger_blocks_stand_for_all_before_them() -> None:
    ((call,),) = in_blocks([calls(1)], 3)
    assert call.keys == range(2, 7, 3)


def test_larger_blocks_reuse_less() -> None:
    """A session alone in a large cache reuses whole blocks of all that it computed before."""

    def cached(block_size: int) -> int:
        setting = replace(PRESENT, block_size=block_size)
        return trials().run(setting, poisson(6, 0.01)).cached_tokens

    def expected(block_size: int) -> int:
        return sum(
            (before.num_prompt + before.num_outputs - 1) // block_size * block_size
            for session in sessions(6)
            for before in session[:-1]
        )

    sizes = (BLOCK, 4 * BLOCK, 16 * BLOCK)
    assert [cached(each) for each in sizes] == [expected(each) for each in sizes]


LLAMA = KvPool(llama_3_8b(), memory_bytes=2**30)  # 131,072 bytes a token


def test_pool_of_memory() -> None:
    assert LLAMA.blocks(16, KvDtype.AUTO) == Blocks(16, 511)  # one is never used
    assert LLAMA.blocks(64, KvDtype.AUTO) == Blocks(64, 127)
    assert LLAMA.blocks(16, KvDtype.FP8) == Blocks(16, 1023)
    assert replace(LLAMA, num_ranks=2).blocks(16, KvDtype.AUTO) == Blocks(16, 1023)


def test_pool_of_tokens() -> None:
    assert KvPool(kv_tokens=1000).blocks(16, KvDtype.AUTO) == Blocks(16, 62)
    assert KvPool().blocks(32, KvDtype.AUTO) == Blocks(32, None)
    with_model = replace(LLAMA, memory_bytes=None, kv_tokens=1000)
    assert with_model.blocks(16, KvDtype.AUTO) == Blocks(16, 62)
    assert with_model.blocks(16, KvDtype.FP8) == Blocks(16, 125)
    as_fp8 = replace(with_model, measured=KvDtype.FP8)
    assert as_fp8.blocks(16, KvDtype.AUTO) == Blocks(16, 31)


def test_pool_of_a_hybrid_has_blocks_of_its_match_unit() -> None:
    arch = Architecture.from_config(QWEN_3_NEXT_80B)
    blocks = KvPool(arch, memory_bytes=8 * 2**30, context=20_000).blocks(16, KvDtype.AUTO)
    assert blocks.unit_tokens == 544
    assert blocks.num_tokens == 544 * (blocks.num_blocks or 0) > 20_000


def test_what_needs_a_model_says_so() -> None:
    with pytest.raises(DuramenError, match="--memory needs a model"):
        KvPool(memory_bytes=2**30)
    with pytest.raises(DuramenError, match="--kv-dtype needs a model"):
        KvPool(kv_tokens=1000).blocks(16, KvDtype.FP8)
