"""Footprints and pages against their oracle: what vLLM itself makes of the same configs.

Published shapes of every kind, built without weights in a process of its own; formats and shares of
tensor-parallel ranks against vLLM's own arithmetic. The CPU build lacks what Kimi's layers import:
that stands in the hand-computed cases only.
"""

import json
import os
import subprocess
import sys
import warnings
from importlib.util import find_spec
from math import prod
from pathlib import Path
from types import ModuleType
from typing import Any

import model_configs
import pytest
import vllm_pages
from model_configs import Config
from quantised_configs import FLOAT_8, KV_FORMATS_OF_MODELOPT

from duramen.serving.kv.arch import Architecture
from duramen.serving.kv.footprint import Footprint, KvDtype
from duramen.serving.kv.pages import Group, Pages, lay_out

BLOCK_TOKENS = 32
CLASSES = {
    "DEEPSEEK_V3": "DeepseekV3ForCausalLM",
    "DEEPSEEK_V32": "DeepseekV32ForCausalLM",
    "COHERE_2_7B": "Cohere2ForCausalLM",
    "FALCON_7B": "FalconForCausalLM",
    "FALCON_H1_0_5B": "FalconH1ForCausalLM",
    "GEMMA_2_9B": "Gemma2ForCausalLM",
    "GEMMA_3_27B": "Gemma3ForCausalLM",
    "GLM_5_2": "GlmMoeDsaForCausalLM",
    "GPT_2": "GPT2LMHeadModel",
    "GPT_OSS_20B": "GptOssForCausalLM",
    "GRANITE_4_H_TINY": "GraniteMoeHybridForCausalLM",
    "JAMBA_V01": "JambaForCausalLM",
    "LFM_2_1_2B": "Lfm2ForCausalLM",
    "LLAMA_3_8B": "LlamaForCausalLM",
    "LLAMA_4_SCOUT": "Llama4ForCausalLM",
    "MISTRAL_7B_V01": "MistralForCausalLM",
    "MIXTRAL_8X7B": "MixtralForCausalLM",
    "NEMOTRON_H_8B": "NemotronHForCausalLM",
    "QWEN_2_5_7B": "Qwen2ForCausalLM",
    "QWEN_3_NEXT_80B": "Qwen3NextForCausalLM",
}
QUANTISED: dict[str, Config] = {
    "compressed-tensors": {
        "quant_method": "compressed-tensors",
        "config_groups": {},
        "kv_cache_scheme": FLOAT_8,
    },
    "modelopt": {
        "quant_method": "modelopt",
        "quant_algo": "FP8",
        "kv_cache_scheme": FLOAT_8,
    },
}
CASES = [
    *((name, "auto") for name in CLASSES),
    ("LLAMA_3_8B", "fp8"),
    ("JAMBA_V01", "fp8"),
    *((name, method) for name in ("LLAMA_3_8B", "DEEPSEEK_V3") for method in QUANTISED),
]

pytestmark = pytest.mark.live


def config_of(name: str, asked: str = "auto") -> Config:
    """Of the text model alone: the parts that see need libraries of their own. `asked`: a format,
    or how the checkpoint is quantised."""
    config: Config = getattr(model_configs, name)
    more = {
        "architectures": [CLASSES[name]],
        "max_position_embeddings": 131_072,
        "torch_dtype": "bfloat16",
    }
    quantised = {"quantization_config": QUANTISED[asked]} if asked in QUANTISED else {}
    return more | config.get("text_config", config) | quantised


def kv_dtype_of(asked: str) -> str:
    return "auto" if asked in QUANTISED else asked


@pytest.fixture(scope="module")
def answers() -> dict[tuple[str, str], dict[str, Any]]:
    if find_spec("vllm") is None and os.environ.get("DURAMEN_REQUIRE_LIVE") != "1":
        pytest.skip("no vLLM: footprints are not compared with its pages")
    requests = [
        {
            "config": config_of(name, asked),
            "block_size": BLOCK_TOKENS,
            "kv_dtype": kv_dtype_of(asked),
        }
        for name, asked in CASES
    ]
    script = Path(vllm_pages.__file__)
    done = subprocess.run(
        [sys.executable, script],
        input=json.dumps(requests),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(CASES, json.loads(done.stdout), strict=True))


