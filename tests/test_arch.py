"""One parse of config.json, against published models and the ways in which families say things."""

from collections import Counter
from contextlib import suppress
from typing import Any

import model_configs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_configs import (
    BAMBA_9B,
    COHERE_2_7B,
    DEEPSEEK_V3,
    DEEPSEEK_V32,
    FALCON_7B,
    FALCON_H1_0_5B,
    GEMMA_2_9B,
    GEMMA_3_27B,
    GLM_5_2,
    GPT_2,
    GPT_OSS_20B,
    GRANITE_4_H_TINY,
    JAMBA_V01,
    KIMI_LINEAR_48B,
    LFM_2_1_2B,
    LLAMA_3_8B,
    LLAMA_4_SCOUT,
    MINIMAX_TEXT_01,
    MISTRAL_7B_V01,
    MIXTRAL_8X7B,
    NEMOTRON_H_8B,
    QWEN_2_5_7B,
    QWEN_3_32B,
    QWEN_3_NEXT_80B,
    Config,
)
from quantised_configs import FLOAT_8, KV_FORMATS_OF_MODELOPT

from duramen.layout.errors import ModelError
from duramen.serving.kv.arch import (
    Architecture,
    Attention,
    Indexer,
    Latent,
    Layer,
    Mlp,
    State,
)
from duramen.serving.kv.footprint import Footprint
from duramen.serving.kv.pages import lay_out

MODELS = [value for name, value in vars(model_configs).items() if name.isupper()]


def parse(config: Config, **changes: Any) -> Architecture:
    return Architecture.from_config({**config, **changes})


def without(config: Config, *keys: str) -> Config:
    return {key: value for key, value in config.items() if key not in keys}


def windows(arch: Architecture) -> list[int]:
    """Indices of the layers with a window."""
    return [
        index
        for index, layer in enumerate(arch.layers)
        if isinstance(layer.mixer, Attention) and layer.mixer.window is not None
    ]


def attention_layers(arch: Architecture) -> list[int]:
    """Indices of the layers that keep something of each token."""
    mixers = [layer.mixer for layer in arch.layers]
    return [i for i, mixer in enumerate(mixers) if isinstance(mixer, Attention | Latent)]


def state(arch: Architecture) -> State:
    """The one that all of its states are like."""
    mixers = {layer.mixer for layer in arch.layers if isinstance(layer.mixer, State)}
    [found] = mixers | {layer.state_beside for layer in arch.layers if layer.state_beside}
    return found


def test_a_whole_architecture() -> None:
    layer = Layer(Attention(32, 8, 128, 128), Mlp(14_336, is_gated=True))
    assert parse(LLAMA_3_8B) == Architecture(
        model_type="llama",
        hidden_size=4096,
        vocab_size=128_256,
        layers=(layer,) * 32,
        dtype="bfloat16",
        is_tied=False,
    )


