"""A target between tokens on its way to vLLM's process, and what comes back."""

from pathlib import Path

import pytest

from duramen.layout.errors import DuramenError, EngineError
from duramen.serving.profile_file import load_profile
from duramen.serving.profiles import EngineFlags, Profile, vllm_config
from duramen.serving.vllm.itl_report import ItlReport, ReportFile, read_report
from duramen.serving.vllm.itl_target import ItlTarget
from duramen.serving.vllm.launch import EventEndpoints, _command
from duramen.serving.vllm.version import check_scheduler_version


def test_through_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    environment = ItlTarget(0.1 + 0.2, Path("timing.yaml")).as_environment(Path("/x/report"))
    assert environment == {
        "DURAMEN_ITL_TARGET_MS": "0.30000000000000004",
        "DURAMEN_TIMING_PROFILE": str(tmp_path / "timing.yaml"),  # the process may start elsewhere
        "DURAMEN_ITL_REPORT": "/x/report",
    }
    assert ItlTarget.from_environment(environment) == ItlTarget(0.1 + 0.2, tmp_path / "timing.yaml")


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({}, "needs DURAMEN_ITL_TARGET_MS in the environment"),
        ({"DURAMEN_ITL_TARGET_MS": "4"}, "needs DURAMEN_TIMING_PROFILE in the environment"),
        (
            {"DURAMEN_ITL_TARGET_MS": "4 ms", "DURAMEN_TIMING_PROFILE": "x"},
            "DURAMEN_ITL_TARGET_MS is no number: '4 ms'",
        ),
        (
            {"DURAMEN_ITL_TARGET_MS": "nan", "DURAMEN_TIMING_PROFILE": "x"},
            "must be milliseconds above 0, not nan",
        ),
    ],
)
def test_an_environment_that_lacks_something(environment: dict[str, str], said: str) -> None:
    with pytest.raises(EngineError, match=said):
        ItlTarget.from_environment(environment)


def test_the_report_is_replaced_in_place(tmp_path: Path) -> None:
    path = tmp_path / "report"
    assert read_report(path) is None
    file = ReportFile(path)
    assert read_report(path) is None  # no step yet
    for number in (1, 2):
        report = ItlReport(number, 0, 1, 300, 290, 0.25, 0.5, 1.75)
        file.write(report)
        assert read_report(path) == report
    file.close()


def test_in_a_profile(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("based_on: cpu\nitl: {target_ms: 50, timing: {value: /x/t.yaml, why: here}}\n")
    assert load_profile(str(file)).itl == ItlTarget(50.0, Path("/x/t.yaml"))
    file.write_text("itl: null\n")
    assert load_profile(str(file)).itl is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("itl: {target_ms: 50}", "itl: .*missing 1 required positional argument: 'timing'"),
        ("itl: {target_ms: 0, timing: t}", "itl.target_ms must be above 0"),
        ("itl: {target_ms: 50, timing: 3}", "itl.timing: "),
        (
            "{itl: {target_ms: 50, timing: t}, engine: {extra_args: [--scheduler-cls, x.Y]}}",
            "a target between tokens and --scheduler-cls exclude each other",
        ),
    ],
)
def test_mistakes_in_a_profile(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(DuramenError, match=said) as failed:
        load_profile(str(file))
    assert str(failed.value).startswith(str(file))


def test_vllm_gets_its_scheduler_only_where_there_is_a_target(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    for itl in (None, ItlTarget(50, tmp_path / "timing.yaml")):
        config = vllm_config(Profile("p", itl=itl), tmp_path, max_model_len=100)
        command = _command(config, "cpu", 1, EventEndpoints("a", "b"))
        if itl is None:
            assert "--scheduler-cls" not in command
        else:
            place = command.index("--scheduler-cls")
            assert command[place + 1] == "duramen.serving.vllm.scheduler.ItlScheduler"


def test_a_scheduler_of_the_users_own_is_left_alone() -> None:
    assert Profile("p", engine=EngineFlags(extra_args=("--scheduler-cls", "x.Y"))).itl is None


@pytest.mark.parametrize("version", ["0.31.9", "0.33.0", "1.32.0", "nightly"])
def test_other_versions_of_vllm_are_refused(version: str) -> None:
    with pytest.raises(EngineError, match=f"works with vLLM 0.32 only, not {version}"):
        check_scheduler_version(version)


@pytest.mark.parametrize("version", ["0.32.0", "0.32.1", "0.32.0+cpu"])
def test_versions_that_were_tried(version: str) -> None:
    check_scheduler_version(version)
