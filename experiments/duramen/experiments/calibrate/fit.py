"""The coefficients of a step's time, and what a call costs beside its steps, from measured times.

All are from 0 on, and relative errors are least in squares: a decode of milliseconds counts as much
as a prompt of seconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, combinations

import numpy as np
from numpy.typing import NDArray

from duramen.experiments.calibrate.observed import STEP_COEFFICIENTS, Features
from duramen.serving.kv.step_time import LinearStepTime

Array = NDArray[np.float64]

LEAST_STEP_S = 1e-5  # no step is for free
NUM_DEVIATIONS = 3.0
MAD_TO_DEVIATION = 1.4826  # of a normal distribution


@dataclass(frozen=True)
class Measured:
    """The repeats of one time."""

    features: Features
    seconds: Sequence[float]


@dataclass(frozen=True)
class Fit:
    """`num_outliers` of `num_times` were left out. `residuals`: relative, of each median."""

    step: LinearStepTime
    call_fixed_s: float
    num_times: int
    num_outliers: int
    residuals: Sequence[float]


def fit(measured: Sequence[Measured]) -> Fit:
    """To the median of each time's repeats, without those beyond 3 deviations (by the MAD)."""
    kept = [without_outliers(each.seconds) for each in measured]
    medians = np.array([np.median(seconds) for seconds in kept])
    relative = np.array([each.features for each in measured]) / medians[:, None]
    least = np.zeros(relative.shape[1])
    least[0] = LEAST_STEP_S
    found = least + nonnegative_least_squares(relative, 1 - relative @ least)
    step = dict(zip(STEP_COEFFICIENTS, map(float, found), strict=False))
    num_times = sum(len(each.seconds) for each in measured)
    return Fit(
        LinearStepTime(**step),
        float(found[-1]),
        num_times,
        num_times - sum(map(len, kept)),
        [float(each) for each in relative @ found - 1],
    )


def without_outliers(seconds: Sequence[float]) -> list[float]:
    median = np.median(seconds)
    deviation = MAD_TO_DEVIATION * np.median(np.abs(np.array(seconds) - median))
    return [each for each in seconds if abs(each - median) <= NUM_DEVIATIONS * deviation]


def nonnegative_least_squares(rows: Array, targets: Array) -> Array:
    """The x from 0 on with the least |rows @ x - targets|: for a handful of columns.

    It is the free solution over the columns that it uses, so all choices of columns are tried.
    """
    num_columns = rows.shape[1]
    scale = np.linalg.norm(rows, axis=0)
    scaled = rows / np.where(scale > 0, scale, 1.0)
    best, least = np.zeros(num_columns), float(targets @ targets)
    columns = range(num_columns)
    for chosen in chain.from_iterable(combinations(columns, size + 1) for size in columns):
        part = scaled[:, chosen]
        solution = np.linalg.lstsq(part, targets)[0]
        error = float(np.sum((part @ solution - targets) ** 2))
        if solution.min() >= 0 and error < least:
            best, least = np.zeros(num_columns), error
            best[list(chosen)] = solution
    found: Array = best / np.where(scale > 0, scale, 1.0)
    return found
