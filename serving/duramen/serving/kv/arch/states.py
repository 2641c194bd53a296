"""The state of linear-attention and state-space layers, by model family.

Shapes and dtypes as vLLM 0.32 keeps them (model_executor/layers/mamba/mamba_utils.py).
"""

from collections.abc import Callable

from duramen.serving.kv.arch.fields import Fields
from duramen.serving.kv.arch.layers import State


def state_of(fields: Fields, dtype: str) -> State:
    """`dtype`: the model's. Raises ModelError where the family's state is not known."""
    read = _FAMILIES.get(fields.model_type)
    if read is None:
        raise fields.wrong("model_type is none whose linear or state-space layers are known")
    return read(fields, dtype)


def has_state(fields: Fields) -> bool:
    """Whether models of this family keep states, or may."""
    return fields.model_type in _FAMILIES


def _mamba1(fields: Fields, dtype: str) -> State:
    if fields.model_type == "jamba":
        channels = fields.count("mamba_expand") * fields.count("hidden_size")
    else:
        channels = fields.count("intermediate_size")
    return State(
        kind="mamba1",
        conv_shape=(channels, fields.count("conv_kernel", "mamba_d_conv") - 1),
        recurrent_shape=(channels, fields.count("state_size", "mamba_d_state")),
        conv_dtype=dtype,
        recurrent_dtype=dtype,
    )


def _mamba2(fields: Fields, dtype: str) -> State:
    num_heads = fields.count("mamba_n_heads", "mamba_num_heads", "num_heads")
    head_dim = _mamba2_head_dim(fields, num_heads)
    num_groups = fields.count("mamba_n_groups", "n_groups")
    state_size = fields.count("mamba_d_state", "ssm_state_size", "state_size")
    kernel = fields.count("mamba_d_conv", "conv_kernel")
    return State(
        kind="mamba2",
        conv_shape=(num_heads * head_dim + 2 * num_groups * state_size, kernel - 1),
        recurrent_shape=(num_heads, head_dim, state_size),
        conv_dtype=dtype,
        recurrent_dtype=_recurrent_dtype(fields, dtype),
        num_groups=num_groups,
    )


def _mamba2_head_dim(fields: Fields, num_heads: int) -> int:
    """Given, or "auto": the inner width over the heads."""
    own = "head_dim" if fields.model_type == "mamba2" else "mamba_head_dim"
    if fields.get("mamba_d_head", own) not in (None, "auto"):
        return fields.count("mamba_d_head", own)
    inner = fields.optional_count("mamba_d_ssm")
    inner = inner or fields.count("mamba_expand") * fields.count("hidden_size")
    return fields.head_size(inner, num_heads)


def _recurrent_dtype(fields: Fields, dtype: str) -> str:
    """What the config asks for, in the families where vLLM looks for it."""
    if fields.model_type == "nemotron_h":
        return fields.dtype("mamba_ssm_cache_dtype") or "float32"
    if fields.model_type in ("qwen3_5_text", "qwen3_5_moe_text"):
        return fields.dtype("mamba_ssm_dtype") or dtype
    return dtype


def _gated_delta_net(fields: Fields, dtype: str) -> State:
    num_value_heads = fields.count("linear_num_value_heads")
    key_dim, value_dim = fields.count("linear_key_head_dim"), fields.count("linear_value_head_dim")
    keys = fields.count("linear_num_key_heads") * key_dim
    kernel = fields.count("linear_conv_kernel_dim")
    return State(
        kind="gated-delta-net",
        conv_shape=(2 * keys + num_value_heads * value_dim, kernel - 1),
        recurrent_shape=(num_value_heads, value_dim, key_dim),
        conv_dtype=dtype,
        recurrent_dtype=_recurrent_dtype(fields, dtype),
    )


def _kimi_delta(fields: Fields, dtype: str) -> State:
    part = fields.section("linear_attn_config")
    if part is None:  # as transformers writes it
        num_heads, head_dim = fields.count("linear_num_heads"), fields.count("linear_head_dim")
        kernel = fields.count("linear_conv_kernel_dim")
    else:
        num_heads, head_dim = part.count("num_heads"), part.count("head_dim")
        kernel = part.count("short_conv_kernel_size")
    return State(
        kind="kimi-delta",
        conv_shape=(3 * num_heads * head_dim, kernel - 1),
        recurrent_shape=(num_heads, head_dim, head_dim),
        conv_dtype=dtype,
        recurrent_dtype="float32",
    )


def _short_conv(fields: Fields, dtype: str) -> State:
    channels = fields.count("conv_dim", "hidden_size")
    return State(
        kind="short-conv",
        conv_shape=(channels, fields.count("conv_L_cache") - 1),
        recurrent_shape=(),
        conv_dtype=dtype,
        recurrent_dtype=dtype,
    )


def _linear_attention(fields: Fields, dtype: str) -> State:
    num_heads = fields.count("num_attention_heads")
    head_dim = fields.optional_count("head_dim")
    head_dim = head_dim or fields.head_size(fields.count("hidden_size"), num_heads)
    return State(
        kind="linear-attention",
        conv_shape=(),
        recurrent_shape=(num_heads, head_dim, head_dim),
        conv_dtype=dtype,
        recurrent_dtype=dtype,
    )


_FAMILIES: dict[str, Callable[[Fields, str], State]] = {
    "bamba": _mamba2,
    "falcon_h1": _mamba2,
    "falcon_mamba": _mamba1,
    "granitemoehybrid": _mamba2,
    "jamba": _mamba1,
    "kimi_linear": _kimi_delta,
    "lfm2": _short_conv,
    "lfm2_moe": _short_conv,
    "mamba": _mamba1,
    "mamba2": _mamba2,
    "minimax": _linear_attention,
    "minimax_m1": _linear_attention,
    "minimax_text_01": _linear_attention,
    "nemotron_h": _mamba2,
    "olmo_hybrid": _gated_delta_net,
    "qwen3_5_moe_text": _gated_delta_net,
    "qwen3_5_text": _gated_delta_net,
    "qwen3_next": _gated_delta_net,
}
