"""Bytes per token and sequence against published and hand-computed figures."""

from pathlib import Path
from typing import Any

import pytest
from model_configs import (
    BAMBA_9B,
    DEEPSEEK_V3,
    DEEPSEEK_V32,
    FALCON_H1_0_5B,
    GEMMA_3_27B,
    GLM_5_2,
    GPT_OSS_20B,
    JAMBA_V01,
    LFM_2_1_2B,
    LLAMA_3_8B,
    LLAMA_3_70B,
    LLAMA_4_SCOUT,
    MISTRAL_7B_V01,
    NEMOTRON_H_8B,
    QWEN_2_5_7B,
    QWEN_3_32B,
    QWEN_3_NEXT_80B,
    Config,
)

from duramen.layout.errors import ModelError
from duramen.layout.tokenizer_files import read_json
from duramen.serving.kv.arch import Architecture
from duramen.serving.kv.footprint import Footprint, KvDtype, other_attentions
from duramen.serving.kv.pages import Pages, lay_out

GIB = 2**30
NVFP4_CACHE = {"quant_method": "modelopt", "kv_cache_quant_algo": "NVFP4"}


def footprint(config: Config, num_ranks: int = 1, kv_dtype: str = "auto") -> Footprint:
    return Footprint.of(Architecture.from_config(config), num_ranks, KvDtype(kv_dtype))


def pages(config: Config, block_tokens: int = 16, num_ranks: int = 1) -> Pages:
    return lay_out(footprint(config, num_ranks), block_tokens)


@pytest.mark.parametrize(
    ("config", "bytes_per_token", "beyond_window"),
    [
        (LLAMA_3_8B, 131_072, 131_072),
        (LLAMA_3_70B, 327_680, 327_680),
        (QWEN_2_5_7B, 57_344, 57_344),
        (QWEN_3_32B, 262_144, 262_144),
        (DEEPSEEK_V3, 70_272, 70_272),
        (DEEPSEEK_V32, 70_272 + 61 * 132, 70_272 + 61 * 132),  # 128 bytes and a scale per layer
        (GLM_5_2, 78 * 1152 + 21 * 132, 78 * 1152 + 21 * 132),  # 57 layers go by another's indexer
        (GEMMA_3_27B, 507_904, 81_920),
        (GPT_OSS_20B, 49_152, 24_576),
        (LLAMA_4_SCOUT, 196_608, 49_152),
        (MISTRAL_7B_V01, 131_072, 0),
        (QWEN_3_NEXT_80B, 24_576, 24_576),
    ],
)
def test_bytes_per_token(config: Config, bytes_per_token: int, beyond_window: int) -> None:
    found = footprint(config)
    assert found.bytes_per_token == bytes_per_token
    assert found.bytes_per_token_beyond_window == beyond_window


def test_the_demo_model(smollm2: Path) -> None:
    found = footprint(read_json(smollm2 / "config.json"))
    assert (found.bytes_per_token, found.is_proportional) == (23_040, True)


def test_layers_that_share_keys_keep_nothing() -> None:
    gemma: dict[str, Any] = {**GEMMA_3_27B["text_config"], "num_kv_shared_layers": 20}
    assert footprint(gemma).bytes_per_token == 42 * 8192


@pytest.mark.parametrize(
    ("kv_dtype", "keys", "latent"),
    [
        ("auto", 4096, 1152),
        ("bfloat16", 4096, 1152),
        ("float16", 4096, 1152),
        ("fp8", 2048, 576),
        ("fp8_e4m3", 2048, 576),
        ("fp8_e5m2", 2048, 576),
        ("fp8_per_token_head", 2048 + 16 * 4, 576 + 8),
        ("int8_per_token_head", 2048 + 16 * 4, 576 + 8),
        ("int4_per_token_head", 1024 + 16 * 4, 288 + 8),
        ("nvfp4", 1024 + 16 * 8, None),
        ("fp8_ds_mla", None, 656),
    ],
)
def test_formats(kv_dtype: str, keys: int | None, latent: int | None) -> None:
    """Of one layer: 8 KV heads of 128 values, keys and values; a latent of 512 and 64."""
    for config, expected in ((LLAMA_3_8B, keys), (DEEPSEEK_V3, latent)):
        if expected is None:
            with pytest.raises(ModelError, match=f"{kv_dtype} is (no|a) format for latents"):
                footprint(config, kv_dtype=kv_dtype)
        else:
            num_layers = config["num_hidden_layers"]
            found = footprint(config, kv_dtype=kv_dtype).bytes_per_token
            assert found == num_layers * expected


def test_a_format_of_16_bits_replaces_the_models_own() -> None:
    wide = {**LLAMA_3_8B, "torch_dtype": "float16"}
    assert footprint(wide, kv_dtype="bfloat16").bytes_per_token == 131_072


def test_a_quantised_checkpoints_format_is_the_models_own() -> None:
    quantised = {
        **LLAMA_3_8B,
        "quantization_config": {"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"},
    }
    assert footprint(quantised).bytes_per_token == 65_536
    assert footprint(quantised, kv_dtype="bfloat16").bytes_per_token == 131_072


