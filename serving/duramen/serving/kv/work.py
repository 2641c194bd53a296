"""What a forward pass computes and reads: FLOPs and bytes, exact per architecture.

A multiplication with its addition is two FLOPs. Counted are matrix products, convolutions and
recurrences; norms, rotations, softmax and activations are left out. Attention counts the pairs that
are attended to: what lies behind the causal diagonal or outside a window is nobody's work, though a
kernel, or a counter such as torch's FlopCounterMode, may take the full square.

Multi-head latent attention has two forms with the same result. Naive, the latents are projected up
to keys and values of every head, those of the context in each pass again; absorbed, queries are
projected into the latent, and no key is made. Engines take the first for long chunks and the second
for short ones; models with an indexer always go absorbed.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from duramen.layout.errors import LayoutError, ModelError
from duramen.serving.kv.arch import DTYPE_BYTES, Architecture, Attention, Latent, Layer, State
from duramen.serving.kv.footprint import Cache, Footprint, KvDtype
from duramen.serving.kv.weights import (
    head_weights,
    layer_weights,
    read_bytes,
    up_projection_weights,
)

_READ_AND_UPDATE_FLOPS = 4  # per value of a recurrent state and token
_DELTA_RULE_FLOPS = 6  # what the state holds for this key is read first
_DELTA_RULES = ("gated-delta-net", "kimi-delta")


@dataclass(frozen=True)
class Params:
    """Weights in matrices. `total`: of the model, a tied head once. `active`: what one token is
    multiplied by, the head included. `embedding`: the table that tokens are looked up in."""

    total: int
    active: int
    embedding: int


@dataclass(frozen=True)
class Work:
    """Of one forward pass of the whole model.

    `linear_flops`: projections, experts and recurrences; `lm_head_flops`: of one position per
    sequence. `weight_bytes`: read once, with the experts that the tokens are expected to need, as
    the checkpoint is quantised; None where `unknown_weights` says why nobody knows;
    `kv_bytes`: of the context read and of the new tokens written, states included.
    """

    linear_flops: int
    attention_flops: int
    lm_head_flops: int
    weight_bytes: int | None
    kv_bytes: int
    unknown_weights: str | None = None

    @property
    def num_flops(self) -> int:
        return self.linear_flops + self.attention_flops + self.lm_head_flops

    @property
    def num_bytes(self) -> int:
        """Raises ModelError where the weights' bytes are not known."""
        if self.weight_bytes is None:
            raise ModelError(f"what is read is not known: {self.unknown_weights}")
        return self.weight_bytes + self.kv_bytes


class TextbookFlops(NamedTuple):
    linear: int
    attention: int


@dataclass(frozen=True)
class Ttft:
    """Time to first token: a fixed part, two kinds of FLOPs at their shares of the peak, bytes.

    `linear_mfu`, `attention_mfu`: shares of `peak_flops_per_s` that are reached, up to 1.
    Raises LayoutError where a share, a rate or the fixed part is out of its range.
    """

    fixed_s: float
    peak_flops_per_s: float
    linear_mfu: float
    attention_mfu: float
    bytes_per_s: float

    def __post_init__(self) -> None:
        if not 0 <= self.fixed_s < math.inf:
            raise LayoutError(f"fixed_s must be a finite number from 0, not {self.fixed_s}")
        if not (0 < self.peak_flops_per_s < math.inf and 0 < self.bytes_per_s < math.inf):
            raise LayoutError("peak_flops_per_s and bytes_per_s must be finite and above 0")
        if not (0 < self.linear_mfu <= 1 and 0 < self.attention_mfu <= 1):
            raise LayoutError("linear_mfu and attention_mfu must be above 0 and at most 1")

    def seconds(self, work: Work) -> float:
        """Raises ModelError as `Work.num_bytes`."""
        linear_flops = work.linear_flops + work.lm_head_flops
        return (
            self.fixed_s
            + linear_flops / (self.linear_mfu * self.peak_flops_per_s)
            + work.attention_flops / (self.attention_mfu * self.peak_flops_per_s)
            + work.num_bytes / self.bytes_per_s
        )


