"""`duramen calibrate`: what it refuses before it measures, and what it says of the machine."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from model_configs import LLAMA_3_8B
from rich.console import Console

from duramen.cli import calibrate, main
from duramen.cli.calibrate import Choices, as_table, as_time, carry_out, parse_flag, plain_name
from duramen.experiments.calibrate.calibrate import Subject
from duramen.kernels.gpu_state import DeviceBusyError, GpuState
from duramen.layout.errors import DuramenError
from duramen.serving import conditions
from duramen.serving.conditions import Watch, probe_rates, watch_gpu
from duramen.serving.kv.arch import Architecture
from duramen.serving.timing_profile import TimingProfile, profile_from_fields
from duramen.serving.vllm.fake import FakeEngine

Monkey = pytest.MonkeyPatch

PROFILE: dict[str, Any] = {
    "device": "a CPU, 2 cores",
    "model": "tiny",
    "engine": "fake 1",
    "date": "2026-12-01",
    "origin": "calibrated",
    "step": {
        "fixed_s": 0.02,
        "per_token_s": 4e-4,
        "per_pair_s": 1e-9,
        "per_decode_context_token_s": 0,
        "per_sequence_s": 2e-6,
    },
    "validation": {
        "at_once": [3, 6],
        "num_calls": 90,
        "ttft": {"median": 0.05, "p90": 0.12, "noise_median": 0.03, "noise_p90": 0.08},
        "itl": {"median": 0.04, "p90": 0.1, "noise_median": 0.02, "noise_p90": 0.05},
    },
    "conditions": {
        "minutes": 5.0,
        "num_rounds": 5,
        "num_scenes_thrown_out": 1,
        "num_times": 115,
        "num_outliers": 4,
    },
}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name a server that runs, --upstream URL, or what to start, --model DIR"),
        (["--upstream", "127.0.0.1:8000"], "is no address like http://"),
        (["--upstream", "http://10.0.0.1:8000"], "is another machine, .* --device"),
        (["--upstream", "http://127.0.0.1:1", "--flag", "max_num_seqs"], "is no flag"),
        (["--model", "/nowhere"], "unknown model /nowhere"),
    ],
)
def test_mistakes(
    tmp_path: Path,
    monkeypatch: Monkey,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    out = tmp_path / "timing.yaml"
    monkeypatch.setattr("sys.argv", ["duramen", "calibrate", "--out", str(out), *arguments])
    assert main.run() == 2
    assert re.fullmatch(rf"duramen: error: .*{message}.*\n", capsys.readouterr().err)
    assert not out.exists()


@pytest.mark.parametrize(
    ("text", "flag"),
    [
        ("max_num_seqs=128", ("max_num_seqs", 128)),
        ("--max-num-seqs=128", ("max_num_seqs", 128)),
        ("async_scheduling=false", ("async_scheduling", False)),
        ("scheduling_policy=priority", ("scheduling_policy", "priority")),
    ],
)
def test_flags(text: str, flag: tuple[str, Any]) -> None:
    assert parse_flag(text) == flag


class FlaggedEngine(FakeEngine):
    async def flags(self) -> dict[str, Any]:
        return {"max_num_seqs": 8}


def choices(**given: Any) -> Choices:
    known: dict[str, Any] = {
        "upstream": "http://127.0.0.1:8000",
        "api_key": None,
        "model_dir": None,
        "flags": {},
        "device": "a CPU, 2 cores",
        "watch": Watch(None),
        "minutes": 1.0,
        "force": False,
    }
    return Choices(**known | given)


@pytest.fixture
def measured(monkeypatch: Monkey) -> list[Subject]:
    """What was measured, instead of measuring."""
    subjects: list[Subject] = []

    async def opened(*arguments: Any) -> FlaggedEngine:
        return FlaggedEngine(lambda ids: "")

    async def measure(engine: FakeEngine, subject: Subject, *rest: Any) -> TimingProfile:
        subjects.append(subject)
        return profile_from_fields(PROFILE, "here")

    monkeypatch.setattr(calibrate, "open_engine", opened)
    monkeypatch.setattr(calibrate, "measure", measure)
    return subjects


def at_load(monkeypatch: Monkey, load: float) -> None:
    monkeypatch.setattr(conditions.os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(conditions.os, "cpu_count", lambda: 2)


def silent(line: str, share: float) -> None:
    pass


async def test_the_load_is_written_down(monkeypatch: Monkey, measured: list[Subject]) -> None:
    at_load(monkeypatch, 1.5)
    found = await carry_out(choices(flags={"max_num_batched_tokens": 64}), silent)
    assert measured[0].flags == {"max_num_batched_tokens": 64, "max_num_seqs": 8}
    assert found.conditions["before"] == {"load_average": 1.5, "num_cores": 2, "gpu": None}
    assert found.conditions["busy"] is None
    assert yaml.safe_load(found.as_yaml())["conditions"] == found.conditions


async def test_a_busy_cpu_is_not_measured_unless_that_is_marked(
    monkeypatch: Monkey, measured: list[Subject]
) -> None:
    at_load(monkeypatch, 2.5)
    with pytest.raises(DuramenError, match=r"load average is 2.5 on 2 cores: nothing is written"):
        await carry_out(choices(), silent)
    assert not measured
    found = await carry_out(choices(force=True), silent)
    assert found.conditions["busy"] == "the load average is 2.5 on 2 cores"


async def test_a_flag_that_the_server_has_otherwise(
    monkeypatch: Monkey, measured: list[Subject]
) -> None:
    at_load(monkeypatch, 0.0)
    with pytest.raises(DuramenError, match=r"max_num_seqs=4: the server says that it is 8"):
        await carry_out(choices(flags={"max_num_seqs": 4}), silent)


class Reader:
    """A GPU on which somebody else begins to compute after so many looks."""

    name = "NVIDIA L4"

    def __init__(self, num_looks: int) -> None:
        self._num_left = num_looks

    def read(self) -> GpuState:
        return GpuState(2040, 2040, 6251, 30.5, 72.0, 41, 0.0, (), (17,))

    def require_idle(self, *, has_context: bool) -> None:
        self._look()

    def require_alone(self, *, has_context: bool) -> None:
        self._look()

    def _look(self) -> None:
        self._num_left -= 1
        if self._num_left < 0:
            raise DeviceBusyError("NVIDIA L4 is busy: other processes compute on it")


@pytest.mark.parametrize("num_looks", [0, 1])
async def test_a_busy_gpu_before_or_after(num_looks: int, measured: list[Subject]) -> None:
    watch = Watch(Reader(num_looks))  # type: ignore[arg-type]
    with pytest.raises(DuramenError, match=r"NVIDIA L4 is busy: .* nothing is written"):
        await carry_out(choices(watch=watch), silent)
    assert len(measured) == num_looks


async def test_clocks_and_power_before_and_after(measured: list[Subject]) -> None:
    found = await carry_out(choices(watch=Watch(Reader(2))), silent)  # type: ignore[arg-type]
    for when in ("before", "after"):
        assert found.conditions[when]["gpu"]["sm_clock_mhz"] == 2040
        assert found.conditions[when]["gpu"]["power_w"] == 30.5
    assert "process_ids" not in found.conditions["before"]["gpu"]


async def test_a_gpu_is_probed_before_the_server_starts(
    monkeypatch: Monkey, measured: list[Subject], tmp_path: Path
) -> None:
    probed: list[Path] = []
    monkeypatch.setattr(
        calibrate, "probe_rates", lambda folder, device: {device: probed.append(folder)}
    )
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_3_8B))
    given = choices(upstream=None, model_dir=tmp_path, watch=Watch(Reader(2)))  # type: ignore[arg-type]
    found = await carry_out(given, silent)
    assert found.conditions["rates"] == {"cuda": None}
    assert probed == [tmp_path]
    assert measured[0].arch == Architecture.from_config(LLAMA_3_8B)
    assert (await carry_out(choices(watch=None), silent)).conditions["rates"] is None


def test_rates_of_a_small_model(tmp_path: Path) -> None:
    small = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256}
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_3_8B | small | heads))
    rates = probe_rates(tmp_path, "cpu")
    for name in ("copy_bytes_per_s", "gemm_flops_per_s", "attention_flops_per_s", "launch_s"):
        assert rates[name] > 0
    assert rates["throttle_reasons"] is None


def test_a_device_that_cannot_be_probed(tmp_path: Path) -> None:
    with pytest.raises(DuramenError, match=r"the device could not be probed: .*config.json"):
        probe_rates(tmp_path, "cpu")


async def test_a_device_elsewhere_is_not_looked_at(measured: list[Subject]) -> None:
    found = await carry_out(choices(watch=None), silent)
    assert (found.conditions["before"], found.conditions["busy"]) == (None, None)


def test_without_a_gpu_the_cpu_is_watched() -> None:
    if conditions.find_gpus() == ():
        assert watch_gpu({}) == Watch(None)


def test_the_table() -> None:
    fields = PROFILE["conditions"] | {"before": None, "busy": "the load average is 9.0 on 2 cores"}
    profile = profile_from_fields(PROFILE | {"conditions": fields}, "here")
    console = Console(width=120)
    with console.capture() as captured:
        console.print(as_table(profile, Path("timing.yaml")))
    text = captured.get()
    for part in ("20 ms", "0.4 ms", "1 ns", "2 us", "90 calls, 3 and 6 at once"):
        assert part in text
    assert "5.0% (3.0%), 12.0% (8.0%)" in text
    assert "4 of 115 times, 1 scenes" in text
    assert "load average is 9.0" in text


def test_names_of_models() -> None:
    assert plain_name("meta-llama/Llama-3-8B") == "meta-llama/Llama-3-8B"
    assert plain_name("/srv/models/Llama-3-8B") == "Llama-3-8B"


@pytest.mark.parametrize(
    ("seconds", "text"), [(1.5, "1.5 s"), (0.0, "0 ns"), (2e-5, "20 us"), (3e-8, "30 ns")]
)
def test_times(seconds: float, text: str) -> None:
    assert as_time(seconds) == text
