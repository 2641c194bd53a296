"""Weight matrices of a model's layers, counted in values.

Counted is what a token is multiplied by. Left out are vectors (norms, biases, gates of one value,
Mamba's decays) and learned positions: below one in a thousand of published models.
"""

from dataclasses import dataclass
from math import ceil, prod

from duramen.layout.errors import ModelError
from duramen.serving.kv.arch import (
    DTYPE_BYTES,
    Architecture,
    Attention,
    Latent,
    Layer,
    Mixer,
    Mlp,
    State,
    WeightBits,
)

_OUTPUT_GATED = ("qwen3_5_moe_text", "qwen3_5_text", "qwen3_next")  # queries come with a gate
_OTHER_MATRICES = (
    "arctic",  # a dense part beside the experts
    "gemma3n_text",  # inputs per layer, and residuals of their own
    "jetmoe",  # experts for queries
    "step3_text",  # queries through a rank, experts in listed layers
)
_MAMBA1_STEP_RATIO = 16  # the hidden size over the rank of the step size, as Mamba 1 has it


@dataclass(frozen=True)
class LayerWeights:
    """`mlp`: dense, or the experts that all tokens share. `routing`: the router, and projections
    to and from what the experts see."""

    mixer: int
    mlp: int = 0
    routing: int = 0
    per_expert: int = 0
    num_experts: int = 0
    experts_per_token: int = 0

    @property
    def total(self) -> int:
        return self._of_experts(self.num_experts)

    @property
    def active(self) -> int:
        """What one token goes through."""
        return self._of_experts(self.experts_per_token)

    def _of_experts(self, num_experts: int) -> int:
        return self.mixer + self.mlp + self.routing + num_experts * self.per_expert

    def expected_experts(self, num_tokens: int) -> float:
        """How many a batch of so many tokens reads, where routing is even and independent."""
        if not self.num_experts:
            return 0
        missed = (1 - self.experts_per_token / self.num_experts) ** num_tokens
        return self.num_experts * (1 - missed)


def layer_weights(arch: Architecture, layer: Layer) -> LayerWeights:
    """Raises ModelError for a model with matrices that its Architecture does not tell of."""
    if arch.model_type in _OTHER_MATRICES:
        raise ModelError(f"the work of {arch.model_type} is not known: it has other matrices")
    mixers = sum(_mixer(arch, each) for each in (layer.mixer, layer.state_beside) if each)
    if layer.mlp is None:
        return LayerWeights(mixers)
    return _with_mlp(mixers, layer.mlp, arch.hidden_size)


def read_bytes(arch: Architecture, layer: Layer, num_tokens: int) -> float:
    """Of a layer's weights, by a batch of so many tokens. Raises ModelError as `layer_weights`."""
    weights = layer_weights(arch, layer)
    own = 8 * DTYPE_BYTES[arch.dtype]
    bits = layer.weight_bits or WeightBits(own, own, own)
    experts = weights.expected_experts(num_tokens) * weights.per_expert
    num_bits = weights.mixer * bits.mixer + weights.mlp * bits.mlp + weights.routing * own
    return (num_bits + experts * bits.experts) / 8


def head_weights(arch: Architecture) -> int:
    """Of the language-model head, as of the embedding."""
    return arch.hidden_size * arch.vocab_size


def up_projection_weights(latent: Latent) -> int:
    """From a latent to the keys and values of all heads."""
    return latent.kv_lora_rank * latent.num_heads * (latent.qk_nope_head_dim + latent.v_head_dim)


def _mixer(arch: Architecture, mixer: Mixer) -> int:
    if isinstance(mixer, Attention):
        return _attention(mixer, arch.hidden_size, arch.model_type in _OUTPUT_GATED)
    if isinstance(mixer, Latent):
        return _latent(mixer, arch.hidden_size)
    return _state(mixer, arch.hidden_size)


