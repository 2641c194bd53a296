"""What makes a plan's figures doubtful, in words for its reader."""

import re
from collections.abc import Iterator, Sequence

from duramen.experiments.plan.trial import Trial
from duramen.experiments.timed.slo import Slo
from duramen.experiments.trajectory import Session
from duramen.serving.kv.arch import Architecture
from duramen.serving.kv.footprint import Footprint, KvDtype
from duramen.serving.timing_profile import Errors, Origin, TimingProfile


def of_profile(
    profile: TimingProfile, model: str, sessions: Sequence[Session], machine: str
) -> Iterator[str]:
    """`model`: whose tokenizer and config are used. `machine`: this one."""
    if profile.origin is Origin.PRIOR:
        yield (
            f"the timing profile is a prior: nobody measured it on {profile.device}; calibrate "
            "there before you trust a figure (duramen calibrate)"
        )
    elif profile.validation is None:
        yield "the timing profile has no held-out calls: how far its predictions are off is unknown"
    if not _is_same(profile.model, model):
        yield (
            f"the timing profile is of {profile.model}, the tokens are those of {model}: step "
            "times belong to the first, lengths and cached tokens to the second"
        )
    recorded = sorted({m for s in sessions for c in s.calls if (m := c.sending.model)})
    others = [name for name in recorded if not _is_same(name, profile.model)]
    if others:
        yield (
            f"the trace was recorded with {', '.join(others)}: replies are taken as long as they "
            f"were there, which {profile.model} need not make them"
        )
    if profile.origin is Origin.CALIBRATED and profile.device != machine:
        yield f"figures are those of {profile.device}; this machine is {machine}"


def of_architecture(arch: Architecture | None) -> Iterator[str]:
    if arch is not None and not Footprint.of(arch).is_proportional:
        yield (
            "the model keeps windows or states: the simulator takes all its layers to keep all "
            "tokens, in a pool of as many tokens as fit at the longest call"
        )


def of_pick(pick: Trial, slo: Slo, profile: TimingProfile, measured: KvDtype) -> Iterator[str]:
    """`measured`: the profile's own format of the cache."""
    if pick.blocks.num_blocks is None:
        yield "the cache was taken to be without limit: give --memory or --kv-tokens"
    if pick.setting.kv_dtype is not measured:
        yield (
            f"{pick.setting.kv_dtype.value} changes what is computed: check the answers; steps are "
            "taken to cost what the profile says of its own format"
        )
    if profile.validation is None:
        return
    limits = (
        ("TTFT", pick.ttft_p99_s, slo.ttft_s, profile.validation.ttft),
        ("ITL", pick.itl_p99_s, slo.itl_s, profile.validation.itl),
    )
    for name, found_s, most_s, errors in limits:
        if most_s is not None and _is_near(found_s, most_s, errors):
            yield (
                f"{name} p99 is closer to its objective than the profile's error: predictions of "
                f"held-out calls were off by up to {errors.p90:.0%} in 90 of 100"
            )


def _is_near(found_s: float, most_s: float, errors: Errors) -> bool:
    return found_s * (1 - errors.p90) <= most_s < found_s * (1 + errors.p90)


def _is_same(name: str, other: str) -> bool:
    """Whether one is the other with more around it: an organisation, -Instruct, a date."""
    plain, other_plain = (re.sub(r"[^a-z0-9]", "", each.lower()) for each in (name, other))
    return plain in other_plain or other_plain in plain
