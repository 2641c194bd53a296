"""Profiles: every value of ours has its reason, a user's file is checked key by key."""

import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import fields
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from duramen.kernels.device import Gpu
from duramen.layout.errors import DuramenError
from duramen.serving.gateway.settings import Limits, PolicySettings, Settings
from duramen.serving.profile_file import (
    SECTIONS,
    VALUES,
    _profile,
    load_profile,
    parse_profile,
    profile_names,
)
from duramen.serving.profiles import (
    EngineFlags,
    Profile,
    check_build,
    default_profile,
    vllm_config,
)
from duramen.serving.vllm.launch import EventEndpoints, _command

OURS = ["cpu", "h100", "h200", "l4"]


def raw(name: str) -> dict[str, object]:
    read: dict[str, object] = yaml.safe_load(
        (files("duramen.configs") / "profiles" / f"{name}.yaml").read_text("utf-8")
    )
    return read


def test_the_profiles_of_ours() -> None:
    assert profile_names() == OURS


@pytest.mark.parametrize("name", OURS)
def test_each_value_of_ours_has_its_reason(name: str) -> None:
    sections = {key: part for key, part in raw(name).items() if key in SECTIONS and part}
    assert "engine" in sections
    for key, part in sections.items():
        assert isinstance(part, dict)
        for inner, value in part.items():
            assert value.keys() == {"value", "why"}, f"{key}.{inner}"
            assert len(value["why"]) > 10, f"{key}.{inner}"


@pytest.mark.parametrize("name", OURS)
def test_ours_leave_room_for_short_calls_beside_a_cold_one(name: str) -> None:
    profile = load_profile(name)
    engine = profile.engine
    assert engine.enable_chunked_prefill
    assert engine.max_num_batched_tokens is not None
    assert engine.long_prefill_token_threshold is not None
    assert engine.long_prefill_token_threshold * 4 <= engine.max_num_batched_tokens
    assert profile.settings.limits.scheduling == "priority"
    assert profile.settings.policies == PolicySettings()  # all off
    assert ("not run on this hardware" in profile.note) == (profile.device is not None)


def test_the_cpu_profile_whole() -> None:
    profile = load_profile("cpu")
    assert profile == Profile(
        "cpu",
        profile.note,
        EngineFlags(
            block_size=32,
            max_model_len=32768,
            max_num_seqs=32,
            max_num_batched_tokens=1024,
            long_prefill_token_threshold=256,
            enable_chunked_prefill=True,
            kv_cache_gib=2,
        ),
        None,
        Settings(
            limits=Limits(
                max_running=64,
                max_queued=256,
                tenant_max_running=64,
                tenant_max_queued=256,
                uncached_token_ms=4.0,
            )
        ),
    )


def written(tmp_path: Path, text: str) -> str:
    file = tmp_path / "mine.yaml"
    file.write_text(text, encoding="utf-8")
    return str(file)


def test_a_file_of_plain_values(tmp_path: Path) -> None:
    text = """
engine: {max_num_seqs: 4, extra_args: ["--seed", "1"], tool_parser: null}
limits: {deadline_s: 30, scheduling: fcfs}
sessions: {store: /x/s.sqlite}
policies: {volatile: leaf, warm_roots: 0}
aliases: [gpt-4o, b]
history: template
chat_template_arguments: {enable_thinking: false}
"""
    profile = load_profile(written(tmp_path, text))
    assert profile.name == "mine"
    assert profile.engine == EngineFlags(
        max_num_seqs=4, extra_args=("--seed", "1"), tool_parser=None
    )
    settings = profile.settings
    assert settings.limits == Limits(deadline_s=30.0, scheduling="fcfs")
    assert (settings.sessions.store, settings.policies.volatile) == (Path("/x/s.sqlite"), "leaf")
    assert (settings.aliases, settings.history) == (("gpt-4o", "b"), "template")
    assert settings.chat_template_arguments == {"enable_thinking": False}


