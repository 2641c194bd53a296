"""Bytes of KV cache per token, from a model's config.json.

Only what every layer of plain multi-head or grouped-query attention keeps: 2 x layers x KV heads x
head size x 2 bytes (bf16). Other kinds (latent, windowed, linear attention) are refused.
"""

from collections.abc import Mapping
from typing import Any

_OTHER_KINDS = ("kv_lora_rank", "layer_types", "sliding_window_pattern", "full_attention_interval")
_BF16_BYTES = 2


def kv_bytes_per_token(config: Mapping[str, Any]) -> int | None:
    """None where the config does not say, or describes another kind of attention."""
    if any(config.get(name) for name in _OTHER_KINDS):
        return None
    if config.get("sliding_window") and config.get("use_sliding_window", True):
        return None
    heads = _count(config, "num_attention_heads")
    layers = _count(config, "num_hidden_layers")
    kv_heads = _count(config, "num_key_value_heads") or heads
    hidden = _count(config, "hidden_size")
    head_size = _count(config, "head_dim") or (hidden // heads if hidden and heads else None)
    if not (layers and kv_heads and head_size):
        return None
    return 2 * layers * kv_heads * head_size * _BF16_BYTES


def _count(config: Mapping[str, Any], name: str) -> int | None:
    value = config.get(name)
    return value if isinstance(value, int) and value > 0 else None