def _attention(attention: Attention, hidden_size: int, is_gated: bool) -> int:
    queries = attention.num_heads * attention.head_dim
    outputs = attention.num_heads * attention.v_head_dim
    own_keys = 0 if attention.is_kv_shared else attention.num_kv_heads
    keys_and_values = own_keys * (attention.head_dim + attention.v_head_dim)
    return hidden_size * (queries * (2 if is_gated else 1) + keys_and_values + outputs)


def _latent(latent: Latent, hidden_size: int) -> int:
    queries = latent.num_heads * (latent.qk_nope_head_dim + latent.qk_rope_head_dim)
    rank = latent.q_lora_rank
    total = hidden_size * queries if rank is None else rank * (hidden_size + queries)
    total += hidden_size * (latent.kv_lora_rank + latent.qk_rope_head_dim)
    total += up_projection_weights(latent)
    total += latent.num_heads * latent.v_head_dim * hidden_size
    if latent.indexer is not None:
        keys_and_gates = latent.indexer.head_dim + latent.indexer.num_heads
        total += hidden_size * keys_and_gates
        total += (rank or hidden_size) * latent.indexer.num_heads * latent.indexer.head_dim
    return total


def _state(state: State, hidden_size: int) -> int:
    channels, past = state.conv_shape or (0, 0)
    convolution = channels * (past + 1)
    return convolution + _PROJECTIONS[state.kind](state, hidden_size, channels)


def _mamba1(state: State, hidden_size: int, channels: int) -> int:
    step_rank = ceil(hidden_size / _MAMBA1_STEP_RATIO)
    state_size = state.recurrent_shape[1]
    return 3 * hidden_size * channels + channels * (2 * step_rank + 2 * state_size)


def _gated(state: State, hidden_size: int, channels: int, per_head: int) -> int:
    """Convolved inputs, a gate as wide as the output, some values per head; the output."""
    inner = prod(state.recurrent_shape[:2])
    num_heads = state.recurrent_shape[0]
    return hidden_size * (channels + 2 * inner + per_head * num_heads)


def _mamba2(state: State, hidden_size: int, channels: int) -> int:
    return _gated(state, hidden_size, channels, per_head=1)


def _gated_delta_net(state: State, hidden_size: int, channels: int) -> int:
    return _gated(state, hidden_size, channels, per_head=2)


def _kimi_delta(state: State, hidden_size: int, channels: int) -> int:
    """Decay and gate go through a rank of one head's size."""
    num_heads, head_dim, _ = state.recurrent_shape
    inner = num_heads * head_dim
    low_rank = head_dim * (hidden_size + inner)
    return hidden_size * (channels + inner + num_heads) + 2 * low_rank


def _short_conv(state: State, hidden_size: int, channels: int) -> int:
    return 4 * hidden_size * channels


def _linear_attention(state: State, hidden_size: int, channels: int) -> int:
    """Queries, keys, values, gate and output."""
    return 5 * hidden_size * prod(state.recurrent_shape[:2])


_PROJECTIONS = {
    "gated-delta-net": _gated_delta_net,
    "kimi-delta": _kimi_delta,
    "linear-attention": _linear_attention,
    "mamba1": _mamba1,
    "mamba2": _mamba2,
    "short-conv": _short_conv,
}


def _with_mlp(mixers: int, mlp: Mlp, hidden_size: int) -> LayerWeights:
    num_matrices = 3 if mlp.is_gated else 2
    if not mlp.num_experts:
        return LayerWeights(mixers, num_matrices * hidden_size * mlp.intermediate_size)
    width = mlp.latent_size or hidden_size
    into_latent = 2 * hidden_size * width if mlp.latent_size else 0
    return LayerWeights(
        mixer=mixers,
        mlp=num_matrices * hidden_size * mlp.shared_intermediate_size,
        routing=hidden_size * mlp.num_experts + into_latent,
        per_expert=num_matrices * width * mlp.intermediate_size,
        num_experts=mlp.num_experts,
        experts_per_token=mlp.experts_per_token,
    )
