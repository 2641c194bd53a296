"""What a device does per second at a model's own shapes: copies, matrix products, attention.

Imports torch, and on a GPU takes memory there: run it in a process of its own, as conditions.py
does.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from duramen.kernels.device_probe import AttentionShape, GemmShape, probe_device
from duramen.layout.tokenizer_files import read_json
from duramen.serving.kv.arch import Architecture, Attention, Latent, Mixer, Mlp

NUM_TOKENS = {"cpu": (1, 16, 256), "cuda": (1, 64, 2_048)}  # of a step: one, a batch, a chunk
NEW_AND_CONTEXT = {
    "cpu": ((256, 0), (64, 1_024), (1, 1_024)),
    "cuda": ((2_048, 0), (2_048, 30_720), (1, 8_192), (1, 32_768)),
}
NUM_REPEATS = {"cpu": 5, "cuda": 50}


def gemms_of(arch: Architecture, num_tokens: int) -> Iterator[GemmShape]:
    """Of each weight that tokens go through; of an expert, with its share of the tokens.

    The projections of state-space and linear-attention layers are left out.
    """
    hidden = arch.hidden_size
    for layer in arch.layers:
        for k, n in weights_of(layer.mixer, hidden):
            yield GemmShape(num_tokens, k, n)
        if layer.mlp is not None:
            yield from gemms_of_mlp(layer.mlp, hidden, num_tokens)
    yield GemmShape(1, hidden, arch.vocab_size)


def weights_of(mixer: Mixer | None, hidden: int) -> Iterator[tuple[int, int]]:
    """Input and output width. Queries, keys and values are one weight, as engines have it."""
    if isinstance(mixer, Attention):
        kv_width = mixer.num_kv_heads * (mixer.head_dim + mixer.v_head_dim)
        yield hidden, mixer.num_heads * mixer.head_dim + kv_width
        yield mixer.num_heads * mixer.v_head_dim, hidden
    elif isinstance(mixer, Latent):
        q_width = mixer.num_heads * (mixer.qk_nope_head_dim + mixer.qk_rope_head_dim)
        if mixer.q_lora_rank is not None:
            yield hidden, mixer.q_lora_rank
        yield mixer.q_lora_rank or hidden, q_width
        yield hidden, mixer.kv_lora_rank + mixer.qk_rope_head_dim
        yield mixer.kv_lora_rank, mixer.num_heads * (mixer.qk_nope_head_dim + mixer.v_head_dim)
        yield mixer.num_heads * mixer.v_head_dim, hidden


def gemms_of_mlp(mlp: Mlp, hidden: int, num_tokens: int) -> Iterator[GemmShape]:
    num_up = 2 if mlp.is_gated else 1
    width, num_own = hidden, num_tokens
    if mlp.num_experts:
        width = mlp.latent_size or hidden
        num_own = -(-num_tokens * mlp.experts_per_token // mlp.num_experts)
    yield GemmShape(num_own, width, num_up * mlp.intermediate_size)
    yield GemmShape(num_own, mlp.intermediate_size, width)
    if mlp.shared_intermediate_size:
        yield GemmShape(num_tokens, hidden, num_up * mlp.shared_intermediate_size)
        yield GemmShape(num_tokens, mlp.shared_intermediate_size, hidden)


def attentions_of(arch: Architecture, device: str) -> Iterator[AttentionShape]:
    """Of layers with heads of one size for keys and values; torch has no kernel for others."""
    for layer in arch.layers:
        mixer = layer.mixer
        if isinstance(mixer, Attention) and mixer.head_dim == mixer.v_head_dim:
            for num_new, num_context in NEW_AND_CONTEXT[device]:
                yield AttentionShape(
                    mixer.num_heads, mixer.num_kv_heads, mixer.head_dim, num_new, num_context
                )


def probe(model_dir: Path, device: str) -> dict[str, Any]:
    arch = Architecture.from_config(read_json(model_dir / "config.json"))
    gemms = [each for num in NUM_TOKENS[device] for each in gemms_of(arch, num)]
    found = probe_device(
        [*dict.fromkeys(gemms)],
        [*dict.fromkeys(attentions_of(arch, device))],
        device=device,
        dtype=arch.dtype,
        num_repeats=NUM_REPEATS[device],
    )
    return {"model": model_dir.resolve().name} | found.as_fields()


if __name__ == "__main__":
    print(json.dumps(probe(Path(sys.argv[1]), sys.argv[2])))