@pytest.mark.parametrize(
    ("config", "attention"),
    [
        (QWEN_3_32B, Attention(64, 8, 128, 128)),  # head_dim is not 5120 / 64
        (without(LLAMA_3_8B, "num_key_value_heads"), Attention(32, 32, 128, 128)),
        ({**LLAMA_3_8B, "head_dim": None}, Attention(32, 8, 128, 128)),
        (FALCON_7B, Attention(71, 1, 64, 64)),  # multi-query, though it names 71 KV heads
        (
            {**FALCON_7B, "new_decoder_architecture": True, "num_attention_heads": 142},
            Attention(142, 71, 32, 32),
        ),
        (GPT_2, Attention(12, 12, 64, 64)),
        (MIXTRAL_8X7B, Attention(32, 8, 128, 128)),  # its window is null
        (QWEN_2_5_7B, Attention(28, 4, 128, 128)),  # its window is not used
        (without(QWEN_2_5_7B, "use_sliding_window"), Attention(28, 4, 128, 128)),
        (MISTRAL_7B_V01, Attention(32, 8, 128, 128, window=4096)),
        ({**MISTRAL_7B_V01, "sliding_window": None}, Attention(32, 8, 128, 128)),
        (
            {**MISTRAL_7B_V01, "num_key_value_heads": None},
            Attention(32, 32, 128, 128, window=4096),
        ),
        (without(MISTRAL_7B_V01, "sliding_window"), Attention(32, 8, 128, 128, window=4096)),
        ({**MISTRAL_7B_V01, "sliding_window": 0}, Attention(32, 8, 128, 128)),
    ],
)
def test_attention(config: Config, attention: Attention) -> None:
    assert {layer.mixer for layer in parse(config).layers} == {attention}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (GEMMA_2_9B, [i for i in range(42) if i % 2 == 0]),
        (GEMMA_3_27B, [i for i in range(62) if i % 6 != 5]),
        (GPT_OSS_20B, list(range(0, 24, 2))),
        (without(GPT_OSS_20B, "layer_types"), list(range(0, 24, 2))),
        (COHERE_2_7B, [i for i in range(32) if i % 4 != 3]),
        (without(COHERE_2_7B, "sliding_window_pattern"), [i for i in range(32) if i % 4 != 3]),
        ({**COHERE_2_7B, "sliding_window_pattern": 2}, list(range(0, 32, 2))),
        ({**COHERE_2_7B, "sliding_window_pattern": "LLLG"}, [i for i in range(32) if i % 4 != 3]),
        ({**QWEN_2_5_7B, "use_sliding_window": True, "max_window_layers": 21}, list(range(21, 28))),
        ({**QWEN_2_5_7B, "use_sliding_window": True}, []),
        ({**GPT_OSS_20B, "sliding_window": None}, []),
        ({**MISTRAL_7B_V01, "model_type": "vaultgemma"}, list(range(0, 32, 2))),
        ({**MISTRAL_7B_V01, "model_type": "cwm"}, [i for i in range(32) if i % 4]),
        ({**MISTRAL_7B_V01, "model_type": "granite_swa"}, [i for i in range(32) if i % 4]),
        ({**MISTRAL_7B_V01, "model_type": "mellum"}, []),
        ({**MISTRAL_7B_V01, "model_type": "dots1"}, []),
        ({**MISTRAL_7B_V01, "model_type": "dots1", "max_window_layers": 30}, [30, 31]),
        (LLAMA_4_SCOUT, [i for i in range(48) if i % 4 != 3]),
        (
            {**MISTRAL_7B_V01, "model_type": "afmoe", "global_attn_every_n_layers": 4},
            [i for i in range(32) if i % 4 != 3],
        ),
        (
            {"model_type": "llama4", "text_config": {**LLAMA_4_SCOUT["text_config"],
             "no_rope_layers": [0, 1] * 24}},
            list(range(1, 48, 2)),
        ),
    ],
)  # fmt: skip
def test_which_layers_have_a_window(config: Config, expected: list[int]) -> None:
    assert windows(parse(config)) == expected


def test_what_a_window_counts() -> None:
    """Cohere's counts the tokens before the one at hand; Llama 4's is a chunk."""
    assert parse(COHERE_2_7B).layers[0].mixer == Attention(32, 8, 128, 128, window=4097)
    chunked = Attention(40, 8, 128, 128, window=8192, is_chunked=True)
    assert parse(LLAMA_4_SCOUT).layers[0].mixer == chunked


def test_latents() -> None:
    latent = Latent(128, 512, 64, 128, 128, 1536)
    assert {layer.mixer for layer in parse(DEEPSEEK_V3).layers} == {latent}
    [direct] = {layer.mixer for layer in parse(DEEPSEEK_V3, q_lora_rank=None).layers}
    assert direct == Latent(128, 512, 64, 128, 128)


