"""Writes a Llama checkpoint that transformers and vLLM load: out of a GGUF, or random.

Weights go out as bf16 without torch. GGUF names and llama.cpp's order of rotary rows are undone
(convert_hf_to_gguf.py in llama.cpp is the other direction).
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from duramen.layout.errors import ModelError

Tensors = Iterator[tuple[str, NDArray[np.float32]]]

INSTALL = "pip install '.[model]' in a checkout of Duramen"
NUM_ADDED_TOKENS = 17  # ids 0..16 of SmolLM2's vocabulary are control tokens
LAYER_TENSORS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def convert_gguf(gguf_file: Path, directory: Path) -> None:
    """Write config, bf16 weights and tokenizer of SmolLM2-135M out of its GGUF."""
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise ModelError(f"converting the model needs gguf: {INSTALL}") from error
    reader = GGUFReader(str(gguf_file))
    config = llama_config(layers=30, hidden=576, heads=9, kv_heads=3)
    _write_safetensors(directory / "model.safetensors", _gguf_tensors(reader, config))
    write_json(directory / "config.json", config)
    write_json(directory / "generation_config.json", {"bos_token_id": 1, "eos_token_id": 2})
    _write_tokenizer(
        directory,
        reader.fields["tokenizer.ggml.tokens"].contents(),
        reader.fields["tokenizer.ggml.merges"].contents(),
    )


def llama_config(layers: int, hidden: int, heads: int, kv_heads: int) -> dict[str, Any]:
    """SmolLM2-135M's config.json, of the given size."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 49_152,
        "hidden_size": hidden,
        "intermediate_size": 1536,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": 8192,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 100_000.0,
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 2,
        "torch_dtype": "bfloat16",
    }


def write_random(directory: Path, config: Mapping[str, Any]) -> None:
    """Write `config` and random weights that fit it, the same ones every time."""
    write_json(directory / "config.json", config)
    _write_safetensors(directory / "model.safetensors", _random_tensors(config))


def write_json(file: Path, value: Mapping[str, Any]) -> None:
    file.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def _gguf_tensors(reader: Any, config: Mapping[str, Any]) -> Tensors:
    """Tensors under their Hugging Face names; shapes [out, in], as torch's Linear wants them."""
    from gguf.quants import dequantize

    num_heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    outer = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
    for tensor in reader.tensors:
        name = tensor.name.removesuffix(".weight")
        values = dequantize(tensor.data, tensor.tensor_type)
        if name in outer:
            yield f"{outer[name]}.weight", values
            continue
        _, layer, part = name.split(".")
        if part in num_heads:
            values = _unpermute(values, num_heads[part])
        yield f"model.layers.{layer}.{LAYER_TENSORS[part]}.weight", values


def _unpermute(values: NDArray[np.float32], num_heads: int) -> NDArray[np.float32]:
    """Undo llama.cpp's rotary row order: pairs (i, i + half) were put next to each other."""
    rows, columns = values.shape
    pairs = values.reshape(num_heads, rows // num_heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def _random_tensors(config: Mapping[str, Any]) -> Tensors:
    random = np.random.default_rng(0)
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    kv = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    shapes = {"attn_k": (kv, hidden), "attn_v": (kv, hidden), "ffn_down": (hidden, inner)}
    shapes |= {"ffn_gate": (inner, hidden), "ffn_up": (inner, hidden)}
    embedding = random.normal(0, 0.05, (config["vocab_size"], hidden))
    yield "model.embed_tokens.weight", embedding.astype(np.float32)
    yield "model.norm.weight", np.ones(hidden, np.float32)
    for layer in range(config["num_hidden_layers"]):
        for part, name in LAYER_TENSORS.items():
            shape = shapes.get(part, (hidden, hidden))
            values = random.normal(0, 0.05, shape) if "norm" not in part else np.ones(hidden)
            yield f"model.layers.{layer}.{name}.weight", values.astype(np.float32)


def _write_safetensors(file: Path, tensors: Tensors) -> None:
    """Write bf16 tensors; their buffers stay referenced until the file is written."""
    try:
        from safetensors import TensorSpec, serialize_file
    except ImportError as error:
        raise ModelError(f"writing a model needs safetensors: {INSTALL}") from error
    buffers = {name: _to_bf16(values) for name, values in tensors}
    specs = {
        name: TensorSpec(
            dtype="bfloat16", shape=bits.shape, data_ptr=bits.ctypes.data, data_len=bits.nbytes
        )
        for name, bits in buffers.items()
    }
    serialize_file(specs, str(file), {"format": "pt"})
    file.chmod(0o644)  # it writes for the owner alone


def _to_bf16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Round to the nearest bf16, ties to even: bf16 is the upper half of a float32."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def _write_tokenizer(directory: Path, tokens: list[str], merges: list[str]) -> None:
    """Byte-level BPE that splits digits one by one, which is what GGUF calls "smollm"."""
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = [AddedToken(token, special=True) for token in tokens[:NUM_ADDED_TOKENS]]
    tokenizer.add_special_tokens(control)
    tokenizer.save(str(directory / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "pad_token": "<|im_end|>",
        "unk_token": "<|endoftext|>",
        "clean_up_tokenization_spaces": False,
        "model_max_length": 8192,
    }
    write_json(directory / "tokenizer_config.json", settings)
