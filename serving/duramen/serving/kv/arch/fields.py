"""Strict reading of config.json: a key is there in the expected form, or an error names it.

The text part counts where a config nests it (models that see or hear). What is neither there nor,
as far as it may be, outside it falls back to what the model's configuration class in transformers
assumes.
"""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from duramen.layout.errors import ModelError
from duramen.serving.kv.arch.layers import DTYPE_BYTES

_NESTED = ("thinker_config", "text_config", "llm_config", "language_config")
_SHARED = (  # what a text part may leave to the whole around it
    "dtype",
    "is_encoder_decoder",
    "quantization_config",
    "tie_word_embeddings",
    "torch_dtype",
    "vocab_size",
)
_SHOWN_CHARS = 60  # of a value, in an error
_TIED = (
    "bloom",
    "cohere",
    "cohere2",
    "cohere2_moe",
    "cohere_compass_text",
    "ernie4_5",
    "ernie4_5_moe",
    "falcon",
    "falcon_mamba",
    "gemma",
    "gemma2",
    "gemma3_text",
    "gemma3n_text",
    "gpt2",
    "gpt_bigcode",
    "granite_swa",
    "hunyuan_vl_text",
    "jetmoe",
    "lfm2",
    "lfm2_moe",
    "mamba",
    "opt",
    "paddleocr_vl_text",
    "qwen2_5_omni_text",
    "qwen3_vl_moe_text",
    "smollm3",
    "starcoder2",
    "vaultgemma",
)
_HEAD_DIMS = {
    64: ("gpt_oss",),
    128: (
        "afmoe",
        "cohere2_moe",
        "cosmos3_edge_text",
        "cwm",
        "ernie4_5",
        "glm",
        "glm4",
        "helium",
        "higgs_audio_v2",
        "hy_v3",
        "jetmoe",
        "llama4_text",
        "mellum",
        "minimax_m2",
        "ministral3",
        "nemotron_h",
        "paddleocr_vl_text",
        "qwen2_5_omni_talker",
        "qwen3",
        "qwen3_omni_moe_talker_code_predictor",
        "qwen3_vl_text",
        "solar_open",
    ),
    256: (
        "gemma",
        "gemma2",
        "gemma3_text",
        "gemma3n_text",
        "qwen3_5_moe_text",
        "qwen3_5_text",
        "qwen3_next",
        "vaultgemma",
    ),
}
_DEFAULTS: dict[str, dict[str, Any]] = {  # only what published configs leave out
    "cohere2": {"sliding_window": 4096},
    "dots1": {"max_window_layers": 62},
    "falcon": {"multi_query": True},
    "gemma2": {"sliding_window": 4096},
    "gemma3_text": {
        "vocab_size": 262_208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "sliding_window": 4096,
    },
    "gemma3n_text": {"sliding_window": 512, "num_kv_shared_layers": 15},
    "gpt_bigcode": {"multi_query": True},
    "gpt_oss": {"sliding_window": 128},
    "kyutai_speech_to_text": {"sliding_window": 375},
    "llama4_text": {"attention_chunk_size": 8192, "no_rope_layer_interval": 4},
    "mistral": {"sliding_window": 4096},
    "voxtral_realtime_text": {"sliding_window": 4096},
}


