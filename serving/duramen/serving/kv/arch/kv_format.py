"""The format of keys and values that a quantised checkpoint asks for.

Read as vLLM 0.32 reads it (utils/torch_utils.py, model_executor/layers/attention/attention.py).
"""

from duramen.serving.kv.arch.fields import Fields

_FORMATS = {"fp8": "fp8_e4m3", "nvfp4": "nvfp4"}  # ModelOpt's names, and vLLM's


def kv_format_of(fields: Fields) -> str | None:
    """As vLLM names it; None where the checkpoint asks for none. Raises ModelError for one that
    vLLM refuses."""
    config = fields.section("quantization_config")
    method = (config and config.text("quant_method")) or ""
    if config is None or not method.startswith(("compressed-tensors", "modelopt")):
        return None
    if method.startswith("modelopt"):
        return _of_modelopt(config)
    scheme = config.section("kv_cache_scheme")
    if scheme is None:
        return None
    if (scheme.get("type"), scheme.get("num_bits")) != ("float", 8):
        raise fields.wrong("kv_cache_scheme is not of 8-bit floats, all that vLLM takes")
    return None if fields.optional_count("kv_lora_rank") else "fp8"  # latents do not heed it


def _of_modelopt(config: Fields) -> str | None:
    parts = (config.section("quantization") or config, config)
    values = [part.get(key) for key in ("kv_cache_scheme", "kv_cache_quant_algo") for part in parts]
    found = next(filter(None, values), None)
    if isinstance(found, dict):
        bits = found.get("num_bits") if found.get("type") == "float" else None
        is_static = found.get("dynamic") is False
        found = "nvfp4" if bits == 4 else "fp8" if bits == 8 and is_static else None
    return _FORMATS.get(str(found).lower())
