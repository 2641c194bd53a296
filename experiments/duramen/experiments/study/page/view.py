"""A study's JSON, read for the page: whatever is missing or null is None or empty here.

What each number means: results.py and report.py. Nothing is computed here but sums of counts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

STABLE = "stable"
MOST = 1e300
Json = Mapping[str, Any]


@dataclass(frozen=True)
class ArmView:
    """One layout in one arm, in tokens; `gaps` by cause."""

    num_calls: int | None
    num_skipped: int
    prompt_tokens: int | None
    cached_tokens: int | None
    uncached_tokens: int | None
    hit_rate: float | None
    gaps: Mapping[str, int]
    devices: Mapping[str, Json]


@dataclass(frozen=True)
class LayoutView:
    """`index`: the layout's place in the study. `arms`: by label."""

    index: int
    label: str
    is_assumed: bool
    has_effect: bool
    num_calls: int | None
    num_refused: Mapping[str, int]
    prompt_tokens: int | None
    min_uncached_tokens: int | None
    num_breaks: int | None
    num_deviating_tokens: int | None
    kv_byte_seconds: float | None
    alignment: Json
    gaps: Mapping[str, int]
    notes: Mapping[str, int]
    arms: Mapping[str, ArmView]
    usd: Mapping[str, Any]
    against: Mapping[str, Json]

    def arm(self, label: str) -> ArmView:
        return self.arms.get(label, NO_ARM)


NO_ARM = ArmView(None, 0, None, None, None, None, {}, {})


@dataclass(frozen=True)
class Spread:
    """Ratios of a cost to the same session's cost under another layout."""

    num_sessions: int
    num_cheaper: int
    num_dearer: int
    low: float
    p25: float
    median: float
    p75: float
    high: float


@dataclass(frozen=True)
class StudyView:
    """`facts`: every plain value at the top of the study. `models` and `devices`: their names;
    `machines`: what the study says of its GPUs."""

    facts: Json
    sessions: tuple[Json, ...]
    arms: tuple[str, ...]
    models: tuple[str, ...]
    devices: tuple[str, ...]
    machines: Json
    prices: Mapping[str, Json]
    layouts: tuple[LayoutView, ...]
    lanes: Mapping[str, Json]
    break_even: Json

    def by_uncached(self, arm: str) -> list[LayoutView]:
        """Fewest uncached tokens first, layouts without a figure last."""
        return sorted(self.layouts, key=lambda each: _place(each.arm(arm).uncached_tokens))

    def device_facts(self, name: str) -> Json:
        return mapping(self.machines.get(name))


def view(study: Json) -> StudyView:
    layouts = tuple(
        _layout(index, str(label), mapping(each))
        for index, (label, each) in enumerate(mapping(study.get("layouts")).items())
    )
    seen_arms = [arm for each in layouts for arm in each.arms]
    prices = mapping(study.get("prices"))
    return StudyView(
        facts={key: each for key, each in study.items() if isinstance(each, str | int | float)},
        sessions=tuple(mapping(each) for each in sequence(study.get("sessions"))),
        arms=unique([str(arm) for arm in sequence(study.get("arms"))] + seen_arms),
        models=unique([*prices, *(model for each in layouts for model in each.usd)]),
        devices=unique(
            device for each in layouts for arm in each.arms.values() for device in arm.devices
        ),
        machines=mapping(study.get("devices")),
        prices={name: mapping(each) for name, each in prices.items()},
        layouts=layouts,
        lanes={name: mapping(each) for name, each in mapping(study.get("lanes")).items()},
        break_even=mapping(study.get("break_even")),
    )


def spread(result: Json) -> Spread | None:
    """None where no session has both layouts."""
    numbers = [number(result.get(key)) for key in ("min", "p25", "median", "p75", "max")]
    known = [each for each in numbers if each is not None]
    counts = [whole(result.get(f"num_{key}")) or 0 for key in ("sessions", "cheaper", "dearer")]
    return Spread(*counts, *known) if len(known) == len(numbers) else None


def mapping(value: object) -> Json:
    return value if isinstance(value, Mapping) else {}


def sequence(value: object) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def number(value: object) -> float | None:
    """None for what is no number, or none that can be drawn."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < MOST else None


def whole(value: object) -> int | None:
    known = number(value)
    return None if known is None else int(known)


def counts(value: object) -> dict[str, int]:
    known = {str(key): whole(each) for key, each in mapping(value).items()}
    return {key: each for key, each in known.items() if each}


def unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _layout(index: int, label: str, json: Json) -> LayoutView:
    return LayoutView(
        index=index,
        label=label,
        is_assumed=bool(json.get("is_assumed")),
        has_effect=json.get("has_effect") is not False,
        num_calls=whole(json.get("num_calls")),
        num_refused=counts(json.get("num_refused")),
        prompt_tokens=whole(json.get("prompt_tokens")),
        min_uncached_tokens=whole(json.get("min_uncached_tokens")),
        num_breaks=whole(json.get("num_breaks")),
        num_deviating_tokens=whole(json.get("num_deviating_tokens")),
        kv_byte_seconds=number(json.get("kv_byte_seconds")),
        alignment=mapping(json.get("alignment")),
        gaps=counts(json.get("gaps")),
        notes=counts(json.get("notes")),
        arms={str(arm): _arm(mapping(each)) for arm, each in mapping(json.get("arms")).items()},
        usd=mapping(json.get("usd")),
        against={key: mapping(each) for key, each in mapping(json.get("against")).items()},
    )


def _arm(json: Json) -> ArmView:
    return ArmView(
        num_calls=whole(json.get("num_calls")),
        num_skipped=sum(counts(json.get("num_skipped")).values()),
        prompt_tokens=whole(json.get("prompt_tokens")),
        cached_tokens=whole(json.get("cached_tokens")),
        uncached_tokens=whole(json.get("uncached_tokens")),
        hit_rate=number(json.get("hit_rate")),
        gaps=counts(json.get("gaps")),
        devices={key: mapping(each) for key, each in mapping(json.get("devices")).items()},
    )


def _place(tokens: int | None) -> tuple[bool, int]:
    return tokens is None, tokens or 0