def laid_out(name: str, asked: str) -> Pages:
    arch = Architecture.from_config(config_of(name, asked))
    return lay_out(Footprint.of(arch, kv_dtype=KvDtype(kv_dtype_of(asked))), BLOCK_TOKENS)


def described(group: Group) -> dict[str, int | None]:
    """As vLLM has it, which adds the pages up where they are of several sizes."""
    page = group.pages[0]
    is_even = len({each.page_bytes for each in group.pages}) == 1
    return {
        "num_layers": len(group.pages),
        "block_tokens": group.block_tokens,
        "page_bytes": page.page_bytes if is_even else group.page_bytes,
        "content_bytes": page.page_bytes - page.padding_bytes if is_even else None,
        "window_tokens": group.cache.window,
    }


@pytest.mark.parametrize(("name", "asked"), CASES)
@pytest.mark.timeout(600)
def test_pages(answers: dict[tuple[str, str], Any], name: str, asked: str) -> None:
    """Each group's layers, block, page, content and window; blocks in a pool; the match unit."""
    theirs = answers[name, asked]
    assert "error" not in theirs, theirs["error"]
    ours = laid_out(name, asked)
    assert sorted(map(repr, theirs["groups"])) == sorted(
        repr(described(group)) for group in ours.groups
    )
    assert ours.unit_tokens == theirs["unit_tokens"]
    assert ours.num_blocks(vllm_pages.POOL_BYTES) == theirs["num_blocks"] - 1


@pytest.mark.parametrize("name", ["DEEPSEEK_V32", "GLM_5_2"])
def test_which_layers_have_indexers(answers: dict[tuple[str, str], Any], name: str) -> None:
    """And what these keep: GLM's go by another layer's in three of four."""
    theirs = {
        int(layer.split(".")[2]): spec["page_bytes"]
        for layer, spec in answers[name, "auto"]["layers"].items()
        if layer.endswith("indexer.k_cache")
    }
    assert theirs == {
        page.cache.layer: page.page_bytes
        for group in laid_out(name, "auto").groups
        for page in group.pages
        if page.cache.kind == "indexer"
    }


@pytest.fixture(scope="module")
def vllm() -> ModuleType:
    """What vLLM reckons with, in one namespace."""
    with warnings.catch_warnings(action="ignore"):  # theirs, at import
        if os.environ.get("DURAMEN_REQUIRE_LIVE") != "1":
            pytest.importorskip("vllm", reason="no vLLM: formats and ranks are not compared")
        import torch
        from vllm.model_executor.layers.attention.mla_attention import MLACommonBackend
        from vllm.model_executor.layers.mamba.mamba_utils import MambaStateShapeCalculator
        from vllm.utils.torch_utils import (
            STR_DTYPE_TO_TORCH_DTYPE,
            get_kv_cache_quant_algo_string,
            nvfp4_kv_cache_full_dim,
        )
        from vllm.v1 import kv_cache_interface
        from vllm.v1.attention.backends.triton_attn import TritonAttentionBackend
    oracle = ModuleType("oracle")
    oracle.__dict__.update(
        interface=kv_cache_interface,
        heads=TritonAttentionBackend,
        latents=MLACommonBackend,
        shapes=MambaStateShapeCalculator,
        nvfp4=nvfp4_kv_cache_full_dim,
        kv_format=get_kv_cache_quant_algo_string,
        dtypes=STR_DTYPE_TO_TORCH_DTYPE | {"auto": torch.bfloat16},
    )
    return oracle


@pytest.mark.parametrize(("quantised", "kv_format"), KV_FORMATS_OF_MODELOPT)
def test_what_a_quantised_checkpoint_asks_for(
    vllm: Any, quantised: Config, kv_format: str | None
) -> None:
    theirs = vllm.kv_format(quantised)
    assert (None if theirs == "auto" else theirs) == kv_format
    config = {**config_of("LLAMA_3_8B"), "quantization_config": quantised}
    assert Architecture.from_config(config).kv_format == kv_format