def test_latents_that_are_switched_off() -> None:
    """The smallest DeepSeek-VL2 has the keys of latents, and keeps keys and values."""
    latents = {
        "kv_lora_rank": None,
        "q_lora_rank": None,
        "qk_nope_head_dim": 0,
        "qk_rope_head_dim": 0,
        "v_head_dim": 0,
    }
    arch = parse({**LLAMA_3_8B, "model_type": "deepseek_v2", **latents})
    assert {layer.mixer for layer in arch.layers} == {Attention(32, 8, 128, 128)}


def indexed(config: Config, **changes: Any) -> list[int]:
    """Indices of the layers with an indexer."""
    mixers = [layer.mixer for layer in parse(config, **changes).layers]
    return [i for i, mixer in enumerate(mixers) if isinstance(mixer, Latent) and mixer.indexer]


def test_indexers_and_the_layers_that_go_by_an_earlier_one() -> None:
    [mixer] = {layer.mixer for layer in parse(DEEPSEEK_V32).layers}
    assert isinstance(mixer, Latent)
    assert mixer.indexer == Indexer(64, 128, 2048)
    assert indexed(DEEPSEEK_V32, num_hidden_layers=9, index_topk_freq=4) == [0, 1, 5]
    assert indexed(DEEPSEEK_V32, num_hidden_layers=4, index_topk_pattern="FSSF") == [0, 3]


def test_indexers_as_transformers_writes_them() -> None:
    new = parse(DEEPSEEK_V32, layer_types=["indexed_attention"] * 61, head_dim=64)
    old = parse(DEEPSEEK_V32, layer_types=["deepseek_sparse_attention"] * 61)
    assert new == old == parse(DEEPSEEK_V32)
    assert indexed(GLM_5_2) == [0, 1, *range(2, 78, 4)]  # every list says the same
    assert parse(GLM_5_2) == parse(without(GLM_5_2, "indexer_types"))
    assert len(indexed(DEEPSEEK_V32, indexer_types=["full"] * 61)) == 61


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (QWEN_3_NEXT_80B, list(range(3, 48, 4))),
        ({**QWEN_3_NEXT_80B, "full_attention_interval": 6}, list(range(5, 48, 6))),
        (JAMBA_V01, [4, 12, 20, 28]),
        (BAMBA_9B, [9, 18, 27]),
        (NEMOTRON_H_8B, [7, 18, 29, 40]),
        (GRANITE_4_H_TINY, [5, 15, 25, 35]),
        (FALCON_H1_0_5B, list(range(36))),
        (LFM_2_1_2B, [2, 5, 8, 10, 12, 14]),
        (MINIMAX_TEXT_01, list(range(7, 80, 8))),
        (KIMI_LINEAR_48B, [3, 7, 11, 15, 19, 23, 26]),
    ],
)
def test_which_layers_of_a_hybrid_attend(config: Config, expected: list[int]) -> None:
    assert attention_layers(parse(config)) == expected


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (
            QWEN_3_NEXT_80B,
            State("gated-delta-net", (8192, 3), (32, 128, 128), "bfloat16", "bfloat16"),
        ),
        (JAMBA_V01, State("mamba1", (8192, 3), (8192, 16), "bfloat16", "bfloat16")),
        (BAMBA_9B, State("mamba2", (8448, 3), (128, 64, 128), "bfloat16", "bfloat16", 1)),
        (
            {**BAMBA_9B, "mamba_d_head": "auto"},
            State("mamba2", (8448, 3), (128, 64, 128), "bfloat16", "bfloat16", 1),
        ),
        (NEMOTRON_H_8B, State("mamba2", (10_240, 3), (128, 64, 128), "bfloat16", "float32", 8)),
        (
            {**NEMOTRON_H_8B, "mamba_ssm_cache_dtype": "float16"},
            State("mamba2", (10_240, 3), (128, 64, 128), "bfloat16", "float16", 8),
        ),
        (GRANITE_4_H_TINY, State("mamba2", (3328, 3), (48, 64, 128), "bfloat16", "bfloat16", 1)),
        (FALCON_H1_0_5B, State("mamba2", (1792, 3), (24, 64, 128), "bfloat16", "bfloat16", 1)),
        (LFM_2_1_2B, State("short-conv", (2048, 2), (), "bfloat16", "bfloat16")),
        (MINIMAX_TEXT_01, State("linear-attention", (), (64, 128, 128), "bfloat16", "bfloat16")),
        (KIMI_LINEAR_48B, State("kimi-delta", (12_288, 3), (32, 128, 128), "bfloat16", "float32")),
    ],
)
def test_states(config: Config, expected: State) -> None:
    assert state(parse(config)) == expected


