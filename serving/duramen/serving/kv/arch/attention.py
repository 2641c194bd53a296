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

_GROUPED = (  # prefixes of families whose classes in transformers assume fewer KV heads than heads
    "bitnet",
    "cwm",
    "emu3",
    "ernie4_5",
    "falcon_h1",
    "gemma2",
    "gemma3n",
    "gemma4",
    "glm",
    "gpt_oss",
    "granite_swa",
    "hy_v3",
    "jamba",
    "jetmoe",
    "laguna",
    "lfm2",
    "llama4",
    "mellum",
    "mimo_v2",
    "minimax",
    "ministral",
    "mistral",
    "mixtral",
    "nemotron_h",
    "paddleocr_vl",
    "phi4_multimodal",
    "phimoe",
    "qwen2_5",
    "qwen2_vl",
    "qwen3",
    "seed_oss",
    "smollm3",
    "solar_open",
    "starcoder2",
    "step3p",
    "vaultgemma",
    "voxtral",
)


def attention_of(fields: Fields, kind: Kind, index: int, num_layers: int) -> Attention | Latent:
    """Of one layer. Raises ModelError where the config does not say, or contradicts itself."""
    if fields.optional_count("kv_lora_rank"):
        return _latent(fields, index)
    if fields.model_type in _LATENT and not fields.has("kv_lora_rank"):
        raise fields.wrong("kv_lora_rank is missing")
    if fields.optional_count("index_head_dim"):
        raise fields.wrong("index_head_dim speaks of an indexer, known for latents only")
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
    """As many as heads where the config gives none, and that is the family's way."""
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
    is_grouped = fields.model_type.startswith(_GROUPED)
    if given is None and is_grouped and not fields.has("num_key_value_heads"):
        raise fields.wrong("num_key_value_heads is missing")
    nested = fields.section("attn_config")
    return given or (nested and nested.optional_count("kv_n_heads")) or num_heads


def _head_dim(fields: Fields, num_heads: int) -> int:
    """Given, or the hidden size over the heads."""
    given = fields.optional_count("head_dim", "attention_head_dim", "kv_channels")
    if given:
        return given
    return fields.head_size(fields.count("hidden_size", "n_embd", "d_model"), num_heads)


def _latent(fields: Fields, index: int) -> Latent:
    if fields.model_type not in _LATENT:
        raise fields.wrong("kv_lora_rank is set, but how this model_type caches it is not known")
    return Latent(
        num_heads=fields.count("num_attention_heads"),
        kv_lora_rank=fields.count("kv_lora_rank"),
        qk_rope_head_dim=fields.count("qk_rope_head_dim"),
        qk_nope_head_dim=fields.count("qk_nope_head_dim"),
        v_head_dim=fields.count("v_head_dim"),
        q_lora_rank=fields.optional_count("q_lora_rank") or None,
        indexer=_indexer(fields) if _has_indexer(fields, index) else None,
    )


def _indexer(fields: Fields) -> Indexer:
    return Indexer(
        num_heads=fields.count("index_n_heads"),
        head_dim=fields.count("index_head_dim"),
        top_k_tokens=fields.count("index_topk"),
    )


def _has_indexer(fields: Fields, index: int) -> bool:
    """Some layers go by the choice of an earlier layer's indexer."""
    if not fields.optional_count("index_topk"):
        return False
    if pattern := fields.text("index_topk_pattern"):
        return pattern[index : index + 1] != "S"
    offset = fields.optional_count("index_skip_topk_offset")
    past = max(index - (2 if offset is None else offset) + 1, 0)
    return past % (fields.optional_count("index_topk_freq") or 1) == 0
