"""One parse of a model's config.json: what its layers keep and compute.

Everything that asks how large or how dear a model is starts here. What the config does not say, and
kinds of models that keep something else, are refused with the key that is to blame.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from duramen.serving.kv.arch.attention import attention_of
from duramen.serving.kv.arch.fields import Fields
from duramen.serving.kv.arch.kinds import Kind, kinds_of, num_layers_of
from duramen.serving.kv.arch.kv_format import kv_format_of
from duramen.serving.kv.arch.layers import (
    DTYPE_BYTES,
    Attention,
    Indexer,
    Latent,
    Layer,
    Mixer,
    Mlp,
    State,
    WeightBits,
)
from duramen.serving.kv.arch.mlp import dense, experts, mlp_of
from duramen.serving.kv.arch.quantised import Quantised, quantised
from duramen.serving.kv.arch.states import has_state, state_of

__all__ = [
    "DTYPE_BYTES",
    "Architecture",
    "Attention",
    "Indexer",
    "Latent",
    "Layer",
    "Mixer",
    "Mlp",
    "State",
    "WeightBits",
]

_ENCODERS = (
    "albert",
    "bert",
    "clip_text_model",
    "deberta",
    "deberta-v2",
    "distilbert",
    "electra",
    "esm",
    "eurobert",
    "longformer",
    "modernbert",
    "mpnet",
    "neobert",
    "nomic_bert",
    "roberta",
    "siglip_text_model",
    "xlm-roberta",
    "xlm_roberta",
)
_OTHERS = (  # prefixes of families whose layers differ in ways that are not known
    "dia_",
    "diffusion_gemma",
    "embedding_gemma",
    "gemma4",
    "hrm_text",
    "mimo_v2",
    "modernbert-decoder",
    "moshi",
    "muse_glimmer",
    "neomme",
    "openai_privacy_filter",
    "t5_gemma",
    "t5gemma",
)
_FOREIGN = (  # prefixes of keys that speak of layers that only certain families have
    "attention_other_setting",
    "attention_types",
    "attn_layer_",
    "attn_mode",
    "block_configs",
    "block_types",
    "compress_ratios",
    "conv_",
    "cross_attention_layers",
    "global_head_dim",
    "hybrid_",
    "interleaved_sliding_window",
    "linear_",
    "lru_",
    "mamba_",
    "num_attention_heads_per_layer",
    "num_key_value_heads_per_layer",
    "num_sliding_attention_heads",
    "per_layer_config",
    "sparse_attention",
    "ssm_",
    "swa_",
    "use_cla",
)
_WITHOUT_MLP = ("falcon_mamba", "mamba", "mamba2", "nemotron_h")


@dataclass(frozen=True)
class Architecture:
    """`dtype`: of weights and activations as served, were they not quantised: float32 is loaded as
    bfloat16. `kv_format`: as vLLM names it, where a quantised checkpoint asks for one; None:
    `dtype`. `unknown_weights`: why nobody knows what its weights take; None where it is known.
    """

    model_type: str
    hidden_size: int
    vocab_size: int
    layers: tuple[Layer, ...]
    dtype: str
    is_tied: bool
    kv_format: str | None = None
    unknown_weights: str | None = None

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "Architecture":
        """Raises ModelError, naming the key that is missing, wrong or not understood."""
        fields = Fields(config)
        _refuse_others(fields)
        num_layers = num_layers_of(fields)
        dtype = _dtype(fields)
        kinds = kinds_of(fields, num_layers)
        weights = quantised(fields)
        return cls(
            model_type=fields.model_type,
            hidden_size=fields.count("hidden_size", "n_embd", "d_model"),
            vocab_size=fields.count("vocab_size", "padded_vocab_size"),
            layers=tuple(
                _with_weights(_layer(fields, kind, index, num_layers, dtype), index, weights, dtype)
                for index, kind in enumerate(kinds)
            ),
            dtype=dtype,
            is_tied=fields.flag("tie_word_embeddings"),
            kv_format=kv_format_of(fields),
            unknown_weights=None if weights is None else weights.unknown,
        )


def _refuse_others(fields: Fields) -> None:
    if fields.get("is_encoder_decoder"):
        raise fields.wrong("is_encoder_decoder is true: only decoders are known")
    if fields.model_type in _ENCODERS or fields.has("type_vocab_size"):
        raise fields.wrong("model_type or type_vocab_size is an encoder's, which keeps no KV cache")
    if fields.model_type.startswith(_OTHERS):
        raise fields.wrong("model_type is a family whose layers are not known")
    if has_state(fields):
        return
    foreign = next((key for key in fields.own_keys() if key.startswith(_FOREIGN)), None)
    if foreign is not None:
        raise fields.wrong(f"{foreign} speaks of layers that are not known for this model_type")


def _dtype(fields: Fields) -> str:
    found = fields.dtype("dtype", "torch_dtype")
    return "bfloat16" if found is None or found == "float32" else found


def _layer(fields: Fields, kind: Kind, index: int, num_layers: int, dtype: str) -> Layer:
    if kind is Kind.MLP:
        return Layer(None, dense(fields, index, num_layers))
    if kind is Kind.EXPERTS:
        return Layer(None, experts(fields))
    has_mlp = fields.model_type not in _WITHOUT_MLP
    mlp = mlp_of(fields, index, num_layers) if has_mlp else None
    if kind is Kind.STATE:
        return Layer(state_of(fields, dtype), mlp)
    mixer = attention_of(fields, kind, index, num_layers)
    return Layer(mixer, mlp, state_of(fields, dtype) if kind is Kind.BESIDE else None)


def _with_weights(layer: Layer, index: int, weights: Quantised | None, dtype: str) -> Layer:
    if weights is None:
        return layer
    return replace(layer, weight_bits=weights.bits_of(layer, index, 8 * DTYPE_BYTES[dtype]))