def test_a_file_on_top_of_ours(tmp_path: Path) -> None:
    text = (
        "based_on: h100\nengine: {tool_parser: {value: llama3_json, why: the model is Llama 3}}\n"
    )
    mine, ours = load_profile(written(tmp_path, text)), load_profile("h100")
    assert mine.engine.tool_parser == "llama3_json"
    assert mine.engine.max_num_batched_tokens == ours.engine.max_num_batched_tokens
    assert (mine.device, mine.settings) == (ours.device, ours.settings)
    assert mine.note == f"based on h100, {ours.note}"


def test_a_file_can_take_the_device_away(tmp_path: Path) -> None:
    assert load_profile(written(tmp_path, "based_on: l4\ndevice: null\n")).device is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no keys"),
        ("- a\n", "holds no keys"),
        ("engine: [\n", "is no YAML"),
        ("engine: {block_size: 16, block_size: 32}\n", "'block_size' stands twice"),
        ("engine: 5\n", "engine must hold keys, not int"),
        ("engines: {}\n", "unknown key engines; known: engine, device, limits"),
        ("engine: {block: 16}\n", "unknown key engine.block; known: block_size, max_model_len"),
        ("limits: {1: 2}\n", "unknown key limits.1; known: max_body_bytes"),
        ("engine: {block_size: x}\n", "engine.block_size: Expected `int | null`, got `str`"),
        ("engine: {block_size: true}\n", "engine.block_size: Expected `int | null`, got `bool`"),
        ("engine: {block_size: {value: 16}}\n", "got `object`"),
        ("engine: {block_size: 0}\n", "engine.block_size must be above 0"),
        ("engine: {block_size: 1000000000000000000000000}\n", "engine.block_size"),
        ("engine: {gpu_memory_utilization: 1.1}\n", "must be above 0 up to 1, not 1.1"),
        ("limits: {deadline_s: .nan}\n", "limits.deadline_s must be above 0"),
        ("limits: {deadline_s: .inf}\n", "limits.deadline_s must be above 0"),
        ("limits: {max_queued: -1}\n", "limits.max_queued must be from 0"),
        ("limits: {max_queued: null}\n", "Expected `int`, got `null`"),
        ("limits: {scheduling: lifo}\n", "must be one of priority, fcfs, not 'lifo'"),
        ("limits: {scheduling: [fcfs]}\n", "must be one of priority, fcfs, not ['fcfs']"),
        ("history: never\n", "history must be one of auto, verbatim, template, not 'never'"),
        ("aliases: gpt-4o\n", "aliases: Expected `array`, got `str`"),
        ("aliases: [1]\n", "aliases: Expected `str`, got `int`"),
        ("aliases: ['']\n", "aliases: a text is empty"),
        ('aliases: ["\\ud800"]\n', "aliases: a text is empty or holds a null character or half"),
        ('engine: {tool_parser: "a\\0b"}\n', "engine.tool_parser: a text is empty or holds a null"),
        ("sessions: {store: 3}\n", "sessions.store: expected a path, got 3"),
        ("chat_template_arguments: [1]\n", "Expected `object`, got `array`"),
        ("device: {name: X}\n", "device: "),
        ("based_on: h300\n", "based_on: 'h300' is none of cpu, h100, h200, l4"),
        ("based_on: [cpu]\n", "based_on: ['cpu'] is none of"),
        (
            "engine: {max_num_seqs: 64, max_num_batched_tokens: 32}\n",
            "engine.max_num_seqs 64 is above engine.max_num_batched_tokens 32",
        ),
        (
            "engine: {long_prefill_token_threshold: 64, max_num_batched_tokens: 64}\n",
            "engine.long_prefill_token_threshold 64 must stay below",
        ),
        ("engine: {extra_args: [--port, '1']}\n", "--port is not yours to set"),
        ("engine: {extra_args: [--no-enable-prefix-caching]}\n", "is not yours to set"),
        ("engine: {extra_args: [--max_model_len=9]}\n", "a key of its own here, engine.max_model"),
        ("engine: {extra_args: [-tp, '2']}\n", "here, engine.tensor_parallel_size"),
        ("engine: {extra_args: [--seed, 1]}\n", "engine.extra_args: Expected `str`, got `int`"),
    ],
)
def test_a_mistake_in_a_file_names_the_file_and_the_key(
    tmp_path: Path, text: str, said: str
) -> None:
    name = written(tmp_path, text)
    with pytest.raises(DuramenError) as failed:
        load_profile(name)
    line = str(failed.value)
    assert line.startswith(name)
    assert said in line
    assert "\n" not in line


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DuramenError, match="no profile 'a100': take one of cpu, h100, h200, l4"):
        load_profile("a100")
    with pytest.raises(DuramenError, match="no profile"):
        load_profile(str(tmp_path))
    (tmp_path / "latin.yaml").write_bytes(b"note: caf\xe9\n")
    with pytest.raises(DuramenError, match="is no UTF-8 text"):
        load_profile(str(tmp_path / "latin.yaml"))


