"""What a quantised checkpoint's weights take: bits of each part of a layer."""

from typing import Any

import pytest
from model_configs import (
    DEEPSEEK_V3,
    GPT_OSS_20B,
    LLAMA_3_8B,
    MIXTRAL_8X7B,
    QWEN_3_NEXT_80B,
    Config,
)
from quantised_configs import FP8, MXFP4

from duramen.serving.kv.arch import Architecture, WeightBits

FP8_BITS = 8 + 32 / 128**2  # a float32 scale for each block
INT4 = {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "group_size": 32}}
COMPRESSED = {
    "quant_method": "compressed-tensors",
    "config_groups": {"group_0": INT4},
    "ignore": ["lm_head"],
}


def architecture(config: Config, quantised: Config) -> Architecture:
    return Architecture.from_config({**config, "quantization_config": quantised})


def bits(config: Config, quantised: Config) -> list[WeightBits | None]:
    """Of each layer."""
    return [layer.weight_bits for layer in architecture(config, quantised).layers]


@pytest.mark.parametrize(
    ("quantised", "expected"),
    [
        (FP8, FP8_BITS),
        ({"quant_method": "fp8"}, 8),
        ({"quant_method": "fbgemm_fp8"}, 8),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, 4 + 20 / 128),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 64}, 4 + 20 / 64),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, 8),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 4),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 8),
        (COMPRESSED, 4 + 16 / 32),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, 8),
        ({"quant_method": "modelopt", "quantization": {"quant_algo": "NVFP4"}}, 4 + 8 / 16),
    ],
)
def test_bits_per_weight(quantised: Config, expected: float) -> None:
    arch = architecture(LLAMA_3_8B, quantised)
    assert arch.unknown_weights is None
    assert {layer.weight_bits for layer in arch.layers} == {WeightBits(*[expected] * 3)}


def test_mxfp4_is_of_routed_experts() -> None:
    assert set(bits(GPT_OSS_20B, MXFP4)) == {WeightBits(16, 16, 4.25)}


@pytest.mark.parametrize(
    ("config", "kept", "expected"),
    [
        (LLAMA_3_8B, ["lm_head", "model.embed_tokens"], WeightBits(8, 8, 8)),
        (LLAMA_3_8B, ["model.layers.1.self_attn"], WeightBits(16, 8, 8)),
        (LLAMA_3_8B, ["model.layers.11.self_attn"], WeightBits(8, 8, 8)),
        (LLAMA_3_8B, ["layers.1.self_attn.q_proj", "layers.1.mlp.gate_proj"], WeightBits(8, 8, 8)),
        (LLAMA_3_8B, ["layers.1.mlp.down_proj"], WeightBits(8, 16, 8)),
        (LLAMA_3_8B, ["language_model.model.layers.1.mlp.down_proj"], WeightBits(8, 16, 8)),
        (LLAMA_3_8B, ["self_attn"], WeightBits(16, 8, 8)),
        (LLAMA_3_8B, ["model.layers.1"], WeightBits(16, 16, 16)),
        (LLAMA_3_8B, ["model.layers.*.self_attn"], WeightBits(16, 8, 8)),
        (LLAMA_3_8B, ["*self_attn*"], WeightBits(16, 8, 8)),
        (LLAMA_3_8B, [r"re:.*self_attn.*"], WeightBits(16, 8, 8)),
        (LLAMA_3_8B, [r"re:.*mlp\.(gate|up|down)_proj"], WeightBits(8, 16, 8)),
        (MIXTRAL_8X7B, ["gate", "model.layers.1.block_sparse_moe.gate"], WeightBits(8, 8, 8)),
        (MIXTRAL_8X7B, ["model.layers.1.block_sparse_moe.experts"], WeightBits(8, 8, 16)),
        (QWEN_3_NEXT_80B, ["model.layers.1.mlp.shared_expert"], WeightBits(8, 16, 8)),
        (QWEN_3_NEXT_80B, ["model.layers.1.linear_attn"], WeightBits(16, 8, 8)),
        (QWEN_3_NEXT_80B, ["self_attn"], WeightBits(8, 8, 8)),  # layer 1 has linear attention
    ],
)
@pytest.mark.parametrize("key", ["modules_to_not_convert", "ignore", "ignored_layers"])
def test_what_is_kept_as_it_was(
    config: Config, kept: list[str], expected: WeightBits, key: str
) -> None:
    """Of layer 1."""
    assert bits(config, {"quant_method": "fp8", key: kept})[1] == expected


def test_experts_alone_in_four_bits() -> None:
    """As Kimi's are: everything else is named."""
    kept = [
        "lm_head",
        r"re:.*self_attn.*",
        r"re:.*shared_experts.*",
        r"re:.*mlp\.(gate|up|gate_up|down)_proj.*",
    ]
    layers = bits(DEEPSEEK_V3, {**COMPRESSED, "ignore": kept})
    assert layers[0] == WeightBits(16, 16, 4.5)  # which has none
    assert layers[3] == WeightBits(16, 16, 4.5)


def test_groups_of_targets() -> None:
    groups = {
        "group_0": {"targets": ["re:.*self_attn.*"], "weights": {"num_bits": 8, "type": "int"}},
        "group_1": {
            "targets": [r"re:.*\.experts\..*"],
            "weights": {"num_bits": 4, "type": "float", "group_size": 16},
        },
        "group_2": {"targets": ["Linear"], "weights": None},
    }
    found = bits(DEEPSEEK_V3, {"quant_method": "compressed-tensors", "config_groups": groups})
    assert set(found) == {WeightBits(8, 16, 4.5)}


@pytest.mark.parametrize("quantised", [None, {}])
def test_nothing_is_quantised(quantised: Any) -> None:
    arch = architecture(LLAMA_3_8B, quantised)
    assert arch == Architecture.from_config(LLAMA_3_8B)


@pytest.mark.parametrize(
    ("quantised", "named"),
    [
        ({"quant_method": "quark"}, "'quark'"),
        ({"bits": 4}, "None"),
        ({"quant_method": "gptq"}, "'gptq'"),
        ({"quant_method": "gptq", "bits": 4, "dynamic": {"+:.*down.*": {"bits": 8}}}, "'gptq'"),
        ({"quant_method": "compressed-tensors"}, "'compressed-tensors'"),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "'modelopt'"),
    ],
)
def test_what_is_not_understood_is_named(quantised: Config, named: str) -> None:
    arch = architecture(LLAMA_3_8B, quantised)
    assert (
        arch.unknown_weights == f"how many bits a weight has with quant_method {named} is not known"
    )
    assert {layer.weight_bits for layer in arch.layers} == {None}
