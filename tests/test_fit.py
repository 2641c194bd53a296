"""Whether a model fits a device: sums that can be done by hand, and vLLM's own figure."""

import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from model_configs import DEEPSEEK_V3, MISTRAL_7B_V01

from duramen.kernels.device import Gpu
from duramen.layout.errors import LayoutError, ModelError
from duramen.serving.fit import GIB, check_fit, context_tokens
from duramen.serving.profile_file import load_profile
from duramen.serving.profiles import Device, EngineFlags, Profile
from duramen.serving.weights import weight_bytes

KV_BYTES = 2 * 32 * 8 * 128 * 2  # Llama-3.1-8B
CONFIG = {
    "model_type": "llama",
    "vocab_size": 128_256,
    "intermediate_size": 14_336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "max_position_embeddings": 131_072,
}
DEVICE = Device("X", memory_gib=10, overhead_gib=1, bandwidth_gb_per_s=100)
TEN_GIB = (Gpu("X", 10 * GIB),)


def safetensors(file: Path, tensors: dict[str, tuple[str, int]]) -> None:
    """Tensors of so many bytes, as a sparse file."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (dtype, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": [size], "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    with file.open("wb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        stream.truncate(8 + len(text) + end)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """The shape of Llama-3.1-8B with 4 GiB of weights."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    safetensors(tmp_path / "model.safetensors", {"a": ("BF16", 3 * GIB), "b": ("F8_E4M3", GIB)})
    return tmp_path


def profile(**flags: Any) -> Profile:
    flags = {"max_model_len": 8192, "gpu_memory_utilization": 0.9, **flags}
    return Profile("x", engine=EngineFlags(**flags), device=DEVICE)


def test_what_is_left(model: Path) -> None:
    """10 GiB x 0.9 - 4 - 1 = 4 GiB, 2 MiB per block of 16; one block is never used."""
    fit = check_fit(profile(), model, TEN_GIB)
    fit.require()
    assert (fit.weight_bytes, fit.kv_bytes_per_token) == (4 * GIB, KV_BYTES)
    assert fit.kv_tokens == (2048 - 1) * 16
    assert fit.max_model_len == 8192
    assert fit.summary == (
        "weights of 4.0 GiB and about 1.0 GiB beside them, in 9.0 of 10.0 GiB; "
        "about 32,752 KV tokens left, 4.0 whole contexts of 8,192"
    )
    assert fit.notes == ("one stream decodes at most 23 tokens/s: each reads all weights",)


def test_a_gpu_that_is_there_goes_before_the_profile(model: Path) -> None:
    assert check_fit(profile(), model, (Gpu("X", 20 * GIB),)).memory_bytes == 20 * GIB
    unseen = check_fit(profile(), model, ())
    assert unseen.memory_bytes == 10 * GIB
    assert "no GPU can be seen here: its memory is taken to be 10.0 GiB" in unseen.notes


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"max_model_len": None}, "the context of 131,072 tokens does not fit: .*max_model_len"),
        ({"max_model_len": 32_753}, "of 32,753 tokens does not fit: .*32,752 KV tokens"),
        ({"gpu_memory_utilization": 0.4}, "the model does not fit: weights of 4.0 GiB"),
        ({"gpu_memory_utilization": 0.50001}, "the model does not fit"),  # not one block is left
        ({"kv_cache_gib": 6}, "leave 5.0 GiB: set engine.kv_cache_gib to at most 5, not 6"),
        ({"kv_cache_gib": 6, "tensor_parallel_size": 1, "max_model_len": 1}, "at most 5"),
        ({"kv_cache_gib": 1, "max_model_len": 8192}, "leave 8,176 KV tokens"),
        ({"tensor_parallel_size": 2}, "tensor_parallel_size is 2, but this machine has 1 GPU:"),
        (
            {"enable_chunked_prefill": False, "max_num_batched_tokens": 4096},
            "engine.max_num_batched_tokens 4096 is below the context of 8192 tokens",
        ),
    ],
)
def test_what_does_not_fit_says_what_to_change(
    model: Path, flags: dict[str, Any], said: str
) -> None:
    fit = check_fit(profile(**flags), model, TEN_GIB)
    with pytest.raises(ModelError, match=said) as failed:
        fit.require()
    assert "\n" not in str(failed.value)


def test_at_most_what_it_says_does_fit(model: Path) -> None:
    check_fit(profile(max_model_len=32_752), model, TEN_GIB).require()
    check_fit(profile(kv_cache_gib=5), model, TEN_GIB).require()


def test_two_gpus_share(model: Path) -> None:
    """Each holds half of the weights and of the KV heads; the smaller GPU counts."""
    fit = check_fit(profile(tensor_parallel_size=2), model, (Gpu("X", 10 * GIB), Gpu("X", 8 * GIB)))
    assert (fit.memory_bytes, fit.weight_bytes) == (8 * GIB, 2 * GIB)
    assert fit.kv_bytes_per_token == KV_BYTES // 2
    more_gpus_than_heads = check_fit(profile(tensor_parallel_size=16), model, TEN_GIB * 16)
    assert more_gpus_than_heads.kv_bytes_per_token == KV_BYTES // 8


def test_a_latent_stands_whole_on_every_gpu(model: Path) -> None:
    (model / "config.json").write_text(json.dumps({**DEEPSEEK_V3, "num_hidden_layers": 2}))
    for num_gpus in (1, 2):
        fit = check_fit(profile(tensor_parallel_size=num_gpus), model, TEN_GIB * num_gpus)
        assert fit.kv_bytes_per_token == 2 * 576 * 2


