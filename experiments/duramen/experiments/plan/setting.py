"""One choice of what is swept, and the choices around it."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from itertools import product
from math import inf
from typing import Any

from duramen.serving.kv.footprint import KvDtype
from duramen.serving.timing_profile import Flag, TimingProfile


@dataclass(frozen=True)
class Setting:
    """By vLLM's own names. A threshold of 0: none. `itl_target_ms`: what our scheduler holds, None
    with vLLM's own."""

    max_num_batched_tokens: int
    long_prefill_token_threshold: int
    max_num_seqs: int
    block_size: int
    kv_dtype: KvDtype = KvDtype.AUTO
    itl_target_ms: float | None = None

    @property
    def is_allowed(self) -> bool:
        """Whether a step can serve all sequences, and a threshold leaves it room for others."""
        budget = self.max_num_batched_tokens
        return self.max_num_seqs <= budget and self.long_prefill_token_threshold < budget

    def differences(self, other: "Setting") -> list[str]:
        return [name for name in AXES if getattr(self, name) != getattr(other, name)]

    def as_flags(self) -> dict[str, Flag]:
        """Those that the rules of batching have."""
        names = ("max_num_batched_tokens", "long_prefill_token_threshold", "max_num_seqs")
        return {name: getattr(self, name) for name in names}

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"kv_dtype": self.kv_dtype.value}


AXES = tuple(each.name for each in fields(Setting))
SPREAD = ("max_num_batched_tokens", "max_num_seqs")  # whose coarse grid has every second value
BUDGETS = (256, 512, 1024, 2048, 4096, 8192, 16384)
THRESHOLDS = (128, 256, 512, 1024, 2048, 0)
COARSE_THRESHOLDS = (512, 0)
SEQUENCES = (8, 16, 32, 64, 128, 256)
BLOCKS_PER_GRANULE = (1, 2, 4)


@dataclass(frozen=True)
class Space:
    """The values of each axis, in order: neighbours stand side by side. `present`: what the profile
    was measured with."""

    axes: dict[str, tuple[Any, ...]]
    present: Setting

    def coarse(self) -> list[Setting]:
        """The present setting, then a grid over the far ends of each axis."""
        grid = product(*(self._coarse_values(name) for name in AXES))
        settings = (Setting(*values) for values in grid)
        return [*dict.fromkeys([self.present, *(each for each in settings if each.is_allowed)])]

    def everything(self) -> list[Setting]:
        settings = (Setting(*values) for values in product(*(self.axes[name] for name in AXES)))
        return [each for each in settings if each.is_allowed]

    def neighbours(self, setting: Setting) -> Iterator[Setting]:
        """Those that differ in one axis, by one place."""
        for name in AXES:
            values = self.axes[name]
            place = values.index(getattr(setting, name))
            for value in (*values[max(place - 1, 0) : place], *values[place + 1 : place + 2]):
                moved = replace(setting, **{name: value})
                if moved.is_allowed:
                    yield moved

    def _coarse_values(self, name: str) -> tuple[Any, ...]:
        values = self.axes[name]
        if name in SPREAD:
            return values[::2] if name == "max_num_batched_tokens" else values[1::2] or values
        if name == "long_prefill_token_threshold":
            return tuple(value for value in values if value in COARSE_THRESHOLDS) or values
        if name == "block_size":
            return (self.present.block_size,)
        return values


def space_of(
    profile: TimingProfile,
    granule: int,
    kv_dtypes: tuple[KvDtype, ...] = (KvDtype.AUTO,),
    itl_s: float | None = None,
) -> Space:
    """Around the settings that the profile was measured with. `granule`: the smallest block.
    `itl_s`: what our scheduler might hold, None if it is no choice."""
    present = Setting(
        _flag(profile, "max_num_batched_tokens", 8192),
        _flag(profile, "long_prefill_token_threshold", 0),
        _flag(profile, "max_num_seqs", 128),
        _flag(profile, "block_size", granule),
        kv_dtypes[0],
    )
    blocks = tuple(granule * times for times in BLOCKS_PER_GRANULE)
    thresholds = {*THRESHOLDS, present.long_prefill_token_threshold}
    axes: dict[str, tuple[Any, ...]] = {
        "max_num_batched_tokens": _with(BUDGETS, present.max_num_batched_tokens),
        "long_prefill_token_threshold": tuple(sorted(thresholds, key=lambda each: each or inf)),
        "max_num_seqs": _with(SEQUENCES, present.max_num_seqs),
        "block_size": _with(blocks, present.block_size),
        "kv_dtype": kv_dtypes,
        "itl_target_ms": (None,) if itl_s is None else (None, itl_s * 1000),
    }
    return Space(axes, present)


def _with(values: tuple[int, ...], value: int) -> tuple[int, ...]:
    return tuple(sorted({*values, value}))


def _flag(profile: TimingProfile, name: str, default: int) -> int:
    value = profile.flags.get(name)
    return value if type(value) is int else default