def textbook_flops(num_layers: int, hidden_size: int, num_tokens: int) -> TextbookFlops:
    """24*M*L*d^2 and 4*M^2*L*d: an MLP of two matrices four times as wide as the model, as many KV
    heads as heads, every token attending to all of them, and no head."""
    return TextbookFlops(
        linear=24 * num_tokens * num_layers * hidden_size**2,
        attention=4 * num_tokens**2 * num_layers * hidden_size,
    )


def num_params(arch: Architecture) -> Params:
    """Raises ModelError for a model with matrices that its Architecture does not tell of."""
    layers = [layer_weights(arch, layer) for layer in arch.layers]
    head = head_weights(arch)
    return Params(
        total=sum(each.total for each in layers) + head * (1 if arch.is_tied else 2),
        active=sum(each.active for each in layers) + head,
        embedding=head,
    )


def prefill_work(
    arch: Architecture,
    new_tokens: int,
    cached_tokens: int = 0,
    *,
    kv_dtype: KvDtype = KvDtype.AUTO,
    max_absorbed_tokens: int = 1,
) -> Work:
    """Of one sequence in one pass. Cut into chunks, a prompt reads its weights once for each."""
    chunk = (new_tokens, cached_tokens)
    return step_work(arch, [chunk], kv_dtype=kv_dtype, max_absorbed_tokens=max_absorbed_tokens)


def decode_work(
    arch: Architecture, context_tokens: int, *, kv_dtype: KvDtype = KvDtype.AUTO
) -> Work:
    """Of one token behind so many, latents absorbed."""
    return step_work(arch, [(1, context_tokens)], kv_dtype=kv_dtype)


def step_work(
    arch: Architecture,
    chunks: Sequence[tuple[int, int]],
    *,
    kv_dtype: KvDtype = KvDtype.AUTO,
    max_absorbed_tokens: int = 1,
) -> Work:
    """Of a batch: for each sequence its new tokens and how many stand before them in the cache.

    `max_absorbed_tokens`: up to which length a chunk's latent attention is absorbed (vLLM's
    reorder_batch_threshold, which depends on the backend; 0: never).
    Raises LayoutError for a chunk without new tokens or with less than no context, and ModelError
    as `num_params` and `Footprint.of`.
    """
    for new, context in chunks:
        if new < 1 or context < 0:
            raise LayoutError(f"a chunk of {new} new tokens behind {context} cannot be computed")
    num_tokens = sum(new for new, _ in chunks)
    top_k = _top_k_tokens(arch)
    linear, attention = 0, 0
    weight_bytes = float(head_weights(arch) * DTYPE_BYTES[arch.dtype])
    for layer, num_layers in Counter(arch.layers).items():
        of_layer = layer_weights(arch, layer)
        per_token = 2 * of_layer.active + _recurrence_flops(layer)
        weight_bytes += num_layers * read_bytes(arch, layer, num_tokens)
        linear += num_layers * per_token * num_tokens
        for new, context in chunks:
            is_absorbed = new <= max_absorbed_tokens or top_k is not None
            if isinstance(layer.mixer, Latent) and not is_absorbed:
                linear += num_layers * 2 * up_projection_weights(layer.mixer) * context
            attention += num_layers * _attention_flops(layer, new, context, top_k, is_absorbed)
    return Work(
        linear_flops=linear,
        attention_flops=attention,
        lm_head_flops=2 * head_weights(arch) * len(chunks),
        weight_bytes=round(weight_bytes) if arch.unknown_weights is None else None,
        kv_bytes=_kv_bytes(arch, chunks, kv_dtype, top_k),
        unknown_weights=arch.unknown_weights,
    )


def attended_pairs(
    new_tokens: int, context_tokens: int, window: int | None = None, is_chunked: bool = False
) -> int:
    """Pairs of a new token and one that it attends to, itself included. `window`, `is_chunked`:
    as in Attention."""
    num_tokens = context_tokens + new_tokens
    return _pairs_up_to(num_tokens, window, is_chunked) - _pairs_up_to(
        context_tokens, window, is_chunked
    )