def test_the_flat_form_of_kimi_linear() -> None:
    """As transformers writes it, where head_dim is that of the rotated part."""
    flat = {
        "head_dim": 64,
        "layer_types": [
            "full_attention" if i in (3, 7, 11, 15, 19, 23, 26) else "linear_attention"
            for i in range(27)
        ],
        "linear_conv_kernel_dim": 4,
        "linear_head_dim": 128,
        "linear_num_heads": 32,
    }
    arch = parse({**without(KIMI_LINEAR_48B, "linear_attn_config"), **flat})
    assert arch == parse(KIMI_LINEAR_48B)


@pytest.mark.parametrize(
    ("quantised", "kv_format"),
    [
        ({"quant_method": "fp8"}, None),
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": None}, None),
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": FLOAT_8}, "fp8"),
        *KV_FORMATS_OF_MODELOPT,
        ({"quant_method": "awq", "kv_cache_quant_algo": "FP8"}, None),
    ],
)
def test_what_a_quantised_checkpoint_keeps(quantised: Config, kv_format: str | None) -> None:
    assert parse(LLAMA_3_8B, quantization_config=quantised).kv_format == kv_format


def test_latents_heed_the_scheme_of_modelopt_alone() -> None:
    """vLLM looks for that of compressed-tensors where keys and values are kept."""
    for method, kv_format in (("compressed-tensors", None), ("modelopt", "fp8_e4m3")):
        quantised = {"quant_method": method, "kv_cache_scheme": FLOAT_8}
        assert parse(DEEPSEEK_V3, quantization_config=quantised).kv_format == kv_format


def test_layers_of_nemotron_h_are_one_thing_each() -> None:
    layers = parse(NEMOTRON_H_8B).layers
    kinds = Counter(type(layer.mixer or layer.mlp).__name__ for layer in layers)
    assert kinds == {"State": 24, "Attention": 4, "Mlp": 24}
    assert all((layer.mixer is None) != (layer.mlp is None) for layer in layers)
    assert layers[1].mlp == Mlp(21_504, is_gated=False)


@pytest.mark.parametrize(
    ("config", "index", "expected"),
    [
        (DEEPSEEK_V3, 2, Mlp(18_432, is_gated=True)),
        (DEEPSEEK_V3, 3, Mlp(2048, True, 256, 8, 2048)),
        ({**DEEPSEEK_V3, "moe_layer_freq": 2}, 5, Mlp(18_432, is_gated=True)),
        (MIXTRAL_8X7B, 0, Mlp(14_336, True, 8, 2)),
        (GPT_OSS_20B, 0, Mlp(2880, True, 32, 4)),
        (QWEN_3_NEXT_80B, 0, Mlp(512, True, 512, 10, 512)),
        ({**QWEN_3_NEXT_80B, "decoder_sparse_step": 2}, 0, Mlp(5120, is_gated=True)),
        ({**QWEN_3_NEXT_80B, "decoder_sparse_step": 2}, 1, Mlp(512, True, 512, 10, 512)),
        ({**QWEN_3_NEXT_80B, "mlp_only_layers": [7]}, 7, Mlp(5120, is_gated=True)),
        (JAMBA_V01, 0, Mlp(14_336, is_gated=True)),
        (JAMBA_V01, 1, Mlp(14_336, True, 16, 2)),
        (GRANITE_4_H_TINY, 0, Mlp(512, True, 64, 6, 1024)),
        ({**GRANITE_4_H_TINY, "num_local_experts": 0}, 0, Mlp(1024, is_gated=True)),
        (LLAMA_4_SCOUT, 0, Mlp(8192, True, 16, 1, 8192)),
        (KIMI_LINEAR_48B, 0, Mlp(9216, is_gated=True)),
        (KIMI_LINEAR_48B, 1, Mlp(1024, True, 256, 8, 1024)),
        (LFM_2_1_2B, 0, Mlp(8192, is_gated=True)),  # two thirds of 12,288
        (GPT_2, 0, Mlp(3072, is_gated=False)),  # four times the hidden size
        (FALCON_7B, 0, Mlp(18_176, is_gated=False)),
        ({**LLAMA_3_8B, "model_type": "qwen"}, 0, Mlp(7168, is_gated=True)),  # halves of it
    ],
)
def test_mlp(config: Config, index: int, expected: Mlp) -> None:
    assert parse(config).layers[index].mlp == expected


