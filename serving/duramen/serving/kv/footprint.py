"""Bytes that a model keeps of each token and of each sequence, on one GPU or in all.

Keys and values are counted per KV head, a latent once, a state once per sequence. Tensor
parallelism splits KV heads, then replicates them; a latent stands whole on every rank; states are
split by heads.
Formats as vLLM 0.32 packs them (v1/kv_cache_interface.py and the attention backends).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from math import prod

from duramen.layout.errors import ModelError
from duramen.serving.kv.arch import DTYPE_BYTES, Architecture, Attention, Latent, Layer, State

_SCALE_BYTES = 4  # one float32 per token and head
_NVFP4_BLOCK = 16  # values that share a one-byte scale
_INDEXER_BLOCK = 128  # values of one byte that share a scale of four
_DS_MLA_BYTES = 656  # 512 of fp8, 4 scales, 64 rotated values of two bytes
_DS_MLA_SHAPE = (512, 64)  # DeepSeek's latent and rotated values
_GQA_KV_HEADS = 8


class KvDtype(StrEnum):
    """`auto`: the model's own, or what its checkpoint is quantised for. The `per_token_head` ones
    carry a scale per token and head."""

    AUTO = "auto"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    FP8 = "fp8"
    FP8_E4M3 = "fp8_e4m3"
    FP8_E5M2 = "fp8_e5m2"
    FP8_DS_MLA = "fp8_ds_mla"
    FP8_PER_TOKEN_HEAD = "fp8_per_token_head"
    INT8_PER_TOKEN_HEAD = "int8_per_token_head"
    INT4_PER_TOKEN_HEAD = "int4_per_token_head"
    NVFP4 = "nvfp4"

    def of(self, arch: Architecture) -> "KvDtype":
        """What it comes to for this model: never `auto`."""
        return KvDtype(arch.kv_format or arch.dtype) if self is KvDtype.AUTO else self


@dataclass(frozen=True)
class Cache:
    """What one layer keeps, under one name. `bytes_per_token` is 0 for a state, `state_bytes` for
    all others. `kind`: "full", "window", "chunk", "latent", "indexer" or the state's own kind;
    `window`: tokens that are kept at most, None for all."""

    layer: int
    kind: str
    bytes_per_token: int = 0
    state_bytes: int = 0
    window: int | None = None

    @property
    def is_state(self) -> bool:
        return self.bytes_per_token == 0


@dataclass(frozen=True)
class Footprint:
    """Of one tensor-parallel rank, or of the whole model where there is one rank."""

    caches: tuple[Cache, ...]

    @classmethod
    def of(
        cls, arch: Architecture, num_ranks: int = 1, kv_dtype: KvDtype = KvDtype.AUTO
    ) -> "Footprint":
        """Raises ModelError where the model cannot be split so, or not be kept in that format."""
        kv_format = _Format(kv_dtype.of(arch))
        return cls(
            tuple(
                cache
                for index, layer in enumerate(arch.layers)
                for cache in _caches(layer, index, num_ranks, kv_format)
            )
        )

    @property
    def bytes_per_token(self) -> int:
        """As long as every window still grows."""
        return sum(cache.bytes_per_token for cache in self.caches)

    @property
    def bytes_per_token_beyond_window(self) -> int:
        """What a token adds when all windows are full."""
        return sum(cache.bytes_per_token for cache in self.caches if cache.window is None)

    @property
    def state_bytes_per_sequence(self) -> int:
        return sum(cache.state_bytes for cache in self.caches)

    @property
    def is_proportional(self) -> bool:
        """Whether a sequence's bytes are its tokens times the bytes of one: no window, no state."""
        return all(cache.window is None and not cache.is_state for cache in self.caches)

    def bytes_at(self, num_tokens: int) -> int:
        """Of a sequence of so many tokens, without rounding to blocks."""
        return self.state_bytes_per_sequence + sum(
            cache.bytes_per_token * min(num_tokens, cache.window or num_tokens)
            for cache in self.caches
        )


@dataclass(frozen=True)
class _Format:
    kv_dtype: KvDtype

    def head_bytes(self, head_dim: int) -> int:
        """Of one token's key or value in one head."""
        if self.kv_dtype is KvDtype.FP8_DS_MLA:
            raise ModelError("fp8_ds_mla is a format for latents: this model keeps keys and values")
        if self.kv_dtype is KvDtype.NVFP4:
            if head_dim % _NVFP4_BLOCK:
                raise ModelError(f"nvfp4 needs heads of a multiple of 16 values, not {head_dim}")
            return head_dim // 2 + head_dim // _NVFP4_BLOCK
        return self._values_bytes(head_dim) + (_SCALE_BYTES if self._has_scales else 0)

    def latent_bytes(self, latent: Latent) -> int:
        """Of one token: the latent and its rotated key."""
        if self.kv_dtype is KvDtype.NVFP4:
            raise ModelError("nvfp4 is no format for latents: take fp8 or auto")
        if self.kv_dtype is KvDtype.FP8_DS_MLA:
            if (latent.kv_lora_rank, latent.qk_rope_head_dim) != _DS_MLA_SHAPE:
                raise ModelError("fp8_ds_mla needs a kv_lora_rank of 512 and 64 rotated values")
            return _DS_MLA_BYTES
        num_values = latent.kv_lora_rank + latent.qk_rope_head_dim
        return self._values_bytes(num_values) + (2 * _SCALE_BYTES if self._has_scales else 0)

    @property
    def _has_scales(self) -> bool:
        return self.kv_dtype.endswith("_per_token_head")

    def _values_bytes(self, num_values: int) -> int:
        if self.kv_dtype in (KvDtype.BFLOAT16, KvDtype.FLOAT16):
            return num_values * DTYPE_BYTES[self.kv_dtype]
        if self.kv_dtype is KvDtype.INT4_PER_TOKEN_HEAD:
            return num_values // 2
        return num_values