def _pairs_up_to(num_tokens: int, window: int | None, is_chunked: bool) -> int:
    if window is None or num_tokens <= window:
        return _triangle(num_tokens)
    if is_chunked:
        return num_tokens // window * _triangle(window) + _triangle(num_tokens % window)
    return _triangle(window) + (num_tokens - window) * window


def _triangle(number: int) -> int:
    return number * (number + 1) // 2


def _top_k_tokens(arch: Architecture) -> int | None:
    """Where any layer has an indexer, those without one go by its choice."""
    latents = (layer.mixer for layer in arch.layers if isinstance(layer.mixer, Latent))
    return next((each.indexer.top_k_tokens for each in latents if each.indexer), None)


def _recurrence_flops(layer: Layer) -> int:
    """Of one token, computed as a recurrence; the chunked forms that kernels use do more."""
    states = [each for each in (layer.mixer, layer.state_beside) if isinstance(each, State)]
    return sum(
        math.prod(state.recurrent_shape)
        * (_DELTA_RULE_FLOPS if state.kind in _DELTA_RULES else _READ_AND_UPDATE_FLOPS)
        for state in states
        if state.recurrent_shape
    )


def _attention_flops(
    layer: Layer, new_tokens: int, context_tokens: int, top_k: int | None, is_absorbed: bool
) -> int:
    """Of one layer: each pair's score and its share of the value, in every head."""
    mixer = layer.mixer
    if isinstance(mixer, Attention):
        pairs = attended_pairs(new_tokens, context_tokens, mixer.window, mixer.is_chunked)
        return 2 * pairs * mixer.num_heads * (mixer.head_dim + mixer.v_head_dim)
    if not isinstance(mixer, Latent):
        return 0
    keys, values = mixer.qk_nope_head_dim, mixer.v_head_dim
    if is_absorbed:
        keys = values = mixer.kv_lora_rank
    pairs = attended_pairs(new_tokens, context_tokens, top_k)
    flops = 2 * pairs * mixer.num_heads * (keys + mixer.qk_rope_head_dim + values)
    if mixer.indexer is not None:
        all_pairs = attended_pairs(new_tokens, context_tokens)
        flops += 2 * all_pairs * mixer.indexer.num_heads * mixer.indexer.head_dim
    return flops


def _kv_bytes(
    arch: Architecture, chunks: Iterable[tuple[int, int]], kv_dtype: KvDtype, top_k: int | None
) -> int:
    """Layers that share another's keys write none, and read that one's."""
    written = Footprint.of(arch, kv_dtype=kv_dtype)
    read = Footprint.of(replace(arch, layers=tuple(map(_unshared, arch.layers))), kv_dtype=kv_dtype)
    caches = Counter(replace(cache, layer=0) for cache in read.caches)
    return sum(
        num_caches * _read_bytes(cache, new, context, top_k)
        for cache, num_caches in caches.items()
        for new, context in chunks
    ) + sum(written.bytes_per_token * new + written.state_bytes_per_sequence for new, _ in chunks)


def _unshared(layer: Layer) -> Layer:
    if isinstance(layer.mixer, Attention):
        return replace(layer, mixer=replace(layer.mixer, is_kv_shared=False))
    return layer


def _read_bytes(cache: Cache, new_tokens: int, context_tokens: int, top_k: int | None) -> int:
    """A state is read unless the sequence begins; of sparse latents at most what all new tokens
    pick, were no two to pick the same."""
    if cache.is_state:
        return cache.state_bytes if context_tokens else 0
    num_tokens = context_tokens
    if cache.window is not None:
        is_chunked = cache.kind == "chunk"
        num_tokens = num_tokens % cache.window if is_chunked else min(num_tokens, cache.window - 1)
    elif cache.kind == "latent" and top_k is not None:
        num_tokens = min(num_tokens, new_tokens * top_k)
    return num_tokens * cache.bytes_per_token
