"""Calibration without an engine: what of a scene is fitted, the fit, and the error on calls that
were held out."""

from dataclasses import astuple, replace
from datetime import date
from random import Random

import numpy as np
import pytest
from calibrate_cases import ASYNC, CALL_FIXED_S, STEP, SYNC, play
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from duramen.experiments.calibrate.fit import (
    Measured,
    fit,
    nonnegative_least_squares,
    without_outliers,
)
from duramen.experiments.calibrate.held_out import validate
from duramen.experiments.calibrate.observed import Beside, Decoding, FirstTokens, observed
from duramen.experiments.calibrate.player import PlayedCall
from duramen.experiments.calibrate.scenes import Design, Scene, Shape, design
from duramen.layout.errors import DuramenError
from duramen.serving.kv.batching.rules import Rules
from duramen.serving.kv.step_time import LinearStepTime
from duramen.serving.timing_profile import Origin, TimingProfile

RULES = [pytest.param(SYNC, id="sync"), pytest.param(ASYNC, id="async")]


def profile(step: LinearStepTime = STEP) -> TimingProfile:
    return TimingProfile(
        "a device",
        "a model",
        "vllm 0.32.0",
        date(2026, 12, 1),
        Origin.CALIBRATED,
        step,
        call_fixed_s=CALL_FIXED_S,
    )


def test_a_cold_prompt_is_its_chunks_and_one_call() -> None:
    (features,) = observed(Scene((Shape(0, 1500),)), SYNC).features
    pairs = 1500 * 1501 // 2
    assert list(features) == [2, 1500, pairs, 0, 2, 1]


def test_a_cached_prompt_is_what_is_new_behind_what_is_cached() -> None:
    (features,) = observed(Scene((Shape(64, 10),)), SYNC).features
    assert list(features) == [1, 10, 10 * 64 + 55, 0, 1, 1]


def test_the_first_of_several_prompts_has_a_step_of_its_own() -> None:
    """The others are together in the second."""
    rows = observed(Scene((Shape(0, 10),) * 3), SYNC).features
    assert [list(row) for row in rows] == [[1, 10, 55, 0, 1, 1], [2, 30, 165, 0, 3, 1]]


def test_decoding_is_the_mean_step_while_all_decode() -> None:
    """Two calls; the first is a token ahead, and one of its gaps is not shared."""
    (features,) = observed(Scene((Shape(32, 10, 4),) * 2), SYNC).features
    contexts = np.mean([[43, 42], [44, 43]], axis=0)
    tokens, context = 2, contexts.sum()
    assert list(features) == [1, tokens, context + tokens, context, 2, 0]


def test_beside_a_late_call_all_its_steps_are_counted_whenever_it_comes() -> None:
    scene = Scene((Shape(32, 32, 30),) * 2, late=Shape(0, 3000))
    what = observed(scene, SYNC)
    assert isinstance(what, Beside)
    assert what.features[0][1] == 3000 + 2 * what.num_steps
    (measured,) = what.measure(play(scene, SYNC)) or ()
    expected = what.features[0] @ [*astuple(STEP), CALL_FIXED_S]
    assert measured == pytest.approx(expected, rel=2e-3)  # contexts are some tokens off at most


def test_a_late_call_that_came_too_late_is_no_time() -> None:
    scene = Scene((Shape(32, 32, 30),) * 2, late=Shape(0, 3000))
    calls = play(scene, SYNC)
    late = replace(calls[-1], token_s=(calls[0].token_s[-1] + 1,))
    assert observed(scene, SYNC).measure([*calls[:-1], late]) is None


def test_calls_that_never_decode_together_are_no_time() -> None:
    shape = Shape(0, 32, 3)
    what = Decoding([])
    apart = [PlayedCall(shape, 0.0, (1.0, 2.0, 3.0)), PlayedCall(shape, 0.0, (4.0, 5.0, 6.0))]
    assert what.measure(apart) is None
    beside = [apart[0], PlayedCall(shape, 0.0, (1.5, 2.5, 3.5))]
    assert what.measure(beside) == [1.0]


def test_first_tokens_are_measured_from_the_beginning_of_the_scene() -> None:
    shape = Shape(0, 32)
    calls = [PlayedCall(shape, 0.0, (3.0,)), PlayedCall(shape, 0.5, (2.0,))]
    assert FirstTokens([]).measure(calls) == [2.0, 3.0]


@given(
    rows=arrays(np.float64, (9, 4), elements=st.floats(0, 10).map(lambda x: round(x, 3))),
    targets=arrays(np.float64, 9, elements=st.floats(-10, 10).map(lambda x: round(x, 3))),
)
def test_least_squares_from_0_on_are_optimal(rows: np.ndarray, targets: np.ndarray) -> None:
    """Karush, Kuhn, Tucker: no step that stays at 0 or above makes the error less."""
    found = nonnegative_least_squares(rows, targets)
    assert found.min() >= 0
    slope = rows.T @ (rows @ found - targets)
    assert slope.min() >= -1e-5
    assert np.abs(slope * found).max() <= 1e-5 * (1 + np.abs(found).max())


