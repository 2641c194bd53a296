"""`duramen replay --engine simulate --timing`: the calls of a replay on an engine's clock."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from duramen.cli.replay import replay as command
from duramen.layout.errors import DuramenError

FLAGS = "max_num_batched_tokens: 4096, max_num_seqs: 8, async_scheduling: false, block_size: 32"
PROFILE = f"""\
device: here
model: SmolLM2
engine: vllm 0.32.0
date: 2026-12-01
origin: prior
flags: {{{FLAGS}}}
step: {{fixed_s: 0.5, per_token_s: 0, per_pair_s: 0, per_decode_context_token_s: 0, \
per_sequence_s: 0}}
"""


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    file = tmp_path / "timing.yaml"
    file.write_text(PROFILE)
    return file


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Two sessions of two calls; the second call of each goes on with the reply, 10 s later."""
    lines = []
    for name in ("a", "b"):
        reply = {"role": "assistant", "content": f"That makes one for {name}."}
        messages = [{"role": "user", "content": f"Count with me, {name}. " * 20}]
        later = [*messages, reply, {"role": "user", "content": "And then?"}]
        for time_s, sent in ((0.0, messages), (10.0, later)):
            lines.append(
                {"session_id": name, "messages": sent, "response": reply, "timestamp": time_s}
            )
    file = tmp_path / "recorded.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def run(model: Path, *arguments: object) -> dict[str, Any]:
    app = typer.Typer()
    app.command()(command)
    options = ["--model", model, "--layout", "stable", "--json", "-", *arguments]
    result = CliRunner().invoke(app, [*map(str, options)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return dict(json.loads(result.stdout))


def timing(found: dict[str, Any]) -> dict[str, Any]:
    return dict(found["timing"]["layouts"]["stable"])


def test_without_a_profile_there_are_no_times(smollm2: Path, recording: Path) -> None:
    assert "timing" not in run(smollm2, recording)


def test_one_session_after_another(smollm2: Path, recording: Path, profile: Path) -> None:
    """Every step takes half a second, and a call as many as it has tokens."""
    found = run(smollm2, recording, "--timing", profile, "--slo", "ttft=1s,itl=600ms")
    calls = timing(found)["calls"]
    assert [(call["session"], call["call"]) for call in calls] == [
        ("a", 0),
        ("a", 1),
        ("b", 0),
        ("b", 1),
    ]
    arrival_s = 0.0
    for call in calls:
        assert call["arrival_s"] == arrival_s
        assert (call["queue_s"], call["ttft_s"]) == (0.0, 0.5)
        assert call["e2e_s"] == 0.5 * call["output_tokens"]
        arrival_s += call["e2e_s"]
    head = {name: found["timing"][name] for name in ("arrival", "concurrency", "think_s", "slo")}
    assert head == {
        "arrival": "closed",
        "concurrency": 1,
        "think_s": 0.0,
        "slo": {"ttft_s": 1.0, "itl_s": 0.6},
    }
    assert found["timing"]["profile"]["origin"] == "prior"
    assert timing(found)["goodput"]["share"] == 1.0
    assert timing(found)["makespan_s"] == arrival_s


def test_alone_it_hits_what_the_cache_model_hits(
    smollm2: Path, recording: Path, profile: Path
) -> None:
    for pool in ("inf", "512"):
        found = run(smollm2, recording, "--timing", profile, "--kv-tokens", pool)
        layout = found["layouts"]["stable"]
        assert timing(found)["cached_tokens"] == layout["cached_tokens"] > 0
        assert timing(found)["prompt_tokens"] == layout["prompt_tokens"]


def test_what_replay_says_without_times_stays(
    smollm2: Path, recording: Path, profile: Path
) -> None:
    with_times = run(smollm2, recording, "--timing", profile, "--concurrency", 2)
    without = run(smollm2, recording, "--unit", 32)
    assert {name: part for name, part in with_times.items() if name != "timing"} == without


def test_sessions_side_by_side(smollm2: Path, recording: Path, profile: Path) -> None:
    alone = timing(run(smollm2, recording, "--timing", profile))
    both = timing(run(smollm2, recording, "--timing", profile, "--concurrency", 2))
    assert [call["arrival_s"] for call in both["calls"]][:2] == [0.0, 0.0]
    assert both["makespan_s"] < alone["makespan_s"]


def test_thinking_between_calls(smollm2: Path, recording: Path, profile: Path) -> None:
    calls = timing(run(smollm2, recording, "--timing", profile, "--think", 3))["calls"]
    assert calls[1]["arrival_s"] == calls[0]["e2e_s"] + 3
    assert calls[2]["arrival_s"] == calls[1]["arrival_s"] + calls[1]["e2e_s"]


def test_recorded_times(smollm2: Path, recording: Path, profile: Path) -> None:
    found = run(
        smollm2, recording, "--timing", profile, "--arrival", "recorded", "--time-scale", 0.5
    )
    assert sorted(call["arrival_s"] for call in timing(found)["calls"]) == [0, 0, 5, 5]
    assert (found["arrival"], found["timing"]["arrival"]) == ("closed", "recorded")
    assert (found["timing"]["time_scale"], found["timing"]["concurrency"]) == (0.5, None)


def test_the_table(smollm2: Path, recording: Path, profile: Path) -> None:
    app = typer.Typer()
    app.command()(command)
    options = [recording, "--model", smollm2, "--timing", profile, "--slo", "ttft=1s"]
    result = CliRunner().invoke(app, [*map(str, options)], catch_exceptions=False)
    assert "simulated: SmolLM2 on here, vllm 0.32.0, prior 2026-12-01" in result.stdout
    assert "0.500 / 0.500 / 0.500" in result.stdout
    assert "4 (100.0%)" in result.stdout


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--slo", "ttft=1s"], "--slo needs --timing FILE"),
        (["--think", 1], "--think needs --timing FILE"),
        (["--timing", "{profile}", "--engine", "live"], "--timing is for --engine simulate"),
        (
            ["--timing", "{profile}", "--arrival", "recorded", "--think", 1],
            "--think is for --arrival closed",
        ),
    ],
)
def test_options_that_do_not_go_together(
    recording: Path, profile: Path, options: list[object], line: str
) -> None:
    app = typer.Typer()
    app.command()(command)
    given = [str(option).format(profile=profile) for option in options]
    result = CliRunner().invoke(app, [str(recording), *given])
    assert result.exit_code == 2
    assert line in " ".join(result.output.replace("│", " ").split())


def test_a_profile_that_lacks_a_flag(smollm2: Path, recording: Path, profile: Path) -> None:
    profile.write_text(PROFILE.replace("max_num_seqs: 8, ", ""))
    with pytest.raises(DuramenError, match="flags lack max_num_seqs"):
        run(smollm2, recording, "--timing", profile)
