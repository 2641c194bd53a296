"""What a call costs on a GPU of one's own: modelled seconds times its price per hour.

Prefill is taken to be bound by compute: 2 FLOPs per parameter and token, and 4 x layers x hidden
per pair of a token and one it attends to (QK^T and the weighted sum, 2 FLOPs each; Kaplan et al.
2020, arXiv 2001.08361, section 2.1). Decoding is taken to be bound by memory: every token reads the
weights and the KV cache once. One call at a time; batching is not modelled.
"""

from dataclasses import dataclass
from decimal import Decimal
from importlib.resources import files
from math import isfinite
from pathlib import Path
from typing import Any

import msgspec

from duramen.experiments.prices.book_file import Source, check_named, check_sources
from duramen.experiments.prices.yaml_file import convert, iso_date, price_mapping, usd
from duramen.layout.errors import PriceError
from duramen.serving.strict_yaml import read_text


@dataclass(frozen=True, slots=True)
class TimeModel:
    """A model on a device. All figures above 0, efficiencies at most 1, overhead from 0 on.

    `flops_per_s` and `bytes_per_s` are the device's peaks, of which the efficiencies are reached.
    Raises PriceError on a figure that makes no sense.
    """

    overhead_s: float  # per call, before its first token
    flops_per_s: float
    compute_efficiency: float
    bytes_per_s: float
    bandwidth_efficiency: float
    num_params: int
    num_layers: int
    hidden_size: int
    weight_bytes: int
    kv_bytes_per_token: int
    usd_per_hour: Decimal
    assumed: tuple[str, ...] = ()  # the names of figures that were neither measured nor published

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if name == "assumed":
                continue
            least_is_zero = name in ("overhead_s", "usd_per_hour")
            if not isfinite(value) or value < 0 or (value == 0 and not least_is_zero):
                raise PriceError(f"{name} is {value}: give a finite number above 0")
            if name.endswith("_efficiency") and value > 1:
                raise PriceError(f"{name} is {value}: no device does more than its peak")

    def prefill_s(self, num_tokens: int, context_tokens: int = 0) -> float:
        """Seconds to the first token: compute `num_tokens` behind `context_tokens` cached ones."""
        linear = 2 * self.num_params * num_tokens
        pairs = num_tokens * context_tokens + num_tokens * (num_tokens + 1) // 2
        attention = 4 * self.num_layers * self.hidden_size * pairs
        return self.overhead_s + (linear + attention) / (self.compute_efficiency * self.flops_per_s)

    def decode_s(self, num_tokens: int, context_tokens: int) -> float:
        """Seconds for `num_tokens` steps, the first of which reads a KV cache of `context_tokens`.

        A reply of n tokens takes n - 1 steps: its first token comes out of the prefill.
        """
        kv_tokens = num_tokens * context_tokens + num_tokens * (num_tokens - 1) // 2
        num_bytes = num_tokens * self.weight_bytes + kv_tokens * self.kv_bytes_per_token
        return num_bytes / (self.bandwidth_efficiency * self.bytes_per_s)

    def cost(self, seconds: float) -> Decimal:
        """USD, to the 28 digits of Python's default decimal context.

        Raises PriceError on seconds below 0 or not finite.
        """
        if not isfinite(seconds) or seconds < 0:
            raise PriceError(f"{seconds} seconds cannot be priced")
        return self.usd_per_hour * Decimal(seconds) / 3600


class _Gpu(msgspec.Struct, forbid_unknown_fields=True):
    usd_per_hour: str
    peak_flops: float
    bytes_per_s: float
    sources: list[str]


class _Assumed(msgspec.Struct, forbid_unknown_fields=True):
    compute_efficiency: float
    bandwidth_efficiency: float
    overhead_s: float


class _Served(msgspec.Struct, forbid_unknown_fields=True):
    num_params: int
    num_layers: int
    hidden_size: int
    weight_bytes: int
    kv_bytes_per_token: int
    sources: list[str]


class _File(msgspec.Struct, forbid_unknown_fields=True):
    date: str
    sources: dict[str, Source]
    gpus: dict[str, dict[str, Any]]
    models: dict[str, dict[str, Any]]
    assumed: _Assumed
    not_modelled: list[str] = []
    unconfirmed: list[str] = []


def packaged_gpus() -> dict[str, TimeModel]:
    """By "gpu/model@date": every packaged model on every packaged GPU."""
    file = files("duramen.configs").joinpath("prices").joinpath("own_gpus.yaml")
    return parse_gpus(file.read_text(encoding="utf-8"), "prices/own_gpus.yaml")


def load_gpus(path: Path) -> dict[str, TimeModel]:
    """A file of the user's, in the form of the packaged one. Raises DuramenError."""
    return parse_gpus(read_text(path), str(path))


def parse_gpus(text: str, where: str) -> dict[str, TimeModel]:
    """Raises DuramenError with `where` and the key that is wrong."""
    file = convert(price_mapping(text, where), _File, where)
    date = iso_date(file.date, f"{where}: date")
    check_sources(file.sources, where)
    found = {}
    for gpu_name, raw_gpu in file.gpus.items():
        place = f"{where}: gpus.{gpu_name}"
        gpu = convert(raw_gpu, _Gpu, place)
        check_named(gpu.sources, file.sources, place)
        for model_name, raw_model in file.models.items():
            served = convert(raw_model, _Served, f"{where}: models.{model_name}")
            check_named(served.sources, file.sources, f"{where}: models.{model_name}")
            found[f"{gpu_name}/{model_name}@{date}"] = _time_model(gpu, served, file, place)
    return found


def _time_model(gpu: _Gpu, served: _Served, file: _File, where: str) -> TimeModel:
    price = usd(gpu.usd_per_hour, f"{where}.usd_per_hour")
    try:
        return TimeModel(
            overhead_s=file.assumed.overhead_s,
            flops_per_s=gpu.peak_flops,
            compute_efficiency=file.assumed.compute_efficiency,
            bytes_per_s=gpu.bytes_per_s,
            bandwidth_efficiency=file.assumed.bandwidth_efficiency,
            num_params=served.num_params,
            num_layers=served.num_layers,
            hidden_size=served.hidden_size,
            weight_bytes=served.weight_bytes,
            kv_bytes_per_token=served.kv_bytes_per_token,
            usd_per_hour=price,
            assumed=_Assumed.__struct_fields__,
        )
    except PriceError as error:
        raise PriceError(f"{where}: {error}") from None