@pytest.mark.parametrize(
    ("config", "kv_dtype", "expected"),
    [
        ({}, "auto", "bfloat16"),
        ({"torch_dtype": "float16"}, "auto", "float16"),
        ({"torch_dtype": "float32"}, "auto", "bfloat16"),
        ({"quantization_config": NVFP4_CACHE}, "auto", "nvfp4"),
        ({"quantization_config": NVFP4_CACHE}, "fp8", "fp8"),
    ],
)
def test_what_auto_comes_to(config: Config, kv_dtype: str, expected: str) -> None:
    arch = Architecture.from_config({**LLAMA_3_8B, **config})
    assert KvDtype(kv_dtype).of(arch) == expected


def test_states_take_no_cache_format() -> None:
    own, small = footprint(QWEN_3_NEXT_80B), footprint(QWEN_3_NEXT_80B, kv_dtype="fp8")
    assert small.bytes_per_token * 2 == own.bytes_per_token
    assert small.state_bytes_per_sequence == own.state_bytes_per_sequence


@pytest.mark.parametrize(
    ("config", "state_bytes"),
    [
        (LLAMA_3_8B, 0),
        (QWEN_3_NEXT_80B, 36 * (8192 * 3 + 32 * 128 * 128) * 2),
        (JAMBA_V01, 28 * (8192 * 3 + 8192 * 16) * 2),
        (NEMOTRON_H_8B, 24 * (10_240 * 3 * 2 + 128 * 64 * 128 * 4)),  # float32 beside bfloat16
        (LFM_2_1_2B, 10 * 2048 * 2 * 2),
        (FALCON_H1_0_5B, 36 * (1792 * 3 + 24 * 64 * 128) * 2),
    ],
)
def test_states(config: Config, state_bytes: int) -> None:
    assert footprint(config).state_bytes_per_sequence == state_bytes


@pytest.mark.parametrize(
    ("config", "num_ranks", "bytes_per_token", "state_bytes"),
    [
        (LLAMA_3_8B, 2, 65_536, 0),
        (LLAMA_3_8B, 8, 16_384, 0),
        (LLAMA_3_8B, 32, 16_384, 0),  # each KV head stands on four ranks
        (DEEPSEEK_V3, 8, 70_272, 0),  # the latent stands whole on every rank
        (QWEN_3_NEXT_80B, 2, 12_288, 36 * (4096 * 3 + 16 * 128 * 128) * 2),
        (QWEN_3_NEXT_80B, 4, 12_288, 36 * (2048 * 3 + 8 * 128 * 128) * 2),
        (NEMOTRON_H_8B, 4, 4096, 24 * (2560 * 3 * 2 + 32 * 64 * 128 * 4)),
        # one group of B and C, 2 x 128 channels, on both ranks beside half of 8192
        (BAMBA_9B, 2, 6144, 29 * ((4096 + 256) * 3 + 64 * 64 * 128) * 2),
    ],
)
def test_each_rank(config: Config, num_ranks: int, bytes_per_token: int, state_bytes: int) -> None:
    found = footprint(config, num_ranks)
    assert found.bytes_per_token == bytes_per_token
    assert found.state_bytes_per_sequence == state_bytes