class Fields:
    """`model_type`: of the text model. Every method raises ModelError naming the keys it looked
    for; where several are given, the first that is there and not null counts."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        inner = config
        around: list[Mapping[str, Any]] = []
        while nested := next((inner[k] for k in _NESTED if isinstance(inner.get(k), dict)), None):
            around.insert(0, inner)
            inner = nested
        self.model_type = _model_type([inner, *around])
        shared = [{key: each[key] for key in _SHARED if key in each} for each in around]
        self._levels = (inner, *shared, _defaults(self.model_type))

    def has(self, key: str) -> bool:
        """Whether it is there, be it null."""
        return any(key in level for level in self._levels)

    def get(self, *keys: str) -> Any:
        """The value as it stands; None where no key is there."""
        for level in self._levels:
            for key in keys:
                if key in level:
                    if level[key] is None and len(keys) > 1:
                        continue
                    return level[key]
        return None

    def own_keys(self) -> list[str]:
        """Of the text model's own part, but for those that are null or empty."""
        return [key for key, value in self._levels[0].items() if value]

    def count(self, *keys: str) -> int:
        """A whole number of at least 1."""
        found = self.optional_count(*keys)
        if not found:
            raise self.wrong(f"{' or '.join(keys)} is missing")
        return found

    def optional_count(self, *keys: str) -> int | None:
        """A whole number of at least 0; None where there is none or null."""
        found = self.get(*keys)
        if found is None:
            return None
        if not isinstance(found, int) or isinstance(found, bool) or found < 0:
            raise self.wrong(f"{' or '.join(keys)} is {_shown(found)}, not a whole number")
        return found

    def flag(self, key: str, default: bool = False) -> bool:
        found = self.get(key)
        if found is None:
            return default
        if not isinstance(found, bool):
            raise self.wrong(f"{key} is {_shown(found)}, neither true nor false")
        return found

    def text(self, *keys: str) -> str | None:
        found = self.get(*keys)
        if found is None:
            return None
        if not isinstance(found, str):
            raise self.wrong(f"{' or '.join(keys)} is {_shown(found)}, no text")
        return found

    def number(self, key: str) -> float | None:
        """Positive and finite."""
        found = self.get(key)
        if found is None:
            return None
        if not isinstance(found, int | float) or isinstance(found, bool) or not 0 < found < inf:
            raise self.wrong(f"{key} is {_shown(found)}, not a positive number")
        return found

    def dtype(self, *keys: str) -> str | None:
        """A floating-point type, as torch names it."""
        found = self.text(*keys)
        if found is None or found in DTYPE_BYTES:
            return found
        raise self.wrong(
            f"{' or '.join(keys)} is {_shown(found)}, none of {', '.join(DTYPE_BYTES)}"
        )

    def items(self, key: str, kind: type[str] | type[int]) -> Sequence[Any] | None:
        """A list of strings or whole numbers; None where there is none or null."""
        found = self.get(key)
        if found is None:
            return None
        if not isinstance(found, list) or any(type(item) is not kind for item in found):
            raise self.wrong(f"{key} is no list of {kind.__name__}")
        return found

    def per_layer(self, key: str, kind: type[str] | type[int], num: int) -> Sequence[Any] | None:
        """As `items`, one for each layer."""
        found = self.items(key, kind)
        if found is not None and len(found) != num:
            raise self.wrong(f"{key} lists {len(found)} layers, not {num}")
        return found

    def section(self, key: str) -> "Fields | None":
        """A nested object, read by the same rules."""
        found = self.get(key)
        return None if found is None else self._nested(key, found)

    def sections(self, key: str) -> "list[Fields]":
        """The objects in a nested object, whatever their names."""
        found = self.get(key)
        if found is None:
            return []
        if not isinstance(found, dict):
            raise self.wrong(f"{key} is no object")
        return [self._nested(f"{key}.{name}", each) for name, each in found.items()]

    def _nested(self, key: str, found: object) -> "Fields":
        if not isinstance(found, dict):
            raise self.wrong(f"{key} is no object")
        return Fields({"model_type": self.model_type, **found})

    def head_size(self, width: int, num_heads: int) -> int:
        """Of heads that share `width` evenly, where the config gives no head_dim."""
        if width % num_heads:
            raise self.wrong(f"no head_dim is given, and {num_heads} heads do not divide {width}")
        return width // num_heads

    def wrong(self, what: str) -> ModelError:
        return ModelError(f"config.json ({self.model_type}): {what}")


def _model_type(levels: Sequence[Mapping[str, Any]]) -> str:
    found = next((level["model_type"] for level in levels if "model_type" in level), None)
    if isinstance(found, str) and found.isprintable() and found:
        return found
    raise ModelError("config.json: model_type is missing, or no word")


def _defaults(model_type: str) -> dict[str, Any]:
    """What the model's configuration class in transformers assumes."""
    found = dict(_DEFAULTS.get(model_type, {}))
    if model_type in _TIED:
        found["tie_word_embeddings"] = True
    head_dim = next((size for size, names in _HEAD_DIMS.items() if model_type in names), None)
    return found if head_dim is None else {**found, "head_dim": head_dim}


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."
