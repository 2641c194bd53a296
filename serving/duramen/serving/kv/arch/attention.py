"""Heads and head sizes of a model's attention layers."""

from duramen.serving.kv.arch.fields import Fields
from duramen.serving.kv.arch.kinds import Kind, window_tokens
from duramen.serving.kv.arch.layers import Attention, Indexer, Latent

_LATENT = (  # what vLLM 0.32 caches as a latent, model_arch_config_convertor.py
    "axk1",
    "deepseek_v2",
    "deepseek_v3",
    "deepseek_v32",
    "glm4_moe_lite",
    "glm_moe_dsa",
    "kimi_k2",
    "kimi_linear",
    "pangu_ultra_moe",
)

_SPARSE = ("deepseek_v32", "glm_moe_dsa")
_MULTI_HEAD = (  # families with as many KV heads as heads where the config does not say
    "afmoe",
    "apertus",
    "aquila",
    "arcee",
    "baichuan",
    "bloom",
    "codegen",
    "cohere",
    "cohere2",
    "cohere2_moe",
    "cohere_compass_text",
    "deepseek_v2",
    "falcon",
    "flex_olmo",
    "gpt2",
    "gpt_bigcode",
    "gpt_neox",
    "gptj",
    "granite",
    "granitemoe",
    "granitemoe_swa",
    "granitemoeshared",
    "hunyuan_v1_dense",
    "hunyuan_v1_moe",
    "hyperclovax",
    "internlm",
    "jais",
    "jais2",
    "kyutai_speech_to_text",
    "llama",
    "mpt",
    "nanochat",
    "olmo",
    "olmo2",
    "olmo3",
    "olmo_hybrid",
    "olmoe",
    "opt",
    "persimmon",
    "phi",
    "phi3",
    "qwen",
    "xverse",
)


def attention_of(fields: Fields, kind: Kind, index: int, num_layers: int) -> Attention | Latent:
    """Of one layer. Raises ModelError where the config does not say, or contradicts itself."""
    if fields.optional_count("kv_lora_rank"):
        return _latent(fields, index, num_layers)
    if fields.model_type in _LATENT and not fields.has("kv_lora_rank"):
        raise fields.wrong("kv_lora_rank is missing")
    if kind is Kind.INDEXED or fields.optional_count("index_head_dim"):
        raise fields.wrong("its layers have indexers, which are known for latents only")
    num_heads = fields.count("num_attention_heads", "n_head", "n_heads", "num_heads")
    num_kv_heads = _num_kv_heads(fields, num_heads)
    if num_heads % num_kv_heads:
        raise fields.wrong(f"{num_heads} attention heads cannot share {num_kv_heads} KV heads")
    head_dim = _head_dim(fields, num_heads)
    return Attention(
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        v_head_dim=fields.optional_count("v_head_dim") or head_dim,
        window=_window(fields, kind),
        is_chunked=kind is Kind.CHUNK,
        is_kv_shared=index >= num_layers - (fields.optional_count("num_kv_shared_layers") or 0),
    )


def _window(fields: Fields, kind: Kind) -> int | None:
    if kind is Kind.CHUNK:
        return fields.count("attention_chunk_size")
    if kind is not Kind.WINDOW:
        return None
    if not fields.has("sliding_window"):
        raise fields.wrong("sliding_window is missing")
    return window_tokens(fields)


def _num_kv_heads(fields: Fields, num_heads: int) -> int:
    """As many as heads where it is null, or absent and that is the family's way."""
    if fields.flag("multi_query") and not fields.flag("new_decoder_architecture"):
        return 1  # Falcon 7B and StarCoder, whatever else they say
    if fields.get("multi_query_attention") is False:
        return num_heads  # ChatGLM
    given = fields.optional_count(
        "num_key_value_heads",
        "n_head_kv",
        "num_kv_heads",
        "multi_query_group_num",
        "num_attention_groups",
    )
    if nested := fields.section("attn_config"):
        given = given or nested.optional_count("kv_n_heads")
    may_lack_it = fields.model_type in _MULTI_HEAD or fields.has("num_key_value_heads")
    if not given and not may_lack_it:
        raise fields.wrong("num_key_value_heads is missing")
    return given or num_heads


def _head_dim(fields: Fields, num_heads: int) -> int:
    """Given, or the hidden size over the heads."""
    given = fields.optional_count("head_dim", "attention_head_dim", "kv_channels")
    if given:
        return given
    return fields.head_size(fields.count("hidden_size", "n_embd", "d_model"), num_heads)


def _latent(fields: Fields, index: int, num_layers: int) -> Latent:
    if fields.model_type not in _LATENT:
        raise fields.wrong("kv_lora_rank is set, but how this model_type caches it is not known")
    if not fields.has("q_lora_rank"):
        raise fields.wrong("q_lora_rank is missing: give null where queries have none")
    return Latent(
        num_heads=fields.count("num_attention_heads"),
        kv_lora_rank=fields.count("kv_lora_rank"),
        qk_rope_head_dim=fields.count("qk_rope_head_dim"),
        qk_nope_head_dim=fields.count("qk_nope_head_dim"),
        v_head_dim=fields.count("v_head_dim"),
        q_lora_rank=fields.optional_count("q_lora_rank") or None,
        indexer=_indexer(fields) if _has_indexer(fields, index, num_layers) else None,
    )


def _indexer(fields: Fields) -> Indexer:
    return Indexer(
        num_heads=fields.count("index_n_heads"),
        head_dim=fields.count("index_head_dim"),
        top_k_tokens=fields.count("index_topk"),
    )


def _has_indexer(fields: Fields, index: int, num_layers: int) -> bool:
    """Some layers go by the choice of an earlier layer's indexer.

    vLLM 0.32 reads the schedule (models/deepseek_v32/attention.py), transformers the list.
    """
    if fields.model_type in _SPARSE:
        fields.count("index_topk")
    if not fields.optional_count("index_topk"):
        return False
    if pattern := fields.text("index_topk_pattern"):
        is_scheduled = pattern[index : index + 1] != "S"
    else:
        offset = fields.optional_count("index_skip_topk_offset")
        past = max(index - (2 if offset is None else offset) + 1, 0)
        is_scheduled = past % (fields.optional_count("index_topk_freq") or 1) == 0
    listed = fields.per_layer("indexer_types", str, num_layers)
    if listed is not None and is_scheduled != (listed[index] == "full"):
        raise fields.wrong(
            f"for layer {index} indexer_types is {listed[index]!r}, but index_topk_freq or "
            "index_topk_pattern, which vLLM reads, says otherwise"
        )
    return is_scheduled
