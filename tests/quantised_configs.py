"""quantization_config of published checkpoints, and what ModelOpt's say of the cache."""

from model_configs import Config

FP8: Config = {  # DeepSeek V3
    "quant_method": "fp8",
    "fmt": "e4m3",
    "activation_scheme": "dynamic",
    "weight_block_size": [128, 128],
}
MXFP4: Config = {  # gpt-oss
    "quant_method": "mxfp4",
    "modules_to_not_convert": [
        "model.layers.*.self_attn",
        "model.layers.*.mlp.router",
        "model.embed_tokens",
        "lm_head",
    ],
}
FLOAT_8: Config = {
    "num_bits": 8,
    "type": "float",
    "dynamic": False,
    "strategy": "tensor",
    "symmetric": True,
}
KV_FORMATS_OF_MODELOPT: list[tuple[Config, str | None]] = [
    ({"quant_method": "modelopt", **config}, kv_format)
    for config, kv_format in (
        ({}, None),
        ({"kv_cache_quant_algo": "FP8"}, "fp8_e4m3"),
        ({"kv_cache_quant_algo": "NVFP4"}, "nvfp4"),
        ({"kv_cache_quant_algo": "INT8"}, None),
        ({"kv_cache_scheme": FLOAT_8}, "fp8_e4m3"),
        ({"kv_cache_scheme": {**FLOAT_8, "dynamic": True}}, None),
        ({"kv_cache_scheme": {**FLOAT_8, "num_bits": 4}}, "nvfp4"),
        ({"kv_cache_scheme": {**FLOAT_8, "type": "int"}}, None),
        ({"kv_cache_scheme": FLOAT_8, "kv_cache_quant_algo": "NVFP4"}, "fp8_e4m3"),
        ({"quantization": {"kv_cache_quant_algo": "FP8"}}, "fp8_e4m3"),
        (
            {"quantization": {"kv_cache_quant_algo": "NVFP4"}, "kv_cache_scheme": FLOAT_8},
            "fp8_e4m3",
        ),
    )
]
