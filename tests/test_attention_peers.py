"""The attention oracle against other people's attention: transformers' eager layers of models with
windows, chunks, soft caps, sinks and MLA, and vLLM's paged kernels."""

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import accumulate
from typing import Any, NamedTuple

import pytest
import torch

from duramen.kernels.attention_oracle import (
    Attended,
    KeyValues,
    Latents,
    Rules,
    Scheduled,
    UpProjection,
    attend,
    attend_mla,
    attend_mla_absorbed,
    attend_paged,
    with_sinks,
)

NUM_TOKENS = 23
SMALL = {
    "hidden_size": 32,
    "intermediate_size": 16,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "num_hidden_layers": 2,
    "vocab_size": 50,
    "attn_implementation": "eager",
}


class Call(NamedTuple):
    """What one layer's attention was called with, and what it gave; a batch of one."""

    module: Any
    query: Any  # [1, num_heads, num_tokens, head_dim]
    keys: Any
    values: Any
    output: Any  # [1, num_tokens, num_heads, v_head_dim]
    scale: float

    def attended(self, rules: Rules, *, sinks: bool = True) -> Attended:
        kv = KeyValues(*(each[0].transpose(0, 1) for each in (self.keys, self.values)))
        rules = replace(rules, scale=self.scale)
        found = attend(self.query[0].transpose(0, 1), kv.positions, kv, rules)
        return with_sinks(found, self.module.sinks) if sinks and self.has_sinks else found

    @property
    def has_sinks(self) -> bool:
        return hasattr(self.module, "sinks")


def run_model(
    family: str, prefix: str, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> tuple[list[Call], Any]:
    """The call of each layer of a random model over one random prompt, and the cache it left."""
    with warnings.catch_warnings(action="ignore"):  # theirs, at import
        configuration = import_module(f"transformers.models.{family}.configuration_{family}")
        modeling = import_module(f"transformers.models.{family}.modeling_{family}")
    eager = modeling.eager_attention_forward
    calls: list[Call] = []

    def recorded(module: Any, query: Any, keys: Any, values: Any, mask: Any, **more: Any) -> Any:
        output, weights = eager(module, query, keys, values, mask, **more)
        calls.append(Call(module, query, keys, values, output, more["scaling"]))
        return output, weights

    monkeypatch.setattr(modeling, "eager_attention_forward", recorded)
    torch.manual_seed(0)
    made = getattr(configuration, f"{prefix}Config")(**SMALL | config)
    model = getattr(modeling, f"{prefix}Model")(made).eval()
    for parameter in model.parameters():  # far enough from 0 that caps and sinks show
        torch.nn.init.normal_(parameter, std=0.5)
    with torch.no_grad():
        cache = model(torch.randint(0, 50, (1, NUM_TOKENS)), use_cache=True).past_key_values
    return calls, cache


def assert_equal(found: Attended, expected: Any) -> None:
    """Both in float32; scores here reach some tens."""
    torch.testing.assert_close(found.output, expected, rtol=1e-4, atol=1e-5)


def differs(found: Attended, expected: Any) -> bool:
    return not torch.allclose(found.output, expected, rtol=1e-2, atol=1e-2)


WINDOWED = {"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"]}
CHUNKED = {"attention_chunk_size": 6, "layer_types": ["chunked_attention", "full_attention"]}
EXPERTS = {"num_local_experts": 2, "num_experts_per_tok": 1}


@pytest.mark.parametrize(
    ("family", "prefix", "config", "layers"),
    [
        (
            "gemma2",
            "Gemma2",
            WINDOWED | {"attn_logit_softcapping": 2.0},
            (Rules(window=5, soft_cap=2.0), Rules(soft_cap=2.0)),
        ),
        ("gemma3", "Gemma3Text", WINDOWED, (Rules(window=5), Rules())),
        ("gpt_oss", "GptOss", WINDOWED | EXPERTS, (Rules(window=5), Rules())),
        ("llama4", "Llama4Text", CHUNKED | EXPERTS, (Rules(chunk=6), Rules())),
    ],
)
def test_it_is_transformers_eager_attention(family, prefix, config, layers, monkeypatch):
    """And would not be with the other layer's rules, without the cap, or without the sinks."""
    calls, _ = run_model(family, prefix, config, monkeypatch)
    for call, own, other in zip(calls, layers, reversed(layers), strict=True):
        expected = call.output[0]
        assert_equal(call.attended(own), expected)
        assert differs(call.attended(other), expected)
        assert not own.soft_cap or differs(call.attended(replace(own, soft_cap=None)), expected)
        assert not call.has_sinks or differs(call.attended(own, sinks=False), expected)


def test_both_forms_of_mla_are_transformers_deepseek(monkeypatch):
    """From what is cached: the normalised latent and the rotated key, the same for all heads."""
    config = {
        "num_key_value_heads": 4,
        "head_dim": 4,
        "q_lora_rank": 12,
        "kv_lora_rank": 10,
        "qk_nope_head_dim": 6,
        "qk_rope_head_dim": 4,
        "v_head_dim": 5,
        "first_k_dense_replace": 2,
    }
    calls, cache = run_model("deepseek_v3", "DeepseekV3", config, monkeypatch)
    for call, cached in zip(calls, cache.layers, strict=True):
        latents = Latents(torch.cat([cached.keys[0, 0], cached.values[0, 0]], dim=-1))
        up = UpProjection.from_kv_b_proj(call.module.kv_b_proj.weight, 4, 6)
        query, positions = call.query[0].transpose(0, 1), torch.arange(NUM_TOKENS)
        for form in (attend_mla, attend_mla_absorbed):
            found = form(query, positions, latents, up, Rules(scale=call.scale))
            assert_equal(found, call.output[0])
        assert_equal(call.attended(Rules()), call.output[0])


