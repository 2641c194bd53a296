"""`duramen kv` from the outside."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from model_configs import DEEPSEEK_V3, GEMMA_3_27B, LLAMA_3_8B, QWEN_3_NEXT_80B, Config

from duramen.cli import main

Capture = pytest.CaptureFixture[str]
HEAVY = {"torch", "transformers", "vllm"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "models" / "llama"
    made.mkdir(parents=True)
    write(made, {**LLAMA_3_8B, "max_position_embeddings": 8192})
    return made


def write(folder: Path, config: Config) -> None:
    (folder / "config.json").write_text(json.dumps(config))


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr("sys.argv", ["duramen", "kv", *map(str, arguments)])
    return main.run()


def result(monkeypatch: pytest.MonkeyPatch, capsys: Capture, *arguments: object) -> dict[str, Any]:
    assert run(monkeypatch, *arguments, "--json", "-") == 0
    read: dict[str, Any] = json.loads(capsys.readouterr().out)
    return read


def test_as_json(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    found = result(monkeypatch, capsys, folder)
    assert found.pop("duramen_version")
    full = {
        "num_layers": 32,
        "bytes_per_token": 4096,
        "state_bytes": 0,
        "window_tokens": None,
        "block_tokens": 16,
        "page_bytes": 65_536,
        "padding_bytes": 0,
    }
    assert found == {
        "schema_version": 1,
        "command": "kv",
        "engine": "vLLM 0.32",
        "model": "llama",
        "device": None,
        "unit_tokens": 16,
        "kv_dtype": "bfloat16",
        "bytes_per_token": 131_072,
        "bytes_per_token_beyond_window": 131_072,
        "state_bytes_per_sequence": 0,
        "per_rank": {
            "tensor_parallel_size": 1,
            "bytes_per_token": 131_072,
            "bytes_per_token_beyond_window": 131_072,
            "state_bytes_per_sequence": 0,
            "block_tokens": 16,
            "num_groups": 1,
            "bytes_per_block": 2_097_152,
        },
        "layers": {"full": full},
        "at_context": None,
        "in_memory": None,
        "other_attentions": {"mha": 524_288, "gqa": 131_072, "mqa": 16_384, "mla": 36_864},
    }


def test_options(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    options = ("--tp", 2, "--kv-dtype", "fp8", "--block-size", 64, "--context", 1000)
    found = result(monkeypatch, capsys, folder / "config.json", *options, "--memory", 1)
    assert found["bytes_per_token"] == 65_536
    assert (found["unit_tokens"], found["per_rank"]["bytes_per_token"]) == (64, 32_768)
    assert found["kv_dtype"] == "fp8"
    assert found["at_context"] == {
        "context_tokens": 1000,
        "bytes_per_sequence": 32_768_000,
        "num_blocks": 16,
        "pool_bytes_per_sequence": 16 * 64 * 32_768,
    }
    assert found["in_memory"] == {
        "pool_bytes": 2**30,
        "num_blocks": 511,
        "context_tokens": 1000,
        "num_tokens": 511 * 64,
        "num_sequences": 31,
    }


def test_auto_is_said_as_what_it_comes_to(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    quantised = {"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"}
    write(folder, {**LLAMA_3_8B, "quantization_config": quantised})
    found = result(monkeypatch, capsys, folder)
    assert (found["kv_dtype"], found["bytes_per_token"]) == ("fp8_e4m3", 65_536)


def test_a_byte_order_mark_is_no_part_of_the_config(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    (folder / "config.json").write_text(json.dumps(LLAMA_3_8B), encoding="utf-8-sig")
    assert result(monkeypatch, capsys, folder)["bytes_per_token"] == 131_072


def test_the_context_is_the_models_own(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    found = result(monkeypatch, capsys, folder, "--memory", 4)
    assert found["at_context"] is None
    assert found["in_memory"]["context_tokens"] == 8192
    assert found["in_memory"]["num_sequences"] == 3  # 2,047 blocks of 16, 512 each


def test_a_hybrid(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    """Block and padding have fields of their own."""
    write(folder, QWEN_3_NEXT_80B)
    found = result(monkeypatch, capsys, folder)
    assert (found["unit_tokens"], found["per_rank"]["block_tokens"]) == (544, 544)
    state = found["layers"]["gated-delta-net"]
    assert (state["state_bytes"], state["padding_bytes"]) == (1_097_728, 16_384)
    assert found["state_bytes_per_sequence"] == 36 * 1_097_728


@pytest.mark.parametrize(
    ("config", "options", "rows"),
    [
        (LLAMA_3_8B, (), ["32 x full", "131,072 B (128.0 KiB)", "GQA, 8 KV heads"]),
        (
            GEMMA_3_27B,
            ("--tp", "2", "--context", "131072"),
            ["52 x window", "at most 1,024 tokens", "beyond the window", "each of 2 GPUs", "GiB"],
        ),
        (DEEPSEEK_V3, (), ["61 x latent", "1,152 B per token", "4.8 MiB"]),
        (
            QWEN_3_NEXT_80B,
            ("--memory", "20", "--context", "4096"),
            ["padded by 16,384", "a sequence, besides", "544 tokens", "in 20 GiB"],
        ),
    ],
)
def test_a_table(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
    config: Config,
    options: tuple[str, ...],
    rows: list[str],
) -> None:
    write(folder, config)
    monkeypatch.setenv("COLUMNS", "140")
    assert run(monkeypatch, folder, *options) == 0
    shown = capsys.readouterr().out
    assert [row for row in rows if row not in shown] == []


@pytest.mark.parametrize(
    ("changes", "options", "said"),
    [
        ({"vocab_size": None}, (), "vocab_size or padded_vocab_size is missing"),
        ({}, ("--tp", "3"), "32 attention heads cannot be split 3 ways"),
        ({}, ("--kv-dtype", "fp8_ds_mla"), "fp8_ds_mla is a format for latents"),
        ({}, ("--kv-dtype", "fp7"), "'fp7' is not one of"),
        (
            {},
            ("--block-size", "5"),
            "--block-size must be a multiple of 16 tokens (of 32 on a CPU)",
        ),
        ({}, ("--block-size", "24"), "not 24"),
        ({}, ("--block-size", "0"), "'--block-size'"),
        ({"max_position_embeddings": None}, ("--memory", "1"), "give --context"),
        ({}, ("--memory", "inf"), "less than or equal to 1000000"),
        ({}, ("--memory", "nan"), "'--memory'"),
        ({}, ("--json", "/no/such/x"), "cannot write /no/such/x"),
    ],
)
def test_mistakes(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
    changes: Config,
    options: tuple[str, ...],
    said: str,
) -> None:
    write(folder, {**LLAMA_3_8B, "max_position_embeddings": 8192, **changes})
    assert run(monkeypatch, folder, *options) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    [line] = printed.err.splitlines()
    assert said in line


def test_no_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    assert run(monkeypatch, tmp_path) == 2
    assert capsys.readouterr().err == (
        f"duramen: error: {tmp_path}/config.json is missing: "
        "give a config.json or a model's folder\n"
    )


def test_nothing_heavy_is_imported(folder: Path) -> None:
    code = "import sys; from duramen.cli.main import run; run(); print(*sys.modules, sep='\\n')"
    command = [sys.executable, "-c", code, "kv", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines())
    assert "duramen.cli.kv" in loaded
    assert loaded & HEAVY == set()
