"""How many bits a weight takes in a quantised checkpoint: what quantization_config says of it.

The scales of groups count as far as the config tells how large a group is. A part of a layer is
quantised or kept as one: as its last projection is.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import chain
from math import prod

from duramen.serving.kv.arch.fields import Fields
from duramen.serving.kv.arch.layers import Layer, State, WeightBits

_KEPT = (  # where lists of what is not quantised stand
    "exclude_modules",
    "ignore",
    "ignored_layers",
    "llm_int8_skip_modules",
    "modules_to_not_convert",
)
_PREFIXES = ("model.", "language_model.model.", "model.language_model.", "backbone.")
_ATTENTION = ("self_attn.o_proj", "self_attn.out_proj", "self_attention.dense", "mixer.o_proj")
_STATES = {
    "gated-delta-net": ("linear_attn.out_proj",),
    "kimi-delta": ("self_attn.o_proj",),
    "linear-attention": ("self_attn.out_proj", "self_attn.o_proj"),
    "mamba1": ("mamba.out_proj", "mixer.out_proj"),
    "mamba2": ("mamba.out_proj", "mixer.out_proj"),
    "short-conv": ("conv.out_proj",),
}
_MLP = ("mlp.down_proj", "mlp.fc2", "feed_forward.down_proj", "feed_forward.w2", "mixer.down_proj")
_SHARED = (
    "mlp.shared_experts.down_proj",
    "mlp.shared_expert.down_proj",
    "feed_forward.shared_expert.down_proj",
    "shared_mlp.output_linear",
    "mixer.shared_experts.down_proj",
)
_ROUTED = (
    "mlp.experts.0.down_proj",
    "block_sparse_moe.experts.0.w2",
    "feed_forward.experts.0.down_proj",
    "mixer.experts.0.down_proj",
)
_MODELOPT_BITS = {"FP8": 8.0, "NVFP4": 4.5, "MXFP8": 8.25}  # an 8-bit scale for 16, for 32 values


@dataclass(frozen=True)
class _Patterns:
    """Of modules' names: whole words of a dotted name, globs, regular expressions behind "re:"."""

    words: frozenset[str]
    globs: tuple[str, ...]
    expressions: tuple[re.Pattern[str], ...]

    @classmethod
    def of(cls, patterns: Iterable[str]) -> "_Patterns":
        every = set(patterns)
        expressions = {each for each in every if each.startswith("re:")}
        globs = {each for each in every - expressions if "*" in each}
        return cls(
            words=frozenset(every - expressions - globs),
            globs=tuple(globs),
            expressions=tuple(re.compile(each.removeprefix("re:")) for each in expressions),
        )

    def cover(self, name: str) -> bool:
        words = name.split(".")
        ends = range(len(words) + 1)
        if any(".".join(words[start:end]) in self.words for end in ends for start in range(end)):
            return True
        return any(
            fnmatchcase(name, each) or fnmatchcase(name, f"{each}.*") for each in self.globs
        ) or any(each.match(name) for each in self.expressions)


_EVERYTHING = _Patterns.of(["*"])


@dataclass(frozen=True)
class _Group:
    """What is quantised alike."""

    bits: float
    targets: _Patterns = _EVERYTHING


@dataclass(frozen=True)
class Quantised:
    """`groups` is None where it is not known how `method` quantises; `kept` is not quantised."""

    method: str | None
    groups: tuple[_Group, ...] | None
    kept: _Patterns

    @property
    def unknown(self) -> str | None:
        """Why it is not known how many bits a weight has, None where it is."""
        if self.groups is not None:
            return None
        return f"how many bits a weight has with quant_method {self.method!r} is not known"

    def bits_of(self, layer: Layer, index: int, own: int) -> WeightBits | None:
        """Of a layer's parts. `own`: bits of what is not quantised."""
        if self.groups is None:
            return None
        mixer = _STATES[layer.mixer.kind] if isinstance(layer.mixer, State) else _ATTENTION
        mlp = _SHARED if layer.mlp and layer.mlp.num_experts else _MLP
        return WeightBits(
            mixer=self._bits(mixer, index, own),
            mlp=self._bits(mlp, index, own),
            experts=self._bits(_ROUTED, index, own),
        )

    def _bits(self, part: Iterable[str], index: int, own: int) -> float:
        names = [f"{prefix}layers.{index}.{name}" for prefix in _PREFIXES for name in part]
        if any(map(self.kept.cover, names)):
            return own
        groups = self.groups or ()
        return next((each.bits for each in groups if any(map(each.targets.cover, names))), own)