@dataclass(frozen=True)
class Batch:
    """Decodes and chunks over shuffled blocks, for a kernel and for the oracle."""

    query: Any
    caches: Any  # keys and values: [2, num_blocks, block_size, num_kv_heads, head_dim]
    tables: Any
    new_tokens: tuple[int, ...]
    num_tokens: tuple[int, ...]
    rules: Rules
    sinks: Any | None

    def attended(self) -> Any:
        batch = map(Scheduled, self.tables, self.new_tokens, self.num_tokens)
        found = attend_paged(self.query, *self.caches, [*batch], self.rules)
        return (found if self.sinks is None else with_sinks(found, self.sinks)).output

    @property
    def scale(self) -> float:
        scale = self.rules.with_scale_of(self.query.shape[2]).scale
        assert scale is not None
        return scale

    @property
    def starts(self) -> Any:
        return self._int32([0, *accumulate(self.new_tokens)])

    @property
    def lengths(self) -> Any:
        return self._int32(self.num_tokens)

    def _int32(self, numbers: Sequence[int]) -> Any:
        return torch.tensor(numbers, dtype=torch.int32, device=self.query.device)


def on_cpu(batch: Batch) -> Any:
    """What vLLM's CPU kernel gives. Keys and values are written by a kernel too, since their inner
    layout is its own."""
    ops: Any = import_module("vllm._custom_ops")
    num_blocks, block_size, num_kv_heads, head_dim = batch.caches.shape[1:]
    caches = torch.zeros(num_blocks, num_kv_heads, 2 * block_size, head_dim).chunk(2, dim=2)
    rows = [each.flatten(0, 1) for each in batch.caches]
    ops.cpu_attn_reshape_and_cache(*rows, *caches, torch.arange(len(rows[0])), "vec")
    window = -1 if batch.rules.window is None else batch.rules.window
    plan = ops.cpu_attn_get_scheduler_metadata(
        num_reqs=len(batch.tables),
        num_heads=batch.query.shape[1],
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        seq_lens=batch.lengths,
        dtype=batch.query.dtype,
        query_start_loc=batch.starts,
        causal=True,
        sliding_window_size=window,
        isa="vec",
        enable_kv_split=True,
    )
    output = torch.empty_like(batch.query)
    ops.cpu_attention_with_kv_cache(
        query=batch.query,
        key_cache=caches[0],
        value_cache=caches[1],
        output=output,
        query_start_loc=batch.starts,
        seq_lens=batch.lengths,
        scale=batch.scale,
        causal=True,
        alibi_slopes=None,
        sliding_window=window,
        block_table=batch.tables,
        softcap=batch.rules.soft_cap or 0,
        scheduler_metadata=plan,
        s_aux=batch.sinks,
    )
    return output


def on_cuda(batch: Batch) -> Any:
    """What the FlashAttention that vLLM brings gives."""
    flash: Any = import_module("vllm.v1.attention.backends.fa_utils")
    if batch.sinks is not None and not flash.flash_attn_supports_sinks():
        pytest.skip("this GPU's FlashAttention knows no sinks")
    window = batch.rules.window
    return flash.flash_attn_varlen_func(
        q=batch.query,
        k=batch.caches[0],
        v=batch.caches[1],
        max_seqlen_q=max(batch.new_tokens),
        cu_seqlens_q=batch.starts,
        max_seqlen_k=max(batch.num_tokens),
        seqused_k=batch.lengths,
        softmax_scale=batch.scale,
        causal=True,
        window_size=[-1, -1] if window is None else [window - 1, 0],
        softcap=batch.rules.soft_cap or 0.0,
        block_table=batch.tables,
        s_aux=batch.sinks,
        fa_version=flash.get_flash_attn_version(),
    )


@pytest.fixture(scope="module")
def vllm() -> None:
    with warnings.catch_warnings(action="ignore"):  # theirs, at import
        if os.environ.get("DURAMEN_REQUIRE_LIVE") != "1":
            pytest.importorskip("vllm", reason="no vLLM: its kernels are not compared with")
        import_module("vllm._custom_ops")


@pytest.mark.parametrize("device", ["cuda" if torch.cuda.is_available() else "cpu"])
@pytest.mark.parametrize("num_kv_heads", [1, 2, 4])
@pytest.mark.parametrize(
    ("rules", "has_sinks"),
    [
        (Rules(), False),
        (Rules(window=9), False),
        (Rules(window=40, scale=0.2), True),
        (Rules(soft_cap=1.5), False),
        (Rules(), True),
    ],
)
@pytest.mark.usefixtures("vllm")
def test_vllm_s_paged_kernel_agrees(device, num_kv_heads, rules, has_sinks):
    generator = torch.Generator().manual_seed(0)
    dtype = torch.float32 if device == "cpu" else torch.bfloat16

    def normal(*shape: int) -> Any:
        return torch.randn(*shape, generator=generator).to(device, dtype)

    batch = Batch(
        query=normal(59, 4, 64),
        caches=normal(2, 12, 32, num_kv_heads, 64),
        tables=torch.randperm(12, generator=generator).view(4, 3).int().to(device),
        new_tokens=(1, 17, 40, 1),  # a decode, a whole prefill, a chunk, a first token
        num_tokens=(70, 17, 75, 1),
        rules=rules,
        sinks=normal(4) if has_sinks else None,
    )
    found = (on_cpu if device == "cpu" else on_cuda)(batch)
    close = 1e-4 if device == "cpu" else 2e-2  # the latter rounds what it gives to bfloat16
    torch.testing.assert_close(found.float(), batch.attended(), rtol=close, atol=close)
