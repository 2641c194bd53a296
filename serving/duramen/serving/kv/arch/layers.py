"""What a decoder's layers are made of, as far as memory and work depend on it.

Sizes are those of the whole model, before tensor parallelism.
"""

from dataclasses import dataclass

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True)
class Attention:
    """Keys and values per token: multi-head, grouped-query and multi-query alike.

    `window`: tokens that a token attends to, itself included; None: all before it. With
    `is_chunked` the sequence is cut into chunks of `window` tokens, and a token sees its own chunk.
    `is_kv_shared`: reads the keys and values of an earlier layer and keeps none.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    v_head_dim: int
    window: int | None = None
    is_chunked: bool = False
    is_kv_shared: bool = False


@dataclass(frozen=True)
class Indexer:
    """Picks the tokens that sparse attention looks at: one key per token of its own."""

    num_heads: int
    head_dim: int
    top_k_tokens: int


@dataclass(frozen=True)
class Latent:
    """Multi-head latent attention: one latent and one rotated key per token for all heads.

    `q_lora_rank`: None where queries are projected directly.
    """

    num_heads: int
    kv_lora_rank: int
    qk_rope_head_dim: int
    qk_nope_head_dim: int
    v_head_dim: int
    q_lora_rank: int | None = None
    indexer: Indexer | None = None


@dataclass(frozen=True)
class State:
    """What a linear-attention or state-space layer keeps of a whole sequence, however long.

    `kind`: "mamba1", "mamba2", "gated-delta-net", "kimi-delta", "short-conv" or
    "linear-attention". `conv_shape`: (channels, kernel - 1), `recurrent_shape`: heads (for Mamba 1
    channels) first; () where there is none. Dtypes are named as in config.json.
    `num_groups`: of Mamba 2's B and C, which are among the convolved channels; 0 for the others.
    """

    kind: str
    conv_shape: tuple[int, ...]
    recurrent_shape: tuple[int, ...]
    conv_dtype: str
    recurrent_dtype: str
    num_groups: int = 0


Mixer = Attention | Latent | State


@dataclass(frozen=True)
class Mlp:
    """`is_gated`: three matrices (SwiGLU and its like), else two. `num_experts` 0: dense, of
    `intermediate_size`; else that is each expert's. `shared_intermediate_size`: of what every
    token goes through beside its experts, 0 if nothing. `latent_size`: width of what the experts
    see, where that is projected down first; None: the hidden size."""

    intermediate_size: int
    is_gated: bool
    num_experts: int = 0
    experts_per_token: int = 0
    shared_intermediate_size: int = 0
    latent_size: int | None = None


@dataclass(frozen=True)
class WeightBits:
    """Bits per weight of a layer's matrices. `mlp`: dense, or the experts that all tokens share."""

    mixer: float
    mlp: float
    experts: float


@dataclass(frozen=True)
class Layer:
    """`state_beside`: of a state-space mixer that runs beside the attention (Falcon-H1).
    `weight_bits`: None where nothing is quantised, or nobody knows how."""

    mixer: Mixer | None
    mlp: Mlp | None
    state_beside: State | None = None
    weight_bits: WeightBits | None = None
