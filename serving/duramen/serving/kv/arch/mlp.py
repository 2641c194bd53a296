"""The feed-forward part of each layer: dense or a mixture of experts."""

from duramen.serving.kv.arch.fields import Fields
from duramen.serving.kv.arch.layers import Mlp

_NUM_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_EXPERTS_PER_TOKEN = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "top_k_experts",
    "moe_topk",
    "moe_top_k",
    "moe_k",
)
_NOT_GATED = (
    "apertus",
    "arcee",
    "bloom",
    "codegen",
    "falcon",
    "gpt2",
    "gpt_bigcode",
    "gpt_neo",
    "gpt_neox",
    "gptj",
    "mpt",
    "nemotron",
    "nemotron_h",
    "opt",
    "persimmon",
    "phi",
    "starcoder2",
)
_FOUR_TIMES = ("bloom", "falcon", "gpt2", "gpt_bigcode", "gpt_neo", "gptj", "mpt")


def mlp_of(fields: Fields, index: int, num_layers: int) -> Mlp:
    """Raises ModelError where the config does not say how wide it is."""
    if _has_experts(fields, index, num_layers):
        return experts(fields)
    return dense(fields, index, num_layers)


def dense(fields: Fields, index: int, num_layers: int) -> Mlp:
    return Mlp(_dense_size(fields, index, num_layers), is_gated=_is_gated(fields))


def experts(fields: Fields) -> Mlp:
    nested = fields.section("ffn_config") or fields  # DBRX
    per_token = nested.count(*_EXPERTS_PER_TOKEN)
    return Mlp(
        intermediate_size=nested.count(
            "moe_intermediate_size", "ffn_hidden_size", "intermediate_size"
        ),
        is_gated=_is_gated(fields),
        num_experts=nested.count(*_NUM_EXPERTS),
        experts_per_token=per_token,
        shared_intermediate_size=_shared_size(fields),
        latent_size=fields.optional_count("moe_latent_size") or None,
    )


def _is_gated(fields: Fields) -> bool:
    return fields.model_type not in _NOT_GATED


def _has_experts(fields: Fields, index: int, num_layers: int) -> bool:
    nested = fields.section("ffn_config") or fields
    if not nested.optional_count(*_NUM_EXPERTS):
        says_none = any(nested.has(key) for key in _NUM_EXPERTS)
        if nested.optional_count(*_EXPERTS_PER_TOKEN) and not says_none:
            raise fields.wrong(f"{' or '.join(_NUM_EXPERTS)} is missing")
        return False
    if types := fields.per_layer("mlp_layer_types", str, num_layers):
        return bool(types[index] == "sparse")
    if fields.model_type == "llama4_text":
        return _is_llama4_sparse(fields, index)
    if period := fields.optional_count("expert_layer_period"):  # Jamba
        return index % period == fields.optional_count("expert_layer_offset")
    if index in (fields.items("mlp_only_layers", int) or ()):
        return False
    if (index + 1) % (fields.optional_count("decoder_sparse_step") or 1):
        return False
    if index < (fields.optional_count("first_k_dense_replace", "num_dense_layers") or 0):
        return False
    return _is_frequent(fields, index, num_layers)


def _is_frequent(fields: Fields, index: int, num_layers: int) -> bool:
    """moe_layer_freq: a period, or a 0 or 1 for each layer; Ernie's range and period."""
    if isinstance(fields.get("moe_layer_freq"), list):
        each = fields.per_layer("moe_layer_freq", int, num_layers)
        return each is not None and bool(each[index])
    if index < (fields.optional_count("moe_layer_start_index") or 0):
        return False
    end = fields.get("moe_layer_end_index")
    if isinstance(end, int) and end >= 0 and index > end:
        return False
    if interval := fields.optional_count("moe_layer_interval"):
        return (index + 1) % interval == 0
    return index % (fields.optional_count("moe_layer_freq") or 1) == 0


def _is_llama4_sparse(fields: Fields, index: int) -> bool:
    if layers := fields.items("moe_layers", int):
        return index in layers
    return (index + 1) % (fields.optional_count("interleave_moe_layer_step") or 1) == 0


def _dense_size(fields: Fields, index: int, num_layers: int) -> int:
    if fields.model_type == "llama4_text":
        return fields.count("intermediate_size_mlp")
    if fields.model_type == "granitemoehybrid":
        return fields.count("shared_intermediate_size")
    if fields.model_type == "qwen":  # given is the gate and the input together
        return fields.count("intermediate_size") // 2
    if fields.model_type in ("lfm2", "lfm2_moe"):
        return _lfm2_size(fields)
    if isinstance(fields.get("intermediate_size"), list):
        sizes = fields.per_layer("intermediate_size", int, num_layers) or ()
        return int(sizes[index])
    given = fields.optional_count("intermediate_size", "n_inner", "ffn_hidden_size", "ffn_dim")
    if not given and fields.model_type in _FOUR_TIMES:
        return 4 * fields.count("hidden_size", "n_embd", "d_model")
    return given or fields.count("intermediate_size")


def _lfm2_size(fields: Fields) -> int:
    """Two thirds of what is given, scaled and rounded up, where the config wants it adjusted."""
    size = fields.count("intermediate_size", "block_ff_dim")
    is_adjusted = fields.flag("block_auto_adjust_ff_dim", default=fields.model_type == "lfm2")
    if not is_adjusted:
        return size
    multiple = fields.optional_count("block_multiple_of") or 256
    factor = fields.number("block_ffn_dim_multiplier") or 1
    return -(-int(factor * int(2 * size / 3)) // multiple) * multiple


def _shared_size(fields: Fields) -> int:
    """What runs beside the experts for every token."""
    if fields.model_type == "llama4_text":
        return fields.count("intermediate_size")
    given = fields.optional_count("shared_expert_intermediate_size", "shared_intermediate_size")
    if given is not None:
        return given
    num = fields.optional_count("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")
    if not num:
        return 0
    return num * fields.count("moe_shared_expert_intermediate_size", "moe_intermediate_size")
