"""From a running engine to a dated timing profile with its error on held-out calls."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date

import numpy as np

from duramen.experiments.calibrate.fit import Fit, Measured, fit
from duramen.experiments.calibrate.held_out import validate
from duramen.experiments.calibrate.measure import Measurement, Report, measure
from duramen.experiments.calibrate.observed import observed
from duramen.experiments.calibrate.ttft import peaks_of, ttft_of
from duramen.experiments.timed.rules import NEEDED, rules_of
from duramen.layout.errors import DuramenError
from duramen.serving.kv.arch import Architecture
from duramen.serving.kv.batching.rules import Rules
from duramen.serving.kv.step_time import LinearStepTime
from duramen.serving.kv.work import Ttft
from duramen.serving.timing_profile import Flag, Origin, TimingProfile
from duramen.serving.vllm.protocol import Engine

UNKNOWN = LinearStepTime(1.0, 0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Subject:
    """What is measured. `device`: its name, as NVIDIA's driver has it for a GPU. `flags`: the
    engine's own, by vLLM's names. `arch`: of the model, None where it is not known."""

    device: str
    model: str
    flags: Mapping[str, Flag]
    arch: Architecture | None


async def calibrate(
    engine: Engine, subject: Subject, minutes: float, report: Report
) -> TimingProfile:
    """`conditions` of the profile say how it went. Takes `minutes`, and calls that still run then.

    Raises DuramenError for flags that are not known, and as `measure`.
    """
    info = engine.info
    blank = TimingProfile(
        subject.device,
        subject.model,
        f"{info.name} {info.version}",
        date.today(),
        Origin.CALIBRATED,
        UNKNOWN,
        dict(subject.flags) | {"block_size": info.unit_tokens},
    )
    rules = _rules(blank, info.unit_tokens)
    measurement = await measure(engine, rules, minutes, report)
    times, num_unplanned = _times(measurement, rules)
    fitted = fit(times)
    profile = replace(
        blank,
        step=fitted.step,
        call_fixed_s=fitted.call_fixed_s,
        conditions=_conditions(measurement, fitted, num_unplanned),
    )
    held_out = {scene: measurement.played[scene] for scene in measurement.design.held_out}
    return replace(
        profile, validation=validate(held_out, profile, rules), ttft=_ttft(fitted, subject)
    )


def _rules(blank: TimingProfile, block_size: int) -> Rules:
    for name in NEEDED:
        if name not in blank.flags:
            raise DuramenError(
                f"the server does not say {name} (one with VLLM_SERVER_DEV_MODE=1 does): "
                f"give --flag {name}=VALUE, as it was started or as its log says"
            )
    return rules_of(blank, block_size, None)


def _ttft(fitted: Fit, subject: Subject) -> Ttft | None:
    peaks, num_gpus = peaks_of(subject.device), subject.flags.get("tensor_parallel_size", 1)
    if peaks is None or subject.arch is None or not isinstance(num_gpus, int):
        return None
    return ttft_of(fitted.step, fitted.call_fixed_s, subject.arch, peaks.of(num_gpus))


def _times(measurement: Measurement, rules: Rules) -> tuple[list[Measured], int]:
    """And how many scenes did not go as planned."""
    times: list[Measured] = []
    num_unplanned = 0
    for scene in measurement.design.fitted:
        what = observed(scene, rules)
        repeats = [what.measure(calls) for calls in measurement.played[scene]]
        good = [each for each in repeats if each is not None]
        num_unplanned += len(repeats) - len(good)
        if good:
            times += map(Measured, what.features, zip(*good, strict=True))
    return times, num_unplanned


def _conditions(measurement: Measurement, fitted: Fit, num_unplanned: int) -> dict[str, float]:
    return {
        "minutes": round(measurement.seconds / 60, 2),
        "longest_call_tokens": measurement.design.max_tokens,
        "num_rounds": measurement.num_rounds,
        "num_scenes_thrown_out": measurement.num_thrown_out + num_unplanned,
        "num_times": fitted.num_times,
        "num_outliers": fitted.num_outliers,
        "fit_median_error": float(np.median(np.abs(fitted.residuals))),
    }