def quantised(fields: Fields) -> Quantised | None:
    """None where the checkpoint is not quantised. Raises ModelError for what cannot be read."""
    config = fields.section("quantization_config")
    if config is None or not fields.get("quantization_config"):
        return None
    method = config.text("quant_method")
    inner = config.section("quantization") or config  # ModelOpt's
    read = _METHODS.get((method or "").replace("_", "-"))
    lists = [part.items(key, str) or () for part in (config, inner) for key in _KEPT]
    try:
        return Quantised(method, read and read(inner), _Patterns.of(chain(*lists)))
    except re.error as error:
        raise fields.wrong(f"quantization_config: {error.pattern!r} is no pattern") from None


def _with_scales(bits: int, scale_bits: int, group_size: object) -> float:
    """`group_size`: weights that share a scale; none or -1: a whole row or all, not counted."""
    if isinstance(group_size, int) and group_size > 0:
        return bits + scale_bits / group_size
    return bits


def _fp8(config: Fields) -> tuple[_Group, ...]:
    block = config.items("weight_block_size", int)
    return (_Group(_with_scales(8, 32, prod(block) if block else None)),)


def _mxfp4(config: Fields) -> tuple[_Group, ...]:
    return (_Group(_with_scales(4, 8, 32), _Patterns.of(["experts"])),)


def _grouped(config: Fields) -> tuple[_Group, ...] | None:
    """AWQ and GPTQ: a scale of 16 bits and a zero point for each group."""
    bits = config.optional_count("bits", "w_bit")
    if not bits or config.get("dynamic") or config.get("modules_in_block_to_quantize"):
        return None
    return (_Group(_with_scales(bits, 16 + bits, config.get("group_size", "q_group_size"))),)


def _bits_and_bytes(config: Fields) -> tuple[_Group, ...] | None:
    bits = 4 if config.flag("load_in_4bit") else 8 if config.flag("load_in_8bit") else None
    return None if bits is None else (_Group(bits),)


def _compressed(config: Fields) -> tuple[_Group, ...] | None:
    found = []
    for group in config.sections("config_groups"):
        weights = group.section("weights")
        bits = weights and weights.optional_count("num_bits")
        if weights and bits:
            scale_bits = 8 if weights.text("type") == "float" else 16
            bits_with_scales = _with_scales(bits, scale_bits, weights.get("group_size"))
            targets = group.items("targets", str) or ()
            every = "Linear" in targets
            found.append(_Group(bits_with_scales, _EVERYTHING if every else _Patterns.of(targets)))
    return tuple(found) or None


def _modelopt(config: Fields) -> tuple[_Group, ...] | None:
    bits = _MODELOPT_BITS.get((config.text("quant_algo") or "").upper())
    return None if bits is None else (_Group(bits),)


_METHODS: dict[str, Callable[[Fields], tuple[_Group, ...] | None]] = {
    "awq": _grouped,
    "bitsandbytes": _bits_and_bytes,
    "compressed-tensors": _compressed,
    "fbgemm-fp8": _fp8,
    "fp8": _fp8,
    "gptq": _grouped,
    "modelopt": _modelopt,
    "modelopt-fp4": _modelopt,
    "mxfp4": _mxfp4,
}
