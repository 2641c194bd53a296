"""FLOPs, bytes and weights by hand, against published totals, and as properties over splits."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_configs import (
    BAMBA_9B,
    DEEPSEEK_V3,
    DEEPSEEK_V32,
    FALCON_H1_0_5B,
    GEMMA_3_27B,
    GPT_OSS_20B,
    JAMBA_V01,
    KIMI_LINEAR_48B,
    LFM_2_1_2B,
    LLAMA_3_8B,
    LLAMA_3_70B,
    LLAMA_4_SCOUT,
    MINIMAX_TEXT_01,
    MIXTRAL_8X7B,
    QWEN_3_32B,
    QWEN_3_NEXT_80B,
    Config,
)
from quantised_configs import FP8, MXFP4

from duramen.layout.errors import LayoutError, ModelError
from duramen.serving.kv.arch import Architecture
from duramen.serving.kv.footprint import Footprint, KvDtype
from duramen.serving.kv.work import (
    Ttft,
    Work,
    attended_pairs,
    decode_work,
    num_params,
    prefill_work,
    step_work,
    textbook_flops,
)

GPT_OSS_120B: Config = {
    **GPT_OSS_20B,
    "layer_types": ["sliding_attention", "full_attention"] * 18,
    "num_hidden_layers": 36,
    "num_local_experts": 128,
}


def arch(config: Config) -> Architecture:
    return Architecture.from_config(config)


# --- weights


@pytest.mark.parametrize(
    ("config", "total", "active"),
    [
        (LLAMA_3_8B, "8.03", None),
        (LLAMA_3_70B, "70.55", None),
        (QWEN_3_32B, "32.76", None),
        (MIXTRAL_8X7B, "46.70", "12.75"),  # 12.88 with the embedding
        (DEEPSEEK_V3, "671.03", "36.62"),
        (GPT_OSS_20B, "20.91", "3.61"),
        (GPT_OSS_120B, "116.79", "5.13"),  # its experts have 0.04 of biases
    ],
)
def test_published_totals(config: Config, total: str, active: str | None) -> None:
    """Billions. Published: 8.03, 70.6, 32.8, 46.7/12.9, 671/37, 20.91/3.61, 116.83/5.13."""
    found = num_params(arch(config))
    assert f"{found.total / 1e9:.2f}" == total
    if active is None:
        assert found.active == found.total - found.embedding
    else:
        assert f"{found.active / 1e9:.2f}" == active


def test_a_tied_head_counts_once() -> None:
    model = arch(GEMMA_3_27B)
    tied, untied = num_params(model), num_params(replace(model, is_tied=False))
    assert tied.embedding == 5376 * 262_208
    assert untied.total - tied.total == tied.embedding
    assert untied.active == tied.active == tied.total


def test_a_model_with_other_matrices_is_refused() -> None:
    gemma = {**GEMMA_3_27B["text_config"], "model_type": "gemma3n_text"}
    with pytest.raises(ModelError, match="gemma3n_text"):
        num_params(arch(gemma))


# --- pairs


def attended_one_by_one(new: int, context: int, window: int | None, is_chunked: bool) -> int:
    def is_attended(query: int, key: int) -> bool:
        if window is None:
            return True
        return query // window == key // window if is_chunked else query - key < window

    queries = range(context, context + new)
    return sum(is_attended(query, key) for query in queries for key in range(query + 1))


@given(
    new=st.integers(1, 30),
    context=st.integers(0, 40),
    window=st.none() | st.integers(1, 20),
    is_chunked=st.booleans(),
)
def test_pairs(new: int, context: int, window: int | None, is_chunked: bool) -> None:
    expected = attended_one_by_one(new, context, window, is_chunked)
    assert attended_pairs(new, context, window, is_chunked) == expected


# --- FLOPs


def test_llama_by_hand() -> None:
    found = prefill_work(arch(LLAMA_3_8B), 8192)
    per_layer = 4096 * (4096 + 1024 + 1024) + 4096 * 4096 + 3 * 4096 * 14_336
    assert found.linear_flops == 2 * 32 * per_layer * 8192
    assert found.attention_flops == 32 * 4 * 4096 * (8192 * 8193 // 2)
    assert found.lm_head_flops == 2 * 4096 * 128_256
    assert found.num_flops == 131_944_593_489_920


def test_textbook() -> None:
    linear, attention = textbook_flops(num_layers=32, hidden_size=4096, num_tokens=8192)
    assert (linear, attention) == (105_553_116_266_496, 35_184_372_088_832)


def test_the_exact_model_meets_the_textbook_where_that_is_true() -> None:
    """An MLP of two matrices of 4d, multi-head attention: linear equal, attention a causal half."""
    plain = {
        **LLAMA_3_8B,
        "model_type": "gpt_neox",
        "intermediate_size": 4 * 4096,
        "num_key_value_heads": 32,
    }
    found = prefill_work(arch(plain), 1000)
    linear, attention = textbook_flops(32, 4096, 1000)
    assert found.linear_flops == linear
    assert found.attention_flops * 2 * 1000 == attention * 1001


def test_windows_bound_what_a_token_attends_to() -> None:
    gemma = arch(GEMMA_3_27B)  # 52 layers of 1,024 tokens, 10 without bound
    near, far = decode_work(gemma, 100_000), decode_work(gemma, 100_001)
    assert far.attention_flops - near.attention_flops == 10 * 4 * 32 * 128
    whole = decode_work(gemma, 1022).attention_flops
    assert decode_work(gemma, 1023).attention_flops - whole == 62 * 4 * 32 * 128


def test_chunked_attention_starts_anew() -> None:
    scout = arch(LLAMA_4_SCOUT)  # 36 layers of chunks of 8,192, 12 without bound
    last, first = decode_work(scout, 8191), decode_work(scout, 8192)
    per_pair = 4 * 40 * 128
    assert last.attention_flops == 48 * 8192 * per_pair
    assert first.attention_flops == (36 * 1 + 12 * 8193) * per_pair


def test_latents_absorbed_and_naive() -> None:
    deepseek = arch(DEEPSEEK_V3)
    up_projection = 2 * 61 * 512 * 128 * (128 + 128)
    naive = prefill_work(deepseek, 100, 900, max_absorbed_tokens=0)
    absorbed = prefill_work(deepseek, 100, 900, max_absorbed_tokens=100)
    assert naive == prefill_work(deepseek, 100, 900)
    assert naive.linear_flops - absorbed.linear_flops == up_projection * 900
    pairs = 100 * 900 + 5050
    assert naive.attention_flops == 61 * 2 * pairs * 128 * (128 + 64 + 128)
    assert absorbed.attention_flops == 61 * 2 * pairs * 128 * (512 + 64 + 512)
    assert decode_work(deepseek, 900) == prefill_work(deepseek, 1, 900)
    assert decode_work(deepseek, 900).attention_flops == 61 * 2 * 901 * 128 * (512 + 64 + 512)


def test_sparse_latents_attend_to_what_the_indexer_picks() -> None:
    found = decode_work(arch(DEEPSEEK_V32), 9_999)
    picked = 2 * 2048 * 128 * (512 + 64 + 512)
    indexed = 2 * 10_000 * 64 * 128
    assert found.attention_flops == 61 * (picked + indexed)
    short = prefill_work(arch(DEEPSEEK_V32), 100, 900)  # picks all, and is absorbed all the same
    assert short == prefill_work(arch(DEEPSEEK_V32), 100, 900, max_absorbed_tokens=100)
    shared = arch({**DEEPSEEK_V32, "index_topk_freq": 61})  # one indexer for all layers
    assert decode_work(shared, 9_999).attention_flops == 61 * picked + 2 * indexed


@pytest.mark.parametrize(
    ("config", "recurrence"),
    [
        (QWEN_3_NEXT_80B, 36 * 6 * 32 * 128 * 128),
        (KIMI_LINEAR_48B, 20 * 6 * 32 * 128 * 128),
        (BAMBA_9B, 29 * 4 * 128 * 64 * 128),
        (JAMBA_V01, 28 * 4 * 8192 * 16),
        (MINIMAX_TEXT_01, 70 * 4 * 64 * 128 * 128),
        (LFM_2_1_2B, 0),
    ],
)
def test_a_state_costs_the_same_at_any_length(config: Config, recurrence: int) -> None:
    model = arch(config)
    found = decode_work(model, 5000)
    weights = num_params(model).active - num_params(model).embedding
    assert found.linear_flops == 2 * weights + recurrence
    assert found.linear_flops == decode_work(model, 0).linear_flops


@given(st.sets(st.integers(1, 199), max_size=5), st.sampled_from(["gqa", "window", "mla"]))
def test_chunked_prefill_computes_the_same(cuts: set[int], kind: str) -> None:
    """But for the head, which each chunk runs, and latents that are projected up again."""
    configs = {"gqa": LLAMA_3_8B, "window": {**GPT_OSS_20B, "sliding_window": 50}}
    model = arch(configs.get(kind, DEEPSEEK_V3))
    edges = [0, *sorted(cuts), 200]
    parts = [
        prefill_work(model, end - start, start, max_absorbed_tokens=200)
        for start, end in pairwise(edges)
    ]
    whole = prefill_work(model, 200, max_absorbed_tokens=200)
    assert sum(part.linear_flops for part in parts) == whole.linear_flops
    assert sum(part.attention_flops for part in parts) == whole.attention_flops
    assert sum(part.lm_head_flops for part in parts) == whole.lm_head_flops * len(parts)


def test_a_batch_computes_what_its_sequences_compute_and_reads_weights_once() -> None:
    model = arch(DEEPSEEK_V3)
    batch = step_work(model, [(1, 500), (1, 90), (64, 0)])
    alone = [decode_work(model, 500), decode_work(model, 90), prefill_work(model, 64)]
    assert batch.linear_flops == sum(each.linear_flops for each in alone)
    assert batch.attention_flops == sum(each.attention_flops for each in alone)
    assert batch.lm_head_flops == sum(each.lm_head_flops for each in alone)
    assert batch.kv_bytes == sum(each.kv_bytes for each in alone)
    read = [each.weight_bytes or 0 for each in alone]
    assert max(read) < (batch.weight_bytes or 0) < sum(read)


@pytest.mark.parametrize("chunk", [(0, 5), (-1, 5), (3, -1)])
def test_a_chunk_that_cannot_be(chunk: tuple[int, int]) -> None:
    with pytest.raises(LayoutError, match=f"a chunk of {chunk[0]} new tokens behind {chunk[1]}"):
        step_work(arch(LLAMA_3_8B), [chunk])


# --- bytes


def test_weights_of_a_dense_model_are_read_whole() -> None:
    model = arch(LLAMA_3_8B)
    found = {decode_work(model, 10).weight_bytes, prefill_work(model, 999).weight_bytes}
    assert found == {2 * num_params(model).active}


def test_experts_are_read_as_far_as_the_batch_is_expected_to_need_them() -> None:
    model = arch(MIXTRAL_8X7B)
    per_expert = 3 * 4096 * 14_336
    rest = num_params(model).active - 32 * 2 * per_expert
    assert decode_work(model, 10).weight_bytes == 2 * num_params(model).active
    two = step_work(model, [(1, 10), (1, 10)])
    assert two.weight_bytes == 2 * (rest + 32 * 7 * per_expert // 2)  # 8 * (1 - (6/8)**2) = 3.5
    many = prefill_work(model, 10_000)
    assert many.weight_bytes == 2 * (rest + 32 * 8 * per_expert)


def test_the_published_bytes_of_gpt_oss() -> None:
    """Of gpt-oss-20b's safetensors files 10,152,345,600 bytes are experts in MXFP4; the rest is in
    bfloat16."""
    model = arch({**GPT_OSS_20B, "quantization_config": MXFP4})
    experts = 24 * 32 * 3 * 2880 * 2880
    others = num_params(model).total - num_params(model).embedding - experts
    assert prefill_work(model, 10_000).weight_bytes == 10_152_345_600 + 2 * others
    assert decode_work(model, 0).weight_bytes == 10_152_345_600 * 4 // 32 + 2 * others


def test_the_published_bytes_of_deepseek_v3() -> None:
    """Of its files' 688,586,727,753 bytes 17 MB are names and vectors. They hold a 62nd layer, for
    drafts, with two square matrices and an embedding and a head of its own."""
    model = arch({**DEEPSEEK_V3, "quantization_config": FP8})
    draft = arch({**DEEPSEEK_V3, "quantization_config": FP8, "num_hidden_layers": 62})
    head = 2 * num_params(model).embedding
    with_draft = prefill_work(draft, 10_000).weight_bytes
    assert with_draft is not None
    whole = with_draft + 3 * head + 2 * 2 * 7168**2
    assert whole == pytest.approx(688_586_727_753, rel=3e-5)
    routers = 58 * 7168 * 256
    quantised = num_params(model).active - num_params(model).embedding - routers
    expected = head + 2 * routers + quantised * (8 + 2**-9) / 8
    assert decode_work(model, 0).weight_bytes == round(expected)


def test_weights_that_are_quantised_in_an_unknown_way() -> None:
    """All else is known."""
    model = arch({**LLAMA_3_8B, "quantization_config": {"quant_method": "quark"}})
    found, plain = decode_work(model, 10), decode_work(arch(LLAMA_3_8B), 10)
    assert found.weight_bytes is None
    assert (found.num_flops, found.kv_bytes) == (plain.num_flops, plain.kv_bytes)
    ttft = Ttft(0.0, 1e15, 0.5, 0.5, 1e12)
    with pytest.raises(ModelError, match="quant_method 'quark' is not known"):
        ttft.seconds(found)


@pytest.mark.parametrize("config", [LLAMA_3_8B, DEEPSEEK_V3, QWEN_3_32B])
@pytest.mark.parametrize("kv_dtype", [KvDtype.AUTO, KvDtype.FP8])
def test_the_context_is_read_and_new_tokens_written(config: Config, kv_dtype: KvDtype) -> None:
    per_token = Footprint.of(arch(config), kv_dtype=kv_dtype).bytes_per_token
    found = prefill_work(arch(config), 30, 70, kv_dtype=kv_dtype)
    assert found.kv_bytes == per_token * 100
    assert decode_work(arch(config), 99, kv_dtype=kv_dtype).kv_bytes == per_token * 100


def test_windows_are_read_as_far_as_they_reach() -> None:
    gemma, beyond = arch(GEMMA_3_27B), 81_920
    within = 507_904 - beyond
    assert decode_work(gemma, 5000).kv_bytes == 507_904 + 5000 * beyond + 1023 * within
    scout = arch(LLAMA_4_SCOUT)
    assert decode_work(scout, 8192).kv_bytes == 196_608 + 8192 * 49_152
    assert decode_work(scout, 8200).kv_bytes == 196_608 + 8200 * 49_152 + 8 * (196_608 - 49_152)


def test_states_are_read_and_written_whole() -> None:
    model = arch(FALCON_H1_0_5B)
    footprint = Footprint.of(model)
    state, per_token = footprint.state_bytes_per_sequence, footprint.bytes_per_token
    assert prefill_work(model, 50).kv_bytes == state + 50 * per_token
    assert prefill_work(model, 50, 50).kv_bytes == 2 * state + 100 * per_token


def test_sparse_latents_are_read_as_far_as_they_are_picked() -> None:
    latent, indexer = 61 * 576 * 2, 61 * 132
    found = decode_work(arch(DEEPSEEK_V32), 10_000)
    assert found.kv_bytes == latent + indexer + 2048 * latent + 10_000 * indexer
    found = prefill_work(arch(DEEPSEEK_V32), 5, 10_000)
    assert found.kv_bytes == 5 * (latent + indexer) + 10_000 * (latent + indexer)


def test_layers_that_share_keys_read_them_and_write_none() -> None:
    llama, shared = arch(LLAMA_3_8B), arch({**LLAMA_3_8B, "num_kv_shared_layers": 8})
    assert decode_work(llama, 100).kv_bytes == 101 * 131_072
    assert decode_work(shared, 100).kv_bytes == 100 * 131_072 + 24 * 4096
    assert decode_work(shared, 100).attention_flops == decode_work(llama, 100).attention_flops
    assert num_params(llama).total - num_params(shared).total == 8 * 4096 * 2 * 1024


# --- time


def test_ttft_is_the_sum_of_its_parts() -> None:
    work = Work(3000, 500, 1000, 70, 30)
    ttft = Ttft(
        fixed_s=0.5, peak_flops_per_s=1000, linear_mfu=0.5, attention_mfu=0.25, bytes_per_s=50
    )
    assert (work.num_flops, work.num_bytes) == (4500, 100)
    assert ttft.seconds(work) == 0.5 + 8 + 2 + 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("fixed_s", -1.0),
        ("fixed_s", math.nan),
        ("peak_flops_per_s", 0.0),
        ("bytes_per_s", math.inf),
        ("linear_mfu", 1.5),
        ("attention_mfu", 0.0),
    ],
)
def test_a_model_of_time_that_cannot_be(name: str, value: float) -> None:
    fields = {
        "fixed_s": 0.0,
        "peak_flops_per_s": 1.0,
        "linear_mfu": 1.0,
        "attention_mfu": 1.0,
        "bytes_per_s": 1.0,
    }
    with pytest.raises(LayoutError, match=name):
        Ttft(**{**fields, name: value})
