"""Bytes of KV cache per token against published and measured figures."""

import pytest

from duramen.serving.kv.footprint import kv_bytes_per_token

LLAMA_8B = {
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (LLAMA_8B, 131_072),
        (
            {**LLAMA_8B, "num_hidden_layers": 80, "num_attention_heads": 64, "hidden_size": 8192},
            327_680,
        ),
        (
            {"num_hidden_layers": 64, "num_key_value_heads": 8, "head_dim": 128},
            262_144,
        ),  # Qwen3-32B
        ({**LLAMA_8B, "num_key_value_heads": None}, 524_288),  # every head its own
        ({**LLAMA_8B, "sliding_window": 4096, "use_sliding_window": False}, 131_072),
        ({**LLAMA_8B, "sliding_window": 4096}, None),
        ({**LLAMA_8B, "kv_lora_rank": 512}, None),
        ({**LLAMA_8B, "layer_types": ["linear_attention"]}, None),
        ({**LLAMA_8B, "num_hidden_layers": "32"}, None),
        ({**LLAMA_8B, "num_hidden_layers": 0}, None),
        ({}, None),
    ],
)
def test_bytes_per_token(config, expected):
    assert kv_bytes_per_token(config) == expected


def test_the_demo_model(smollm2):
    from duramen.layout.tokenizer_files import read_json

    assert kv_bytes_per_token(read_json(smollm2 / "config.json")) == 23_040