@pytest.mark.parametrize(
    ("config", "num_ranks", "said"),
    [
        (LLAMA_3_8B, 3, "32 attention heads cannot be split 3 ways"),
        ({**LLAMA_3_8B, "num_attention_heads": 24, "head_dim": 128}, 12, "8 KV heads cannot be"),
        (DEEPSEEK_V3, 3, "128 attention heads cannot be split 3 ways"),
        ({**BAMBA_9B, "mamba_n_groups": 3}, 2, "3 groups cannot be split 2 ways"),
    ],
)
def test_what_cannot_be_split(config: Config, num_ranks: int, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        footprint(config, num_ranks)


def test_nvfp4_shares_a_scale_between_16_values() -> None:
    with pytest.raises(ModelError, match="multiple of 16 values, not 72"):
        footprint({**LLAMA_3_8B, "head_dim": 72}, kv_dtype="nvfp4")


@pytest.mark.parametrize(
    ("config", "num_tokens", "expected"),
    [
        (LLAMA_3_8B, 1000, 131_072_000),
        (GPT_OSS_20B, 100, 100 * 49_152),
        (GPT_OSS_20B, 1000, 128 * 24_576 + 1000 * 24_576),
        (QWEN_3_NEXT_80B, 10, 10 * 24_576 + 39_518_208),
    ],
)
def test_a_sequence(config: Config, num_tokens: int, expected: int) -> None:
    assert footprint(config).bytes_at(num_tokens) == expected


def test_other_attentions_of_one_shape() -> None:
    """80 layers of 64 heads of 128 values: 2,560, 320 and 40 KiB; a latent of 576."""
    per_token = {
        name: found.bytes_per_token
        for name, found in other_attentions(Architecture.from_config(LLAMA_3_70B)).items()
    }
    assert per_token == {
        "mha": 2560 * 1024,
        "gqa": 320 * 1024,
        "mqa": 40 * 1024,
        "mla": 80 * 576 * 2,
    }
    deepseek = other_attentions(Architecture.from_config(DEEPSEEK_V3))
    assert deepseek["mla"].bytes_per_token == 70_272
    assert deepseek["mha"].bytes_per_token == 61 * 128 * (192 + 128) * 2


def test_heads_that_8_do_not_divide() -> None:
    odd = {**LLAMA_3_8B, "num_attention_heads": 12, "num_key_value_heads": 4, "head_dim": 128}
    assert list(other_attentions(Architecture.from_config(odd))) == ["mha", "mqa", "mla"]


def test_one_kind_is_one_group() -> None:
    found = pages(LLAMA_3_8B)
    assert [len(group.pages) for group in found.groups] == [32]
    assert (found.unit_tokens, found.bytes_per_block) == (16, 16 * 131_072)


def test_latents_and_indexers_share_a_block_table() -> None:
    found = pages(DEEPSEEK_V32, 64)
    assert [len(group.pages) for group in found.groups] == [122]
    assert found.bytes_per_block == 64 * (70_272 + 61 * 132)


def test_windows_and_global_layers_share_a_pool() -> None:
    """10 global layers set the size of a group; 52 windowed ones make 6, two of them with room."""
    found = pages(GEMMA_3_27B)
    sizes = [(group.cache.kind, len(group.pages)) for group in found.groups]
    assert sizes == [("window", 9)] * 4 + [("window", 8)] * 2 + [("full", 10)]
    assert found.bytes_per_block == 10 * 16 * 8192


def test_a_hybrids_block_is_raised_until_a_state_fits() -> None:
    """A state of 1,097,728 bytes against 2,048 a token: 536 tokens, the next 16 is 544."""
    found = pages(QWEN_3_NEXT_80B)
    assert (found.block_tokens, found.unit_tokens) == (544, 544)
    states = [page for group in found.groups for page in group.pages if page.cache.is_state]
    assert {(page.page_bytes, page.padding_bytes) for page in states} == {(1_114_112, 16_384)}
    assert pages(QWEN_3_NEXT_80B, 528).block_tokens == 1056
    assert pages(QWEN_3_NEXT_80B, 1024).block_tokens == 1024


def test_pages_of_other_sizes_take_more_tokens_or_are_padded() -> None:
    """Windowed layers with heads of other sizes than the global ones have."""
    full, small, odd = (
        footprint({**MISTRAL_7B_V01, "head_dim": size, "sliding_window": window}).caches[0]
        for size, window in ((128, None), (64, 512), (48, 512))
    )
    halved = lay_out(Footprint((full, small)), 16)
    assert [group.block_tokens for group in halved.groups] == [16, 32]
    assert halved.unit_tokens == 32
    padded = lay_out(Footprint((full, odd)), 16)
    assert [group.pages[0].padding_bytes for group in padded.groups] == [0, 16 * (4096 - 1536)]
    assert padded.unit_tokens == 16


@pytest.mark.parametrize(
    ("config", "num_tokens", "num_blocks"),
    [
        (LLAMA_3_8B, 16, 1),
        (LLAMA_3_8B, 17, 2),
        (GPT_OSS_20B, 16, 1 + 2),  # a window may begin inside a block
        (GPT_OSS_20B, 10_000, 625 + 9),
        (LLAMA_4_SCOUT, 100_000, 6250 + 3 * 513),  # a chunk goes when the next has begun
        (LLAMA_4_SCOUT, 100, 7 + 3 * 7),
        (QWEN_3_NEXT_80B, 1, 1 + 3 * 2),  # two states for each of three groups
        (QWEN_3_NEXT_80B, 545, 2 + 3 * 2),
    ],
)
def test_blocks_of_a_sequence(config: Config, num_tokens: int, num_blocks: int) -> None:
    assert pages(config).blocks_at(num_tokens) == num_blocks


def test_what_fits() -> None:
    """20 GiB in blocks of 2 MiB: 10,240, and one is never used."""
    found = pages(LLAMA_3_8B)
    assert found.num_blocks(20 * GIB) == 10_239
    assert found.num_tokens(20 * GIB, 8192) == found.num_tokens(20 * GIB, 100) == 10_239 * 16
    assert found.num_sequences(20 * GIB, 8192) == 19
    assert found.num_tokens(1, 8192) == 0


def test_windows_leave_room() -> None:
    """24 layers of 2,048 B: half of them forget all but 128 tokens of 10,000."""
    found = pages(GPT_OSS_20B)
    assert found.num_blocks(GIB) == 2730 - 1
    assert found.num_sequences(GIB, 10_000) == 2729 // (625 + 9)
    assert found.num_tokens(GIB, 10_000) == 2729 * 10_000 // (625 + 9)


def test_a_model_that_keeps_nothing() -> None:
    with pytest.raises(ModelError, match="keeps neither"):
        lay_out(Footprint(()), 16)