@pytest.mark.parametrize(
    ("config", "dtype", "is_tied"),
    [
        (LLAMA_3_8B, "bfloat16", False),
        ({**LLAMA_3_8B, "torch_dtype": "float16"}, "float16", False),
        ({**without(LLAMA_3_8B, "torch_dtype"), "dtype": "float16"}, "float16", False),
        ({**LLAMA_3_8B, "torch_dtype": "float32"}, "bfloat16", False),
        (GPT_OSS_20B, "bfloat16", False),  # says nothing
        (GEMMA_3_27B, "bfloat16", True),  # outside the text's part, and the class's own
        (GPT_2, "bfloat16", True),
    ],
)
def test_dtype_and_ties(config: Config, dtype: str, is_tied: bool) -> None:
    arch = parse(config)
    assert (arch.dtype, arch.is_tied) == (dtype, is_tied)


def test_a_model_that_leaves_much_to_its_class() -> None:
    """Gemma 3 4B's config names neither heads nor head sizes nor its vocabulary."""
    text = {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10_240,
        "num_hidden_layers": 34,
        "sliding_window": 1024,
    }
    arch = Architecture.from_config({"model_type": "gemma3", "text_config": text})
    assert (arch.vocab_size, len(windows(arch))) == (262_208, 29)
    assert arch.layers[5].mixer == Attention(8, 4, 256, 256)


@pytest.mark.parametrize("key", ["text_config", "llm_config", "language_config"])
def test_nested_text_models(key: str) -> None:
    outer = {"model_type": "vlm", "hidden_size": 1, "tie_word_embeddings": True}
    inner = without(LLAMA_3_8B, "tie_word_embeddings")
    arch = Architecture.from_config({**outer, key: inner})
    assert (arch.model_type, arch.hidden_size, arch.is_tied) == ("llama", 4096, True)
    assert arch.layers == parse(LLAMA_3_8B).layers


def test_shapes_are_those_of_the_text_part_alone() -> None:
    """What the whole says of heads is another part's."""
    inner = without(LLAMA_3_8B, "tie_word_embeddings")
    outer = {"model_type": "vlm", "head_dim": 1280, "num_kv_shared_layers": 4}
    assert parse({**outer, "text_config": inner}).layers == parse(LLAMA_3_8B).layers