def test_deep_nesting_is_an_error_of_ours() -> None:
    with pytest.raises(DuramenError, match="is no YAML"):
        parse_profile("engine: " + "[" * 5000, "deep")


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SCALARS, inner, max_size=3),
    max_leaves=5,
)
INNER = [key.name for to in SECTIONS.values() for key in fields(to)]
FILES = st.dictionaries(
    st.sampled_from([*SECTIONS, *VALUES]),
    ANYTHING | st.dictionaries(st.sampled_from(INNER), ANYTHING, max_size=3),
)


@given(FILES)
def test_any_file_is_a_profile_or_an_error_of_ours(raw: dict[str, object]) -> None:
    with suppress(DuramenError):
        assert isinstance(_profile("x", parse_profile(yaml.safe_dump(raw), "x"), "x"), Profile)


def gpu(name: str) -> tuple[Gpu, ...]:
    return (Gpu(name, 2**34),)


@pytest.mark.parametrize(
    ("gpus", "build", "expected"),
    [
        (gpu("NVIDIA H100 80GB HBM3"), "gpu", "h100"),
        (gpu("NVIDIA H100 PCIe"), None, "h100"),
        (gpu("NVIDIA H200"), "gpu", "h200"),
        (gpu("NVIDIA GH200 480GB"), "gpu", "cpu"),
        (gpu("NVIDIA L4"), "gpu", "l4"),
        (gpu("NVIDIA L40S"), "gpu", "cpu"),
        (gpu("NVIDIA H200"), "cpu", "cpu"),
        ((), "gpu", "cpu"),
        (None, "gpu", "cpu"),
    ],
)
def test_the_default_goes_by_what_is_there(
    gpus: tuple[Gpu, ...] | None, build: str | None, expected: str
) -> None:
    name, why = default_profile(gpus, build)  # type: ignore[arg-type]
    assert name == expected
    assert why


def test_a_gpu_profile_needs_the_gpu_build() -> None:
    check_build(load_profile("h100"), "gpu")
    check_build(load_profile("cpu"), "cpu")
    check_build(load_profile("cpu"), "gpu")
    with pytest.raises(DuramenError, match="profile h100 is for NVIDIA H100, but vLLM's CPU build"):
        check_build(load_profile("h100"), "cpu")


def test_a_date_stays_text(tmp_path: Path) -> None:
    text = "chat_template_arguments: {date: 2026-12-01}\n"
    settings = load_profile(written(tmp_path, text)).settings
    assert settings.chat_template_arguments == {"date": "2026-12-01"}


def command(profile: Profile, build: str, tmp_path: Path, max_model_len: int) -> list[str]:
    (tmp_path / "config.json").write_text("{}")
    config = vllm_config(profile, tmp_path, max_model_len=max_model_len, model_name="m")
    return _command(config, build, 1, EventEndpoints("a", "b"))[12:]  # type: ignore[arg-type]


