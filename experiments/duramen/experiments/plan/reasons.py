"""Why a setting was picked, in figures: what the one beside it would have cost."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from duramen.experiments.plan.order import Order
from duramen.experiments.plan.setting import AXES, Setting
from duramen.experiments.plan.trial import Trial
from duramen.serving.kv.footprint import KvDtype

MOST_CONTRASTS = 2
TELLING = 0.01  # a smaller change is none


@dataclass(frozen=True)
class Contrast:
    """One axis. `worse`: by how much `figure` is worse with the other setting, as a share of it."""

    axis: str
    other: Trial
    figure: str
    worse: float
    is_over: bool  # the other misses an objective by this figure


def why(pick: Trial, trials: Sequence[Trial], order: Order) -> str:
    """One sentence. `trials`: on the same traffic."""
    found = [*_contrasts(pick, trials, order)]
    telling = sorted(found, key=lambda each: (not each.is_over, -each.worse))[:MOST_CONTRASTS]
    if not telling:
        return "no setting beside it changes a figure for the worse by 1%"
    return "; ".join(_sentence(pick, each) for each in telling)


def _contrasts(pick: Trial, trials: Sequence[Trial], order: Order) -> Iterator[Contrast]:
    """For each axis the worst of what one other value does."""
    for axis in AXES:
        others = [each for each in trials if pick.setting.differences(each.setting) == [axis]]
        told = [
            Contrast(axis, other, figure, worse, is_over)
            for other in others
            for figure, worse, is_over in _worse(pick, other, order)
            if worse >= TELLING
        ]
        nearest = sorted(told, key=lambda each: _distance(pick.setting, each.other.setting, axis))
        over = [each for each in nearest if each.is_over]
        yield from (over or nearest)[:1]


def _worse(pick: Trial, other: Trial, order: Order) -> Iterator[tuple[str, float, bool]]:
    over = other.over(order.slo)
    for figure, objective in (("ITL p99", "itl"), ("TTFT p99", "ttft")):
        ours, theirs = _value(pick, figure), _value(other, figure)
        if ours:
            yield figure, theirs / ours - 1, objective in over
    yield "good calls", 1 - other.goodput.share / max(pick.goodput.share, 1e-9), False
    yield "output tokens/s", 1 - other.tokens_per_s / pick.tokens_per_s, False


def _distance(setting: Setting, other: Setting, axis: str) -> float:
    ours, theirs = getattr(setting, axis), getattr(other, axis)
    is_number = isinstance(ours, int) and isinstance(theirs, int) and ours and theirs
    return max(ours / theirs, theirs / ours) if is_number else float("inf")


def _value(trial: Trial, figure: str) -> float:
    return trial.itl_p99_s if figure == "ITL p99" else trial.ttft_p99_s


def _sentence(pick: Trial, contrast: Contrast) -> str:
    axis, other = contrast.axis, contrast.other
    ours, theirs = (_shown(each, contrast.figure) for each in (pick, other))
    name = _name(axis, getattr(pick.setting, axis))
    other_name = _name(axis, getattr(other.setting, axis))
    return f"{name} keeps {contrast.figure} at {ours}, {other_name} gives {theirs}"


def _shown(trial: Trial, figure: str) -> str:
    if figure == "good calls":
        return f"{trial.goodput.share:.1%}"
    if figure == "output tokens/s":
        return f"{trial.tokens_per_s:,.1f}"
    return as_time(_value(trial, figure))


def as_time(seconds: float) -> str:
    """With three digits."""
    return f"{seconds * 1000:,.3g} ms" if seconds < 0.9995 else f"{seconds:,.2f} s"


def _name(axis: str, value: Any) -> str:
    if axis == "max_num_batched_tokens":
        return f"a budget of {value:,}"
    if axis == "long_prefill_token_threshold":
        return f"a long-prefill threshold of {value:,}" if value else "no long-prefill threshold"
    if axis == "max_num_seqs":
        return f"a limit of {value} sequences"
    if axis == "block_size":
        return f"a block of {value} tokens"
    if axis == "kv_dtype":
        return "the model's own KV format" if value is KvDtype.AUTO else f"{value} for the cache"
    return "vLLM's own scheduler" if value is None else f"our scheduler's target of {value:g} ms"
