"""What kind each layer is: which attention, which window, or a state.

Model families say it in their own ways: a list, a period, indices, a pattern of letters. Read as
transformers' configuration classes and vLLM 0.32's models read them.
"""

from collections.abc import Callable
from enum import StrEnum

from duramen.serving.kv.arch.fields import Fields


class Kind(StrEnum):
    FULL = "full"
    WINDOW = "window"
    CHUNK = "chunk"
    INDEXED = "attention to what an indexer picks"
    STATE = "state"
    BESIDE = "attention beside a state"
    MLP = "mlp alone"
    EXPERTS = "experts alone"


_NAMES = {
    "full_attention": Kind.FULL,
    "attention": Kind.FULL,
    "sliding_attention": Kind.WINDOW,
    "chunked_attention": Kind.CHUNK,
    "indexed_attention": Kind.INDEXED,
    "deepseek_sparse_attention": Kind.INDEXED,
    "linear_attention": Kind.STATE,
    "mamba": Kind.STATE,
    "conv": Kind.STATE,
    "mlp": Kind.MLP,
    "moe": Kind.EXPERTS,
}
_MOST_LAYERS = 10_000
_LETTERS = {"M": Kind.STATE, "*": Kind.FULL, "-": Kind.MLP, "E": Kind.EXPERTS}
_LAST_GLOBAL = {  # every so many-th layer is global, where the config does not say
    "cohere2": 4,
    "cohere_compass_text": 1,
    "exaone4": 4,
    "gemma2": 2,
    "gemma3_text": 6,
    "gemma3n_text": 5,
    "gpt_oss": 2,
    "mellum": 1,
    "olmo3": 4,
    "vaultgemma": 2,
}
_FIRST_GLOBAL = {"cwm": 4, "granite_swa": 4, "granitemoe_swa": 4}  # and the first of all
_BESIDE_ITSELF = ("cohere2",)  # families whose window counts the tokens before the one at hand
_OFF_BY_DEFAULT = ("qwen2", "qwen3")  # families that use their window only when told to


def kinds_of(fields: Fields, num_layers: int) -> list[Kind]:
    """One for each layer. Raises ModelError for a kind that is not known."""
    read = _FAMILIES.get(fields.model_type)
    if read is not None:
        return read(fields, num_layers)
    listed = _listed(fields, "layer_types", num_layers)
    if listed is not None:
        return listed
    if 0 in (fields.items("attn_type_list", int) or ()):
        raise fields.wrong("attn_type_list names linear attention, not known for this model_type")
    return _windows(fields, num_layers)


def window_tokens(fields: Fields) -> int | None:
    """A token itself included; None where there is none, or it is switched off."""
    is_off_by_default = fields.model_type.startswith(_OFF_BY_DEFAULT)
    if not fields.flag("use_sliding_window", default=not is_off_by_default):
        return None
    window = fields.optional_count("sliding_window") or None
    if window is not None and fields.model_type.startswith(_BESIDE_ITSELF):
        window += 1
    return window


def num_layers_of(fields: Fields) -> int:
    """Nemotron-H gives them as a pattern or a list, too."""
    if pattern := fields.text("hybrid_override_pattern"):
        return len(pattern)
    blocks = fields.items("layers_block_type", str)
    if blocks and fields.get("num_hidden_layers") is None:
        return len(blocks)
    num_layers = fields.count("num_hidden_layers", "n_layer", "n_layers", "num_layers")
    if num_layers > _MOST_LAYERS:
        raise fields.wrong(f"{num_layers:,} layers are more than {_MOST_LAYERS:,}")
    return num_layers


def _listed(fields: Fields, key: str, num_layers: int) -> list[Kind] | None:
    names = fields.per_layer(key, str, num_layers)
    if names is None:
        return None
    for name in names:
        if name not in _NAMES:
            raise fields.wrong(f"{key} names {name!r}, a kind of layer that is not known")
    return [_NAMES[name] for name in names]


def _windows(fields: Fields, num_layers: int) -> list[Kind]:
    if window_tokens(fields) is None:
        return [Kind.FULL] * num_layers
    pattern = fields.get("sliding_window_pattern")
    if isinstance(pattern, str) and set(pattern) <= {"L", "G"} and pattern:
        letters = (pattern * num_layers)[:num_layers]
        return [Kind.WINDOW if letter == "L" else Kind.FULL for letter in letters]
    period = fields.optional_count("sliding_window_pattern", "global_attn_every_n_layers")
    offset = 0 if fields.model_type in _FIRST_GLOBAL else 1
    if period is None:
        period = (_LAST_GLOBAL | _FIRST_GLOBAL).get(fields.model_type)
    if period:
        return [Kind.WINDOW if (i + offset) % period else Kind.FULL for i in range(num_layers)]
    first = fields.optional_count("max_window_layers")
    if first is None:
        first = 28 if fields.model_type.startswith(_OFF_BY_DEFAULT) else 0
    return [Kind.WINDOW if i >= first else Kind.FULL for i in range(num_layers)]