def test_windows_leave_room_for_more(model: Path) -> None:
    """4 GiB in blocks of 2 MiB; a sequence of 32,768 holds those of its last 4,096 tokens."""
    (model / "config.json").write_text(json.dumps(MISTRAL_7B_V01))
    fit = check_fit(profile(max_model_len=32_768), model, TEN_GIB)
    assert fit.kv_tokens == 2047 * 32_768 // (4096 // 16 + 1)


def test_heads_that_the_gpus_do_not_divide(model: Path) -> None:
    with pytest.raises(ModelError, match="32 attention heads cannot be split 3 ways"):
        check_fit(profile(tensor_parallel_size=3), model, TEN_GIB * 3)


def test_flags_that_change_memory_leave_it_to_vllm(model: Path) -> None:
    flags = {"gpu_memory_utilization": 0.1, "extra_args": ("--quantization", "fp8")}
    fit = check_fit(profile(**flags), model, TEN_GIB)
    fit.require()
    assert "whether it fits is not checked: --quantization changes what is needed" in fit.notes


def test_attention_of_another_kind(model: Path) -> None:
    (model / "config.json").write_text(json.dumps({**CONFIG, "kv_lora_rank": 512}))
    fit = check_fit(profile(), model, TEN_GIB)
    fit.require()
    assert (fit.kv_bytes_per_token, fit.kv_tokens) == (None, None)
    assert fit.summary.endswith("KV tokens: not known for this kind of attention")


def test_a_mixture_of_experts_reads_a_part_of_its_weights(model: Path) -> None:
    (model / "config.json").write_text(json.dumps({**CONFIG, "num_local_experts": 8}))
    assert check_fit(profile(), model, TEN_GIB).notes == ()


def test_a_cpu_shares_its_memory(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 6 * 2**18}.get)
    cpu = load_profile("cpu")
    fit = check_fit(cpu, model)
    assert (fit.memory_bytes, fit.overhead_bytes) == (6 * GIB, 0)
    assert fit.kv_tokens == (2**31 // (KV_BYTES * 32) - 1) * 32
    larger = replace(cpu, engine=replace(cpu.engine, kv_cache_gib=3))
    with pytest.raises(ModelError, match=r"leave 2.0 GiB: set engine.kv_cache_gib to at most 2"):
        check_fit(larger, model).require()
    none = replace(cpu, engine=EngineFlags(block_size=32, max_model_len=16_352))
    check_fit(none, model).require()  # 2 GiB, as vLLM is started with


@pytest.mark.live
def test_as_many_tokens_as_vllm_has(smollm2: Path, live_server: Any) -> None:
    """The live server of the tests runs with 2 GiB and blocks of 32, as the profile does."""
    import re
    import urllib.request

    with urllib.request.urlopen(f"{live_server.url}/metrics") as page:
        num_blocks = re.search(r'num_gpu_blocks="(\d+)"', page.read().decode())
    assert num_blocks is not None
    fit = check_fit(load_profile("cpu"), smollm2)
    assert fit.kv_tokens == (int(num_blocks[1]) - 1) * 32


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (CONFIG, 131_072),
        ({"n_positions": 1024, "max_seq_len": 2048}, 1024),
        ({"max_position_embeddings": 8192, "model_max_length": 131_072}, 131_072),  # Command R
        ({"text_config": CONFIG, "max_position_embeddings": 5}, 131_072),
        ({"max_position_embeddings": "8192"}, None),
        ({"max_position_embeddings": True}, None),
        ({"max_position_embeddings": 0}, None),
        ({}, None),
    ],
)
def test_context(config: dict[str, Any], expected: int | None) -> None:
    assert context_tokens(config) == expected


def test_a_model_keeps_its_own_shorter_context(model: Path) -> None:
    (model / "config.json").write_text(json.dumps({**CONFIG, "max_position_embeddings": 2048}))
    assert check_fit(profile(), model, TEN_GIB).max_model_len == 2048


def test_weights_of_32_bits_are_loaded_as_16(tmp_path: Path) -> None:
    safetensors(tmp_path / "model.safetensors", {"a": ("F32", 400), "b": ("BF16", 100)})
    assert weight_bytes(tmp_path) == 300


def test_an_index_says_which_files(tmp_path: Path) -> None:
    for name in ("1", "2", "consolidated"):
        safetensors(tmp_path / f"{name}.safetensors", {"a": ("BF16", 100)})
    index = {"weight_map": {"a": "1.safetensors", "b": "2.safetensors", "c": "2.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert weight_bytes(tmp_path) == 200
    (tmp_path / "2.safetensors").unlink()
    with pytest.raises(ModelError, match=r"1 of 2 weight files are missing .* 2\.safetensors"):
        weight_bytes(tmp_path)


def test_the_demo_model(smollm2: Path) -> None:
    """134.5 million parameters of bf16."""
    assert weight_bytes(smollm2) == 2 * 134_515_008


def test_other_forms_of_weights(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"x" * 10)
    assert weight_bytes(tmp_path) == 10


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is no safetensors file, or is cut short"),
        (b"\xff" * 100, "is no safetensors file"),
        (struct.pack("<Q", 2) + b"[]", "is no safetensors file"),
        (struct.pack("<Q", 2) + b"{}", "is no safetensors file"),
        (struct.pack("<Q", 9) + b'{"a": {}}', "is no safetensors file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "is a Git LFS pointer"),
    ],
)
def test_broken_weights(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(ModelError, match=said):
        weight_bytes(tmp_path)


def test_weights_that_are_cut_short(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    safetensors(file, {"a": ("BF16", 100)})
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ModelError, match="is cut short: download it again"):
        weight_bytes(tmp_path)


def test_no_weights(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no weights in"):
        weight_bytes(tmp_path)


def test_no_config(tmp_path: Path) -> None:
    with pytest.raises(LayoutError, match=r"config\.json is missing"):
        check_fit(profile(), tmp_path, TEN_GIB)