def _caches(layer: Layer, index: int, num_ranks: int, kv_format: _Format) -> Iterator[Cache]:
    for mixer in (layer.mixer, layer.state_beside):
        if isinstance(mixer, Attention):
            yield from _attention(mixer, index, num_ranks, kv_format)
        elif isinstance(mixer, Latent):
            yield from _latent(mixer, index, num_ranks, kv_format)
        elif isinstance(mixer, State):
            state_bytes = _state_bytes(mixer, num_ranks)
            yield Cache(index, mixer.kind, state_bytes=state_bytes)


def _attention(
    attention: Attention, index: int, num_ranks: int, kv_format: _Format
) -> Iterator[Cache]:
    _split(attention.num_heads, num_ranks, "attention heads")
    if attention.is_kv_shared:
        return
    whole = attention.num_kv_heads
    num_kv_heads = _split(whole, num_ranks, "KV heads") if num_ranks % whole else 1
    sides = kv_format.head_bytes(attention.head_dim) + kv_format.head_bytes(attention.v_head_dim)
    kind = "full"
    if attention.window is not None:
        kind = "chunk" if attention.is_chunked else "window"
    yield Cache(index, kind, bytes_per_token=num_kv_heads * sides, window=attention.window)


def _latent(latent: Latent, index: int, num_ranks: int, kv_format: _Format) -> Iterator[Cache]:
    _split(latent.num_heads, num_ranks, "attention heads")
    yield Cache(index, "latent", bytes_per_token=kv_format.latent_bytes(latent))
    if latent.indexer is not None:
        head_dim = latent.indexer.head_dim
        num_bytes = head_dim + head_dim // _INDEXER_BLOCK * _SCALE_BYTES
        yield Cache(index, "indexer", bytes_per_token=num_bytes)


def _state_bytes(state: State, num_ranks: int) -> int:
    """On one rank. Mamba 2's single group of B and C stands on every rank."""
    total = 0
    if state.conv_shape:
        channels, length = state.conv_shape
        if state.num_groups % num_ranks:
            if state.num_groups != 1:
                raise ModelError(f"{state.num_groups} groups cannot be split {num_ranks} ways")
            channels += (num_ranks - 1) * (channels - prod(state.recurrent_shape[:2]))
        channels = _split(channels, num_ranks, "convolved channels")
        total += channels * length * DTYPE_BYTES[state.conv_dtype]
    if state.recurrent_shape:
        num_heads = _split(state.recurrent_shape[0], num_ranks, "state heads")
        rest = prod(state.recurrent_shape[1:])
        total += num_heads * rest * DTYPE_BYTES[state.recurrent_dtype]
    return total


def _split(number: int, num_ranks: int, what: str) -> int:
    if number % num_ranks:
        raise ModelError(f"{number} {what} cannot be split {num_ranks} ways")
    return number // num_ranks


def other_attentions(arch: Architecture) -> dict[str, Footprint]:
    """What models of the same shape would keep with each kind of attention, in their own dtype:
    "mha", "gqa" (8 KV heads), "mqa" and "mla" (a latent of 512 and 64 rotated values).

    Layers, heads, head sizes and windows stay. Left out: what the number of heads does not allow.
    """
    wanted: dict[str, Callable[[Attention | Latent], Attention | Latent]] = {
        "mha": lambda mixer: _with_kv_heads(mixer, mixer.num_heads),
        "gqa": lambda mixer: _with_kv_heads(mixer, _GQA_KV_HEADS),
        "mqa": lambda mixer: _with_kv_heads(mixer, 1),
        "mla": _as_latent,
    }
    found = {}
    for name, make in wanted.items():
        layers = tuple(
            replace(layer, mixer=make(layer.mixer))
            if isinstance(layer.mixer, Attention | Latent)
            else layer
            for layer in arch.layers
        )
        heads = [m for layer in layers if isinstance(m := layer.mixer, Attention)]
        if all(each.num_heads % each.num_kv_heads == 0 for each in heads):
            found[name] = Footprint.of(replace(arch, layers=layers, kv_format=None))
    return found


def _with_kv_heads(mixer: Attention | Latent, num_kv_heads: int) -> Attention:
    if isinstance(mixer, Attention):
        return replace(mixer, num_kv_heads=num_kv_heads)
    head_dim = mixer.qk_nope_head_dim + mixer.qk_rope_head_dim
    return Attention(mixer.num_heads, num_kv_heads, head_dim, mixer.v_head_dim)


def _as_latent(mixer: Attention | Latent) -> Latent:
    if isinstance(mixer, Latent):
        return mixer
    rank, rotated = _DS_MLA_SHAPE
    return Latent(mixer.num_heads, rank, rotated, mixer.head_dim, mixer.v_head_dim)
