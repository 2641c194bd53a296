"""Strict reading of config.json: a key is there in the expected form, or an error names it.

The text part counts where a config nests it (models that see or hear). What is neither there
nor outside it falls back to what the model's configuration class in transformers assumes.
"""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from duramen.layout.errors import ModelError
from duramen.serving.kv.arch.layers import DTYPE_BYTES

_NESTED = ("thinker_config", "text_config", "llm_config", "language_config")
_SHOWN_CHARS = 60  # of a value, in an error
_GEMMA = {"head_dim": 256, "tie_word_embeddings": True}
_TIED = {"tie_word_embeddings": True}
_DEFAULTS: dict[str, dict[str, Any]] = {  # only what published configs leave out
    "cohere": _TIED,
    "cohere2": {"sliding_window": 4096, **_TIED},
    "falcon": _TIED,
    "gemma": _GEMMA,
    "gemma2": {"sliding_window": 4096, **_GEMMA},
    "gemma3_text": {
        "vocab_size": 262_208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "sliding_window": 4096,
        **_GEMMA,
    },
    "gemma3n_text": {"sliding_window": 512, "num_kv_shared_layers": 15, **_GEMMA},
    "ernie4_5": {"head_dim": 128},
    "gpt2": _TIED,
    "gpt_bigcode": _TIED,
    "gpt_oss": {"head_dim": 64, "sliding_window": 128},
    "hy_v3": {"head_dim": 128},
    "lfm2": _TIED,
    "lfm2_moe": _TIED,
    "llama4_text": {"attention_chunk_size": 8192, "no_rope_layer_interval": 4},
    "mamba": _TIED,
    "minimax_m2": {"head_dim": 128},
    "mistral": {"sliding_window": 4096},
    "opt": _TIED,
    "qwen3": {"head_dim": 128},
    "qwen3_5_moe_text": {"head_dim": 256},
    "qwen3_5_text": {"head_dim": 256},
    "qwen3_next": {"head_dim": 256},
    "smollm3": _TIED,
    "solar_open": {"head_dim": 128},
    "starcoder2": _TIED,
}


class Fields:
    """`model_type`: of the text model. Every method raises ModelError naming the keys it looked
    for; where several are given, the first that is there and not null counts."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        inner = config
        levels = [config]
        while nested := next((inner[k] for k in _NESTED if isinstance(inner.get(k), dict)), None):
            inner = nested
            levels.append(inner)
        self._levels = tuple(reversed(levels))
        self.model_type = self._model_type()
        self._levels += (_DEFAULTS.get(self.model_type, {}),)

    def _model_type(self) -> str:
        found = next((level["model_type"] for level in self._levels if "model_type" in level), None)
        if isinstance(found, str) and found.isprintable() and found:
            return found
        raise ModelError("config.json: model_type is missing, or no word")

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
        if found is None:
            return None
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


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."