def test_the_last_layers_of_gemma_3n_keep_nothing() -> None:
    text = {
        "model_type": "gemma3n_text",
        "hidden_size": 2048,
        "intermediate_size": [16_384] * 5,
        "num_attention_heads": 8,
        "num_hidden_layers": 5,
        "num_key_value_heads": 2,
        "num_kv_shared_layers": 2,
        "vocab_size": 262_400,
    }
    mixers = [layer.mixer for layer in Architecture.from_config(text).layers]
    shared = [mixer.is_kv_shared for mixer in mixers if isinstance(mixer, Attention)]
    assert shared == [False, False, False, True, True]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, "model_type is missing"),
        (without(LLAMA_3_8B, "num_hidden_layers"), "num_hidden_layers or n_layer .* is missing"),
        (without(LLAMA_3_8B, "hidden_size"), "hidden_size or .* is missing"),
        (without(LLAMA_3_8B, "num_attention_heads"), "num_attention_heads or .* is missing"),
        (without(LLAMA_3_8B, "intermediate_size"), "intermediate_size is missing"),
        (without(LLAMA_3_8B, "vocab_size"), "vocab_size or .* is missing"),
        ({**LLAMA_3_8B, "num_hidden_layers": "32"}, "num_hidden_layers .* is '32', not a whole"),
        ({**LLAMA_3_8B, "num_hidden_layers": 0}, "num_hidden_layers .* is missing"),
        ({**LLAMA_3_8B, "num_hidden_layers": True}, "is True, not a whole number"),
        ({**LLAMA_3_8B, "num_key_value_heads": 5}, "32 attention heads cannot share 5 KV heads"),
        (
            {**LLAMA_3_8B, "num_attention_heads": 24},
            "no head_dim is given, and 24 heads do not divide 4096",
        ),
        ({**LLAMA_3_8B, "num_key_value_heads": [8, 4]}, r"num_key_value_heads .* is \[8, 4\]"),
        ({**LLAMA_3_8B, "torch_dtype": "int3"}, "torch_dtype is 'int3', none of"),
        ({**LLAMA_3_8B, "tie_word_embeddings": "no"}, "tie_word_embeddings is 'no', neither"),
        ({**LLAMA_3_8B, "kv_lora_rank": 512}, "kv_lora_rank is set, but how this model_type"),
        ({**LLAMA_3_8B, "mamba_d_state": 16}, "mamba_d_state speaks of layers"),
        ({**LLAMA_3_8B, "layer_types": ["retention"] * 32}, "layer_types names 'retention'"),
        ({**LLAMA_3_8B, "layer_types": ["full_attention"]}, "layer_types lists 1 layers, not 32"),
        ({**LLAMA_3_8B, "layer_types": "full_attention"}, "layer_types is no list of str"),
        ({**LLAMA_3_8B, "layer_types": ["linear_attention"] * 32}, "model_type is none whose"),
        ({**LLAMA_3_8B, "attn_type_list": [0] * 32}, "attn_type_list names linear attention"),
        ({**LLAMA_3_8B, "is_encoder_decoder": True}, "is_encoder_decoder is true"),
        ({**LLAMA_3_8B, "model_type": "bert"}, "model_type or .* is an encoder's"),
        ({**LLAMA_3_8B, "model_type": "deberta-v2"}, "is an encoder's"),
        ({**LLAMA_3_8B, "type_vocab_size": 0}, "type_vocab_size is an encoder's"),
        ({**LLAMA_3_8B, "model_type": "a\nb"}, "model_type is missing, or no word"),
        ({**LLAMA_3_8B, "num_hidden_layers": 10**9}, "1,000,000,000 layers are more than 10,000"),
        ({**LLAMA_3_8B, "num_hidden_layers": "x" * 10**5}, "is 'x{59}[.]{3}, not a whole number"),
        (without(MISTRAL_7B_V01, "num_key_value_heads"), "num_key_value_heads is missing"),
        (without(GEMMA_2_9B, "num_key_value_heads"), "num_key_value_heads is missing"),
        (without(DEEPSEEK_V3, "kv_lora_rank"), "kv_lora_rank is missing"),
        (without(DEEPSEEK_V3, "q_lora_rank"), "q_lora_rank is missing"),
        (without(DEEPSEEK_V32, "index_topk"), "index_topk is missing"),
        (
            {**GLM_5_2, "indexer_types": ["full"] * 78},
            "for layer 3 indexer_types is 'full', but index_topk_freq .* says otherwise",
        ),
        (without(GLM_5_2, "index_topk_freq"), "for layer 3 indexer_types is 'shared', but"),
        *(
            ({**without(LLAMA_3_8B, "num_key_value_heads"), "model_type": each}, "value_heads is m")
            for each in ("gemma", "qwen2", "stablelm", "csm", "paligemma", "exaone4", "a_new_one")
        ),
        ({**LLAMA_3_8B, "model_type": "gemma4_text"}, "a family whose layers are not known"),
        ({**LLAMA_3_8B, "per_layer_config": {"0": {"head_dim": 512}}}, "per_layer_config speaks"),
        (
            {**LLAMA_3_8B, "layer_types": ["indexed_attention"] * 32},
            "layers have indexers, which are known for latents only",
        ),
        (without(MIXTRAL_8X7B, "num_local_experts"), "num_experts or .* is missing"),
        (
            {
                **LLAMA_3_8B,
                "quantization_config": {
                    "quant_method": "compressed-tensors",
                    "kv_cache_scheme": {**FLOAT_8, "num_bits": 4},
                },
            },
            "kv_cache_scheme is not of 8-bit floats",
        ),
        (
            {**LLAMA_3_8B, "quantization_config": {"quant_method": "fp8", "ignore": ["re:("]}},
            "quantization_config: '\\(' is no pattern",
        ),
        (
            {**LLAMA_3_8B, "model_type": "olmo3", "layer_types": ["sliding_attention"] * 32},
            "sliding_window is missing",
        ),
        ({**LLAMA_3_8B, "index_head_dim": 128}, "layers have indexers, which are known for"),
        ({**LLAMA_3_8B, "num_key_value_heads_per_layer": [4] * 32}, "heads_per_layer speaks"),
        ({**LLAMA_3_8B, "attn_mode": "chunk"}, "attn_mode speaks of layers"),
        ({**LLAMA_3_8B, "use_cla": True}, "use_cla speaks of layers"),
        (without(DEEPSEEK_V3, "qk_rope_head_dim"), "qk_rope_head_dim is missing"),
        (without(JAMBA_V01, "attn_layer_offset"), "attn_layer_offset is missing"),
        (without(GRANITE_4_H_TINY, "layer_types"), "layer_types is missing"),
        (without(KIMI_LINEAR_48B, "linear_attn_config"), "linear_attn_config is missing"),
        ({**NEMOTRON_H_8B, "hybrid_override_pattern": "M-X"}, "hybrid_override_pattern is 'M-X'"),
        (without(MIXTRAL_8X7B, "num_experts_per_tok"), "num_experts_per_tok or .* is missing"),
    ],
)
def test_what_is_refused_is_named(config: Config, said: str) -> None:
    with pytest.raises(ModelError, match=said) as failed:
        Architecture.from_config(config)
    assert str(failed.value).startswith("config.json")
    assert "\n" not in str(failed.value)


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 200),
    st.floats(allow_nan=False),
    st.sampled_from(["", "x", "LLG", "M-*", "auto"]),
    st.lists(st.integers(-1, 3), max_size=3),
    st.lists(st.sampled_from(["full_attention", "x"]), max_size=3),
    st.dictionaries(st.sampled_from(["head_dim", "x"]), st.integers(0, 9), max_size=2),
)


@given(st.sampled_from(MODELS), st.data())
def test_whatever_a_config_holds_it_is_read_or_refused(config: Config, data: Any) -> None:
    text = config.get("text_config", config)
    keys = data.draw(st.lists(st.sampled_from(sorted(text)), min_size=1, max_size=3))
    changed = {**text, **{key: data.draw(JUNK, label=key) for key in keys}}
    with suppress(ModelError):
        arch = Architecture.from_config(changed)
        found = lay_out(Footprint.of(arch), 16)
        assert len(arch.layers) > 0
        assert found.num_tokens(2**30, 1000) >= 0
