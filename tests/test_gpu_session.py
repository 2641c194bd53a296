"""scripts/gpu-session as far as it goes without a GPU: what it refuses, its steps, its page."""

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import model_configs
import pytest

from duramen.kernels.device import find_gpus
from duramen.kernels.device_probe import AttentionShape, DeviceProbe, GemmShape, Rate, Timing
from duramen.kernels.gpu_state import GpuConditions, GpuState
from duramen.serving import device_rates
from duramen.serving.kv.arch import Architecture

SCRIPTS = Path(__file__).parents[1] / "scripts"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(SCRIPTS)
    return import_module


def gpu_session(*arguments: str, cwd: Path) -> tuple[int, str, str]:
    command = [SCRIPTS / "gpu-session", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.skipif(find_gpus() != (), reason="there is a GPU here")
def test_without_a_gpu_one_line_says_so(tmp_path):
    said = "scripts/gpu-session: error: there is no NVIDIA GPU here, or no driver: "
    said += "run it on a machine of one\n"
    assert gpu_session("--model", "m", "--out", "o", cwd=tmp_path) == (2, "", said)
    assert [*tmp_path.iterdir()] == []


def test_a_model_that_is_not_there_or_a_folder_that_is(tmp_path):
    (tmp_path / "m").mkdir()
    code, _, err = gpu_session("--device", "cpu", "--model", "m", "--out", "o", cwd=tmp_path)
    assert (code, err.count("\n")) == (2, 1)
    assert f"no model at {tmp_path / 'm'}: config.json is missing" in err
    (tmp_path / "m/config.json").write_text("{}")
    code, _, err = gpu_session("--device", "cpu", "--model", "m", "--out", "m", cwd=tmp_path)
    assert (code, err.count("\n")) == (2, 1)
    assert f"{tmp_path / 'm'} exists already" in err


def test_a_failed_step_does_not_stop_the_others(script, tmp_path):
    session: ModuleType = script("gpu_session")
    bad = "import sys; print('first'); print('the reason'); print(); sys.exit(3)"
    steps = [
        session.Step("bad", [sys.executable, "-c", bad]),
        session.Step("waits", [sys.executable, "-c", ""], needs=tmp_path / "profile.yaml"),
        session.Step("good", [sys.executable, "-c", "print(1)"]),
    ]
    lines: list[str] = []
    done = session.run(steps, tmp_path, lines.append)
    assert [(each.exit_code, each.said) for each in done] == [
        (3, "the reason"),
        (None, "not run: profile.yaml was not written"),
        (0, "done"),
    ]
    assert (tmp_path / "bad.log").read_text() == "first\nthe reason\n\n"
    assert len(lines) == 5


def test_every_command_of_a_session_exists(script, tmp_path):
    for step in script("gpu_session").steps("MODEL", "cuda", tmp_path):
        program = Path(step.command[0])
        assert program.is_file()
        files = [each for each in step.command if each.endswith(".py")]
        assert all((SCRIPTS.parent / each).is_file() for each in files)


IDLE = GpuState(210, 1_980, 2_619, 75.0, 700.0, 31, 0.0, (), ())
HOT = GpuState(1_410, 1_980, 2_619, 698.0, 700.0, 74, 1.0, ("power cap",), (1,))
PROBE = DeviceProbe(
    device="NVIDIA H200",
    dtype="bfloat16",
    torch_version="2.13.0",
    copy=Rate(0, 2 * 10**9, Timing(0.0005, 0.00049, 0.00051, 50)),
    gemms={GemmShape(8, 16, 32): Rate(7 * 10**11, 10**6, Timing(0.001, 0.001, 0.0011, 50))},
    attentions={AttentionShape(8, 2, 64, 1, 8_192): Rate(1, 10**9, Timing(1.0, 0.5, 2.0, 50))},
    launch=Timing(2.5e-6, 2.5e-6, 3.5e-6, 50),
    conditions=GpuConditions(IDLE, (HOT,), HOT),
)
STEPS = [{"name": "calibrate", "said": "duramen: error: busy | hot", "seconds": 3.2}]
NOTHING = dict.fromkeys(("doctor", "profile", "live", "simulated", "validate", "kernels"))


def test_the_page_says_what_was_measured(script):
    page = script("gpu_page").as_page(
        NOTHING | {"model": "m", "steps": STEPS, "probe": PROBE.as_fields()}
    )
    for line in (
        "| calibrate | duramen: error: busy / hot | 3 |",
        "Lowest SM clock under load 1410 of 1980 MHz; throttled by: power cap; "
        "31 to 74 degrees C, 75.0 to 698.0 of 700.0 W.",
        "| copy | 1,000 MB | 500.0 us | 4% |  | 4,000.0 |",
        "| GEMM | 8 x 16 x 32 | 1,000.0 us | 10% | 700 | 1.0 |",
        "| attention | 8/2 heads of 64, 1 behind 8,192 | 1,000,000.0 us | 150% | 1e-12 | 1.0 |",
        "| launch | one of many | 2.5 us | 40% |  |  |",
    ):
        assert line in page.split("\n")
    assert "Calibrated" not in page
    assert "Kernel tests" not in page


def test_live_and_simulated_calls_stand_side_by_side(script, tmp_path):
    layout = {"prompt_tokens": 900, "ttft_s": {"p50": 0.25}, "itl_s": {"p50": None}}
    live = {"layouts": {"stable": layout | {"cached_tokens": 64}}}
    simulated = {"timing": {"layouts": {"stable": layout | {"cached_tokens": None}}}}
    (tmp_path / "live.json").write_text(json.dumps(live))
    (tmp_path / "simulated.json").write_text(json.dumps(simulated))
    error = {"median": 0.05, "p90": 0.2, "noise_median": 0.01, "noise_p90": 0.02}
    validated = {"kv_tokens": 10_240, "num_open": 6}
    validated["errors"] = [{"at_once": 2, "ttft": error, "itl": error}]
    validated["runs"] = [{"at_once": 2, "num_equal": 3, "num_evicted": 1, "calls": [{}] * 4}]
    (tmp_path / "validate.json").write_text(json.dumps(validated))
    (tmp_path / "profile.yaml").write_text("device: H200\n")
    (tmp_path / "kernels.xml").write_text(
        '<testsuites><testsuite tests="3" failures="1" errors="0" skipped="1"/></testsuites>'
    )
    gpu_page: ModuleType = script("gpu_page")
    found = gpu_page.figures(tmp_path)
    assert found["probe"] is None
    page = gpu_page.as_page({"model": "m", "steps": STEPS} | found)
    for line in (
        "| stable | live | 900 | 64 | 250.0 ms | - |",
        "| stable | simulated | 900 | - | 250.0 ms | - |",
        "| 2 | 3 of 4 | 1 | 5.0% (1.0%) | 20.0% (2.0%) | 5.0% (1.0%) | 20.0% (2.0%) |",
        "device: H200",
        "3 run, 1 failed, 1 skipped.",
    ):
        assert line in page.split("\n")


LLAMA_3_8B = "16x4096x6144 16x4096x4096 16x4096x28672 16x14336x4096 1x4096x128256"
MIXTRAL_8X7B = "16x4096x6144 16x4096x4096 4x4096x28672 4x14336x4096 1x4096x32000"
DEEPSEEK_V3 = """
    16x7168x1536 16x1536x24576 16x7168x576 16x512x32768 16x16384x7168 16x7168x36864 16x18432x7168
    1x7168x4096 1x2048x7168 16x7168x4096 16x2048x7168 1x7168x129280
"""


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (model_configs.LLAMA_3_8B, LLAMA_3_8B),
        (model_configs.MIXTRAL_8X7B, MIXTRAL_8X7B),  # an expert sees a quarter of the tokens
        (model_configs.DEEPSEEK_V3, DEEPSEEK_V3),  # less than one token; the shared expert all
    ],
)
def test_the_shapes_are_the_model_s(config, expected):
    arch = Architecture.from_config(config)
    found = dict.fromkeys(f"{m}x{k}x{n}" for m, k, n in device_rates.gemms_of(arch, 16))
    assert [*found] == expected.split()
    shapes = [*dict.fromkeys(device_rates.attentions_of(arch, "cpu"))]
    assert [each[:3] for each in shapes] == [(32, 8, 128)] * (0 if "kv_lora_rank" in config else 3)
