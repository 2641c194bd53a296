"""Work against transformers' own models: their matrices, and the operations of a run.

torch's counter sees the full square of a chunk's scores, masked or not. What is attended to is
counted in the weights that the attention gives: those that are not zero.
"""

from typing import Any

import model_configs
import pytest
from model_configs import MINIMAX_TEXT_01, NEMOTRON_H_8B, Config

from duramen.serving.kv.arch import Architecture, Latent
from duramen.serving.kv.work import num_params, prefill_work

torch = pytest.importorskip("torch", reason="no torch: nothing is counted")
transformers = pytest.importorskip("transformers", reason="no transformers: nothing is counted")

VECTORS = ("bias", "A_log", "shared_expert_gate.weight")  # some are kept as matrices
LEARNED_POSITIONS = {"gpt2": 1024 * 768}
LATENT_EXPERTS: Config = {
    **NEMOTRON_H_8B,
    "hybrid_override_pattern": "MEM*E",
    "moe_intermediate_size": 768,
    "moe_latent_size": 1024,
    "moe_shared_expert_intermediate_size": 512,
    "n_routed_experts": 16,
    "n_shared_experts": 1,
    "num_experts_per_tok": 4,
    "num_hidden_layers": 5,
}
BUILT = {
    name: value
    for name, value in vars(model_configs).items()
    if name.isupper() and value is not MINIMAX_TEXT_01  # the one that transformers cannot build
} | {"LATENT_EXPERTS": LATENT_EXPERTS}
SMALL: Config = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 24,
    "vocab_size": 100,
    "pad_token_id": 0,
}
EXPERTS: Config = {**SMALL, "num_experts_per_tok": 3, "moe_intermediate_size": 40}
RUN: list[Config] = [
    {"model_type": "llama", **SMALL},
    {"model_type": "qwen3_moe", "num_experts": 8, "mlp_only_layers": [1], **EXPERTS},
    {"model_type": "gemma3_text", "sliding_window": 8, "sliding_window_pattern": 2, **SMALL},
    {
        "model_type": "gpt_oss",
        "num_experts_per_tok": 3,
        "num_local_experts": 8,
        "sliding_window": 8,
        **SMALL,
    },
    {
        "model_type": "llama4_text",
        "attention_chunk_size": 8,
        "intermediate_size_mlp": 112,
        "num_experts_per_tok": 1,
        "num_local_experts": 1,  # transformers runs every token through all of them
        **SMALL,
    },
    {
        "model_type": "deepseek_v3",
        "first_k_dense_replace": 1,
        "kv_lora_rank": 32,
        "n_group": 2,
        "n_routed_experts": 8,
        "n_shared_experts": 1,
        "q_lora_rank": 48,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8,
        "topk_group": 1,
        "v_head_dim": 20,
        **EXPERTS,
        "head_dim": 8,
        "num_key_value_heads": 4,
    },
]


def built(config: Config, device: str = "cpu") -> Any:
    text = dict(config.get("text_config", config))
    made = transformers.AutoConfig.for_model(text.pop("model_type"), **text)
    with torch.device(device):
        return transformers.AutoModelForCausalLM.from_config(
            made, attn_implementation="eager", experts_implementation="eager"
        ).eval()


@pytest.mark.parametrize("name", BUILT)
def test_weights_are_those_of_the_model(name: str) -> None:
    config = BUILT[name]
    counted = sum(
        parameter.numel()
        for key, parameter in built(config, "meta").named_parameters()
        if parameter.ndim > 1 and not key.endswith(VECTORS)
    )
    found = num_params(Architecture.from_config(config))
    assert found.total == counted - LEARNED_POSITIONS.get(config["model_type"], 0)


class Counted:
    """FLOPs of a run with `new` tokens behind `context`, by torch's counter, and the weights that
    the attention gave: per layer (1, heads, new, keys)."""

    def __init__(self, config: Config, new: int, context: int) -> None:
        from torch.utils.flop_counter import FlopCounterMode

        torch.manual_seed(0)
        model = built(config)
        cache = transformers.DynamicCache(config=model.config)
        ids = torch.randint(1, 100, (1, context + new))
        with torch.no_grad():
            if context:
                model(ids[:, :context], past_key_values=cache)
            with FlopCounterMode(display=False) as counter:
                ran = model(
                    ids[:, context:],
                    past_key_values=cache,
                    logits_to_keep=1,
                    output_attentions=True,
                )
        counts = {
            name: sum(operations.values()) for name, operations in counter.get_flop_counts().items()
        }
        products = {
            name: operations.get(torch.ops.aten.bmm, 0)
            for name, operations in counter.get_flop_counts().items()
        }
        self.lm_head = sum(flops for name, flops in counts.items() if name.endswith("lm_head"))
        self.square = sum(flops for name, flops in products.items() if name.endswith("self_attn"))
        rotary = sum(flops for name, flops in counts.items() if name.endswith("rotary_emb"))
        self.linear = counts["Global"] - self.lm_head - self.square - rotary
        self.attentions = ran.attentions


@pytest.mark.parametrize("config", RUN, ids=lambda config: config["model_type"])
@pytest.mark.parametrize(("new", "context"), [(20, 0), (7, 12)])
def test_work_is_that_of_a_run(config: Config, new: int, context: int) -> None:
    counted = Counted(config, new, context)
    arch = Architecture.from_config(config)
    found = prefill_work(arch, new, context)
    assert found.linear_flops == counted.linear
    assert found.lm_head_flops == counted.lm_head

    sizes = [
        mixer.qk_nope_head_dim + mixer.qk_rope_head_dim + mixer.v_head_dim
        if isinstance(mixer, Latent)
        else mixer.head_dim + mixer.v_head_dim
        for mixer in (layer.mixer for layer in arch.layers)
    ]
    pairs = [int(torch.count_nonzero(weights)) for weights in counted.attentions]
    square = [weights.numel() for weights in counted.attentions]
    assert found.attention_flops == sum(2 * n * size for n, size in zip(pairs, sizes, strict=True))
    assert counted.square == sum(2 * n * size for n, size in zip(square, sizes, strict=True))
    assert found.attention_flops < counted.square


def test_absorbed_attention_is_that_of_its_products() -> None:
    """Written out on the meta device: queries into the latent, attention there, values out."""
    from torch.utils.flop_counter import FlopCounterMode

    config = RUN[-1]
    arch = Architecture.from_config(config)
    new, context = 1, 30
    num_heads, rank, nope, rotated, values = 4, 32, 16, 8, 20
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        queries = torch.empty(num_heads, new, nope) @ torch.empty(num_heads, nope, rank)
        queries = torch.cat([queries, torch.empty(num_heads, new, rotated)], dim=-1)
        into = counter.get_total_flops()
        scores = queries @ torch.empty(num_heads, rank + rotated, context + new)
        mixed = scores @ torch.empty(num_heads, context + new, rank)
        attended = counter.get_total_flops() - into
        _ = mixed @ torch.empty(num_heads, rank, values)
        around = counter.get_total_flops() - attended
    found = prefill_work(arch, new, context)
    assert found.attention_flops == 4 * attended
    naive = prefill_work(arch, new, context, max_absorbed_tokens=0)
    assert naive.linear_flops - found.linear_flops == 4 * around * context