def test_the_flags_of_vllm_on_a_cpu(tmp_path: Path) -> None:
    assert command(load_profile("cpu"), "cpu", tmp_path, 8192) == [
        *("--block-size", "32", "--max-model-len", "8192", "--max-num-seqs", "32"),
        *("--max-num-batched-tokens", "1024", "--long-prefill-token-threshold", "256"),
        *("--scheduling-policy", "priority", "--served-model-name", "m"),
        *("--enable-chunked-prefill", "--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
        *("--enforce-eager", "--uvicorn-log-level", "warning"),
    ]


def test_the_flags_of_vllm_on_a_gpu(tmp_path: Path) -> None:
    text = """
based_on: h200
engine: {kv_cache_gib: 3, tensor_parallel_size: 2, enable_chunked_prefill: false,
  tool_parser: null, reasoning_parser: qwen3, extra_args: ["--seed", "7"]}
limits: {scheduling: fcfs}
"""
    assert command(load_profile(written(tmp_path, text)), "gpu", tmp_path, 1000) == [
        *("--block-size", "16", "--max-model-len", "1000"),
        *("--kv-cache-memory-bytes", "3221225472", "--gpu-memory-utilization", "0.92"),
        *("--tensor-parallel-size", "2", "--max-num-seqs", "256"),
        *("--max-num-batched-tokens", "8192"),
        *("--long-prefill-token-threshold", "1000"),  # vLLM refuses more than the context
        *("--scheduling-policy", "fcfs", "--reasoning-parser", "qwen3"),
        *("--served-model-name", "m", "--no-enable-chunked-prefill"),
        *("--uvicorn-log-level", "warning", "--seed", "7"),
    ]


def test_every_engine_key_is_used(tmp_path: Path) -> None:
    """A key that the file may have, and that changes nothing, would be a lie."""
    other = {
        "block_size": 64,
        "max_num_seqs": 3,
        "max_num_batched_tokens": 999,
        "long_prefill_token_threshold": 9,
        "enable_chunked_prefill": True,
        "gpu_memory_utilization": 0.5,
        "kv_cache_gib": 1,
        "tensor_parallel_size": 2,
        "tool_parser": "x",
        "reasoning_parser": "y",
        "extra_args": ("--z",),
    }
    by_fit = {"max_model_len"}  # fit.py joins it with the model's own
    assert other.keys() | by_fit == {key.name for key in fields(EngineFlags)}
    plain = command(Profile("p"), "gpu", tmp_path, 10)
    for key, value in other.items():
        profile = Profile("p", engine=EngineFlags(**{key: value}))  # type: ignore[arg-type]
        assert command(profile, "gpu", tmp_path, 10) != plain, key


PARSE = """
import json, sys
from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = make_arg_parser(FlexibleArgumentParser())
for command in json.loads(sys.argv[1]):
    arguments = parser.parse_args(command)
    validate_parsed_serve_args(arguments)
    print(arguments.max_num_batched_tokens, arguments.long_prefill_token_threshold,
          arguments.scheduling_policy, arguments.enable_chunked_prefill, arguments.max_num_seqs)
"""


@pytest.mark.live
def test_vllm_reads_the_flags_of_ours(tmp_path: Path) -> None:
    """By vLLM's own parser, in a process of its own: the GPUs' flags too, which cannot run here."""
    if find_spec("vllm") is None and os.environ.get("DURAMEN_REQUIRE_LIVE") != "1":
        pytest.skip("no vLLM: the profiles' flags are not tried on its parser")
    commands = [
        command(load_profile(name), "cpu" if name == "cpu" else "gpu", tmp_path, 32_768)
        for name in OURS
    ]
    run = [sys.executable, "-c", PARSE, json.dumps(commands)]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-4:] == [
        "1024 256 priority True 32",
        "8192 2048 priority True 128",
        "8192 2048 priority True 256",
        "2048 512 priority True 64",
    ]
