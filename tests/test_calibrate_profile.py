"""What calibration leaves: profiles with their errors and conditions, TTFT in FLOPs, priors."""

from dataclasses import replace
from datetime import date
from importlib.resources import files
from pathlib import Path

import pytest

from duramen.experiments.calibrate.prior import priors
from duramen.experiments.calibrate.ttft import Peaks, peaks_of, ttft_of
from duramen.experiments.studies.example_models import llama_3_8b
from duramen.experiments.timed.arrivals import OpenLoop
from duramen.experiments.timed.call import TimedCall
from duramen.experiments.timed.engine import TimedEngine
from duramen.experiments.timed.figures import figures
from duramen.experiments.timed.rules import rules_of
from duramen.layout.errors import DuramenError
from duramen.serving.kv.batching.rules import Rules
from duramen.serving.kv.step_time import LinearStepTime
from duramen.serving.kv.work import Ttft, prefill_work
from duramen.serving.timing_profile import (
    Errors,
    Origin,
    TimingProfile,
    Validation,
    load_timing_profile,
)

PROFILE = TimingProfile(
    device="AMD EPYC, 2 cores",
    model="SmolLM2-135M-Instruct",
    engine="vllm 0.32.0",
    date=date(2026, 12, 1),
    origin=Origin.CALIBRATED,
    step=LinearStepTime(0.02, 0.0008, 2e-7, 0.0, 0.003),
    flags={"max_num_batched_tokens": 1024},
    call_fixed_s=0.01,
    ttft=Ttft(0.02, 1e15, 0.5, 0.25, 3e12),
    validation=Validation(
        (3, 6), 90, Errors(0.05, 0.125, 0.03, 0.08), Errors(0.04, 0.1, 0.02, 0.05)
    ),
    conditions={"busy": None, "before": {"load_average": 0.25}, "num_rounds": 5},
)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    file = tmp_path / "timing.yaml"
    file.write_text(PROFILE.as_yaml())
    assert load_timing_profile(file) == PROFILE


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("call_fixed_s: 0.01", "call_fixed_s: -1", "call_fixed_s must be a finite number from 0"),
        ("call_fixed_s: 0.01", "call_fixed_s: no", "call_fixed_s must be a number, not False"),
        ("linear_mfu: 0.5", "linear_mfu: 1.5", "ttft: linear_mfu and attention_mfu must be above"),
        ("median: 0.05", "mean: 0.05", "validation: ttft: unknown key mean; known: median, p90"),
        (
            "median: 0.05",
            "median: -0.05",
            "validation: ttft: median must be a finite number from 0",
        ),
        (
            "p90: 0.1\n",
            "p90: .nan\n",
            "validation: itl: p90 must be a finite number from 0, not nan",
        ),
        (
            "noise_p90: 0.05",
            "noise_p90: .inf",
            "validation: itl: noise_p90 must be a finite number",
        ),
        ("num_calls: 90", "num_calls: many", "num_calls must be a whole number from 1, not 'many'"),
        ("num_calls: 90", "num_calls: 0", "num_calls must be a whole number from 1, not 0"),
        ("- 3\n", "- x\n", r"at_once must be a list of whole numbers from 1, not \['x', 6\]"),
        ("- 3\n", "- -3\n", r"at_once must be a list of whole numbers from 1, not \[-3, 6\]"),
        ("num_rounds: 5", "num_rounds: 5\n  num_rounds: 6", "key 'num_rounds' stands twice"),
    ],
)
def test_what_is_refused(tmp_path: Path, before: str, after: str, message: str) -> None:
    text = PROFILE.as_yaml()
    assert before in text
    file = tmp_path / "timing.yaml"
    file.write_text(text.replace(before, after, 1))
    with pytest.raises(DuramenError, match=message):
        load_timing_profile(file)


def test_conditions_are_keys_and_values(tmp_path: Path) -> None:
    file = tmp_path / "timing.yaml"
    file.write_text(replace(PROFILE, conditions={}).as_yaml().replace("{}", "quiet"))
    with pytest.raises(DuramenError, match="conditions must be keys and values, not 'quiet'"):
        load_timing_profile(file)


def test_a_call_reaches_the_queue_after_what_it_costs_beside_steps() -> None:
    """A step takes a second: the two calls come 2 s apart, each queued half a second later."""
    calls = [TimedCall(name, 0, [name], 4, 2, 2) for name in "ab"]
    rules = Rules(4, None, 32, 4, async_scheduling=False)
    engine = TimedEngine(rules, LinearStepTime(1, 0, 0, 0, 0), call_fixed_s=0.5)
    a, b = figures(engine.run(OpenLoop([(0.0, calls[0]), (2.0, calls[1])]))).calls
    assert (a.arrival_s, a.queue_s, a.ttft_s, a.e2e_s) == (0, 0.5, 1.5, 2.5)
    assert (b.arrival_s, b.queue_s, b.ttft_s, b.e2e_s) == (2, 0.5, 1.5, 2.5)


def test_the_shares_of_the_peak_are_those_that_a_step_was_made_with() -> None:
    """An 8B model at half of the peak for matrices and a quarter for attention: 2 x 6.98e9 and
    524,288 FLOPs per token and pair."""
    peaks = Peaks(1e15, 3e12)
    step = LinearStepTime(0.008, 13_958_643_712 / 0.5e15, 524_288 / 0.25e15, 0.0, 0.001)
    found = ttft_of(step, 0.02, llama_3_8b(), peaks)
    assert found is not None
    assert (found.linear_mfu, found.attention_mfu) == pytest.approx((0.5, 0.25))
    weights_s = prefill_work(llama_3_8b(), 1).weight_bytes / 3e12
    assert found.fixed_s == pytest.approx(0.02 + 0.009 - weights_s)
    for odd in (replace(step, per_pair_s=0.0), replace(step, per_token_s=1e-6)):
        assert ttft_of(odd, 0.02, llama_3_8b(), peaks) is None


def test_peaks_are_known_by_the_drivers_name() -> None:
    assert peaks_of("NVIDIA H100 80GB HBM3") == Peaks(989.4e12, 3.35e12)
    assert peaks_of("NVIDIA L4") == Peaks(121e12, 300e9)
    assert peaks_of("NVIDIA H100 PCIe") is None


def test_priors_are_what_the_data_sheets_give() -> None:
    folder = files("duramen.configs") / "timing"
    for name, profile in priors().items():
        text = (folder / f"{name}.yaml").read_text()
        assert text == profile.as_yaml(), f"run scripts/timing_priors.py for {name}"


def test_a_prior_by_hand() -> None:
    """H100: 15 GB of weights at 70% of 3.35 TB/s, 14 GFLOP a token at half of 989.4 TFLOP/s."""
    prior = priors()["h100-sxm-llama-3-8b"]
    assert prior.origin is Origin.PRIOR
    assert prior.validation is None
    assert prior.step.fixed_s == pytest.approx(15.01e9 / 2.345e12, rel=1e-3)
    assert prior.step.per_token_s == pytest.approx(13.958e9 / 494.7e12, rel=1e-3)
    assert prior.step.per_pair_s == pytest.approx(4 * 32 * 4096 / 494.7e12)
    assert prior.step.per_decode_context_token_s == pytest.approx(131_072 / 2.345e12)
    assert rules_of(prior, 16, None) == Rules(16, None, 8192, 128, 2048)