def _jamba(fields: Fields, num_layers: int) -> list[Kind]:
    period, offset = fields.count("attn_layer_period"), fields.optional_count("attn_layer_offset")
    if offset is None:
        raise fields.wrong("attn_layer_offset is missing")
    return [Kind.FULL if i % period == offset else Kind.STATE for i in range(num_layers)]


def _bamba(fields: Fields, num_layers: int) -> list[Kind]:
    return _full_at(fields, "attn_layer_indices", num_layers)


def _lfm2(fields: Fields, num_layers: int) -> list[Kind]:
    listed = _listed(fields, "layer_types", num_layers)
    return listed or _full_at(fields, "full_attn_idxs", num_layers)


def _full_at(fields: Fields, key: str, num_layers: int) -> list[Kind]:
    indices = fields.items(key, int)
    if indices is None:
        raise fields.wrong(f"{key} is missing")
    return [Kind.FULL if i in indices else Kind.STATE for i in range(num_layers)]


def _granite_hybrid(fields: Fields, num_layers: int) -> list[Kind]:
    for key in ("layer_types", "layers_block_type"):
        if listed := _listed(fields, key, num_layers):
            return listed
    raise fields.wrong("layer_types is missing")


def _nemotron_h(fields: Fields, num_layers: int) -> list[Kind]:
    pattern = fields.text("hybrid_override_pattern")
    if not pattern:
        return _granite_hybrid(fields, num_layers)
    if not set(pattern) <= set(_LETTERS):
        raise fields.wrong(f"hybrid_override_pattern is {pattern!r}, not letters of M * - E")
    return [_LETTERS[letter] for letter in pattern]


def _qwen_hybrid(fields: Fields, num_layers: int) -> list[Kind]:
    if listed := _listed(fields, "layer_types", num_layers):
        return listed
    period = fields.optional_count("full_attention_interval") or 4
    return [Kind.STATE if (i + 1) % period else Kind.FULL for i in range(num_layers)]


def _minimax(fields: Fields, num_layers: int) -> list[Kind]:
    if listed := _listed(fields, "layer_types", num_layers):
        return listed
    types = fields.per_layer("attn_type_list", int, num_layers)
    if types is None:
        raise fields.wrong("attn_type_list is missing")
    return [Kind.FULL if each else Kind.STATE for each in types]


def _kimi_linear(fields: Fields, num_layers: int) -> list[Kind]:
    linear = fields.section("linear_attn_config")
    if linear is None:
        if listed := _listed(fields, "layer_types", num_layers):
            return listed
        raise fields.wrong("linear_attn_config is missing")
    full = linear.items("full_attn_layers", int)
    if full is None:
        raise fields.wrong("linear_attn_config.full_attn_layers is missing")
    return [Kind.FULL if i + 1 in full else Kind.STATE for i in range(num_layers)]


def _llama4(fields: Fields, num_layers: int) -> list[Kind]:
    if listed := _listed(fields, "layer_types", num_layers):
        return listed
    if not fields.optional_count("attention_chunk_size"):
        return [Kind.FULL] * num_layers
    ropes = fields.get("no_rope_layers")
    if ropes:
        ropes = fields.per_layer("no_rope_layers", int, num_layers)
    else:
        period = fields.count("no_rope_layer_interval")
        ropes = [(i + 1) % period for i in range(num_layers)]
    return [Kind.CHUNK if rope else Kind.FULL for rope in ropes]


def _all(kind: Kind) -> Callable[[Fields, int], list[Kind]]:
    return lambda fields, num_layers: [kind] * num_layers


_FAMILIES: dict[str, Callable[[Fields, int], list[Kind]]] = {
    "bamba": _bamba,
    "falcon_h1": _all(Kind.BESIDE),
    "falcon_mamba": _all(Kind.STATE),
    "granitemoehybrid": _granite_hybrid,
    "jamba": _jamba,
    "kimi_linear": _kimi_linear,
    "lfm2": _lfm2,
    "lfm2_moe": _lfm2,
    "llama4_text": _llama4,
    "mamba": _all(Kind.STATE),
    "mamba2": _all(Kind.STATE),
    "minimax": _minimax,
    "minimax_m1": _minimax,
    "minimax_text_01": _minimax,
    "nemotron_h": _nemotron_h,
    "olmo_hybrid": _qwen_hybrid,
    "qwen3_5_moe_text": _qwen_hybrid,
    "qwen3_5_text": _qwen_hybrid,
    "qwen3_next": _qwen_hybrid,
}