def test_outliers_are_beyond_3_deviations() -> None:
    assert without_outliers([1.0, 1.1, 0.9, 1.0, 5.0]) == [1.0, 1.1, 0.9, 1.0]
    assert without_outliers([1.0, 1.0, 2.0]) == [1.0, 1.0]
    assert without_outliers([3.0]) == [3.0]


def times(each: Design, rules: Rules, draw: Random | None = None) -> list[Measured]:
    found: list[Measured] = []
    for scene in each.fitted:
        what = observed(scene, rules)
        factor = (lambda: 1.0) if draw is None else (lambda: draw.uniform(0.97, 1.03))
        repeats = [what.measure(play(scene, rules, factor)) or () for _ in range(5)]
        found += map(Measured, what.features, zip(*repeats, strict=True))
    return found


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("top_tokens", [512, 4096])
def test_the_fit_finds_what_the_times_were_made_of(rules: Rules, top_tokens: int) -> None:
    found = fit(times(design(top_tokens, rules, rules.block_size), rules))
    expected = [*astuple(STEP), CALL_FIXED_S]
    assert [*astuple(found.step), found.call_fixed_s] == pytest.approx(expected, rel=0.05)
    assert max(map(abs, found.residuals)) < 0.01
    assert found.num_outliers == 0


@pytest.mark.parametrize("rules", RULES)
def test_held_out_calls_are_predicted_about_as_well_as_their_repeats_do(rules: Rules) -> None:
    draw = Random(7)
    each = design(2048, rules, rules.block_size)
    found = fit(times(each, rules, draw))
    held_out = {
        scene: [play(scene, rules, lambda: draw.uniform(0.97, 1.03)) for _ in range(5)]
        for scene in each.held_out
    }
    validation = validate(
        held_out, replace(profile(found.step), call_fixed_s=found.call_fixed_s), rules
    )
    assert (validation.at_once, validation.num_calls) == ((3, 6), 90)
    for errors in (validation.ttft, validation.itl):
        assert 0 < errors.noise_median < 0.03
        assert errors.median < 0.03
        assert errors.p90 < 0.05


def test_errors_are_of_each_call_and_noise_is_against_its_other_repeats() -> None:
    """The profile says 31 ms; the repeats took as much, twice as much, and as much."""
    step = LinearStepTime(0.03, 1e-4, 0.0, 0.0, 0.0)
    scene = Scene((Shape(0, 10),))
    repeats = [(PlayedCall(scene.calls[0], 0.0, (0.031 * factor,)),) for factor in (1, 2, 1)]
    decoding = Scene((Shape(0, 10, 2),))
    gaps = [(PlayedCall(decoding.calls[0], 0.0, (0.031, 0.031 + 0.0301)),)] * 3
    known = replace(profile(step), call_fixed_s=0.0)
    validation = validate({scene: repeats, decoding: gaps}, known, SYNC)
    assert astuple(validation.ttft) == pytest.approx((0, 0.5, 0, 0.5), abs=1e-6)
    assert astuple(validation.itl) == pytest.approx((0, 0, 0, 0), abs=1e-6)


@pytest.mark.parametrize("rules", RULES)
def test_the_fit_has_seen_no_number_of_calls_at_once_that_is_held_out(rules: Rules) -> None:
    each = design(4096, rules, rules.block_size)
    seen = {scene.at_once for scene in each.fitted}
    assert seen == {1, 2, 4, 8}
    assert {scene.at_once for scene in each.held_out} == {3, 6}
    for scene in each.scenes:
        assert all(shape.cached_tokens % rules.block_size == 0 for shape in scene.shapes)


def test_a_design_keeps_to_the_seats_of_the_engine() -> None:
    few = design(4096, replace(SYNC, max_num_seqs=4), 32)
    assert max(scene.at_once for scene in few.scenes) == 4
    assert {scene.at_once for scene in few.held_out} == {3}
    with pytest.raises(DuramenError, match="max_num_seqs 2 leaves no calls"):
        design(4096, replace(SYNC, max_num_seqs=2), 32)


def test_what_a_design_needs() -> None:
    each = Design(
        (Scene((Shape(64, 10), Shape(32, 10))), Scene((Shape(32, 5, 3),))),
        (Scene((Shape(0, 7),) * 3, late=Shape(96, 1)),),
    )
    assert each.prefix_tokens == [64, 32, 0, 96]
    assert each.max_tokens == 98
    assert each.num_tokens == 192 + max(75 + 43, 40, 3 * 8 + 98)
