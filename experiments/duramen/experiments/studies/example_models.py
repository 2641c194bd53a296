"""Published models that stand for the sizes that worked examples speak of."""

from typing import Any

from duramen.serving.kv.arch import Architecture

_LLAMA_3_8B: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14_336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128_256,
    "dtype": "bfloat16",
}
_LLAMA_2_7B: dict[str, Any] = {
    **_LLAMA_3_8B,
    "intermediate_size": 11_008,
    "num_key_value_heads": 32,
    "vocab_size": 32_000,
    "dtype": "float16",
}
_LLAMA_3_70B: dict[str, Any] = {
    **_LLAMA_3_8B,
    "hidden_size": 8192,
    "intermediate_size": 28_672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
}
_DEEPSEEK_V2: dict[str, Any] = {
    "model_type": "deepseek_v2",
    "first_k_dense_replace": 1,
    "hidden_size": 5120,
    "intermediate_size": 12_288,
    "kv_lora_rank": 512,
    "moe_intermediate_size": 1536,
    "n_routed_experts": 160,
    "n_shared_experts": 2,
    "num_attention_heads": 128,
    "num_experts_per_tok": 6,
    "num_hidden_layers": 60,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 102_400,
    "dtype": "bfloat16",
}


def llama_2_7b() -> Architecture:
    return Architecture.from_config(_LLAMA_2_7B)


def llama_3_8b() -> Architecture:
    return Architecture.from_config(_LLAMA_3_8B)


def llama_3_70b() -> Architecture:
    return Architecture.from_config(_LLAMA_3_70B)


def llama_3_70b_multi_head() -> Architecture:
    """With as many KV heads as heads."""
    return Architecture.from_config({**_LLAMA_3_70B, "num_key_value_heads": 64})


def deepseek_v2() -> Architecture:
    return Architecture.from_config(_DEEPSEEK_V2)