PACKED = [each for each in KvDtype if each not in (KvDtype.NVFP4, KvDtype.FP8_DS_MLA)]


@pytest.mark.parametrize("kv_dtype", PACKED)
def test_formats(vllm: Any, kv_dtype: KvDtype) -> None:
    """A token's keys and values in 8 heads of 128, and a latent, as GPU backends pack them."""
    given = {
        "block_size": 1,
        "dtype": vllm.dtypes[kv_dtype],
        "kv_quant_mode": vllm.interface.get_kv_quant_mode(kv_dtype),
    }
    heads = vllm.interface.FullAttentionSpec(num_kv_heads=8, head_size=128, **given)
    latent = vllm.interface.MLAAttentionSpec(num_kv_heads=1, head_size=576, **given)
    for name, spec in (
        ("LLAMA_3_8B", vllm.heads.customize_spec(heads)),
        ("DEEPSEEK_V3", vllm.latents.customize_spec(latent)),
    ):
        arch = Architecture.from_config(config_of(name))
        assert Footprint.of(arch, kv_dtype=kv_dtype).caches[0].bytes_per_token == (
            spec.page_size_bytes
        )


def test_nvfp4(vllm: Any) -> None:
    arch = Architecture.from_config(config_of("LLAMA_3_8B"))
    [*_, cache] = Footprint.of(arch, kv_dtype=KvDtype.NVFP4).caches
    assert cache.bytes_per_token == 2 * 8 * vllm.nvfp4(128)


@pytest.mark.parametrize("num_ranks", [1, 2, 4, 8])
def test_states_of_each_rank(vllm: Any, num_ranks: int) -> None:
    """Elements of a state on one of several ranks; the KV heads allow them all."""
    elements = {
        "JAMBA_V01": vllm.shapes.mamba1_state_shape(num_ranks, 8192, 16, 4),
        "GRANITE_4_H_TINY": vllm.shapes.mamba2_state_shape(num_ranks, 3072, 1, 48, 64, 128, 4),
        "NEMOTRON_H_8B": vllm.shapes.mamba2_state_shape(num_ranks, 8192, 8, 128, 64, 128, 4),
        "QWEN_3_NEXT_80B": vllm.shapes.gated_delta_net_state_shape(num_ranks, 16, 32, 128, 128, 4),
        "LFM_2_1_2B": vllm.shapes.short_conv_state_shape(num_ranks, 2048, 3),
    }
    widths = {"NEMOTRON_H_8B": (2, 4)}  # bytes: float32 beside bfloat16
    for name, shapes in elements.items():
        config = {**config_of(name), "num_attention_heads": 32}  # what all the ranks divide
        states = {
            cache.state_bytes
            for cache in Footprint.of(Architecture.from_config(config), num_ranks).caches
            if cache.is_state
        }
        expected = sum(
            prod(shape) * width
            for shape, width in zip(shapes, widths.get(name, (2, 2)), strict=False)
        )
        assert states == {expected}, name


@pytest.mark.parametrize("num_tokens", [1, 100, 127, 128, 129, 8192, 8193, 100_000])
def test_blocks_of_windows(vllm: Any, num_tokens: int) -> None:
    """Of a sequence that decodes: one token in flight."""
    given = {"block_size": 16, "num_kv_heads": 8, "head_size": 64, "dtype": vllm.dtypes["auto"]}
    theirs = {
        "window": vllm.interface.SlidingWindowSpec(sliding_window=128, **given),
        "chunk": vllm.interface.ChunkedLocalAttentionSpec(attention_chunk_size=8192, **given),
    }
    for name in ("GPT_OSS_20B", "LLAMA_4_SCOUT"):
        footprint = Footprint.of(Architecture.from_config(config_of(name)))
        for group in lay_out(footprint, 16).groups:
            if not group.is_whole:
                spec = theirs[group.cache.kind]
                assert group.blocks_at(num_tokens) == spec.max_admission_blocks_per_request(
                    1, num_tokens
                )
