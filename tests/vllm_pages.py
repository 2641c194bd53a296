"""What vLLM itself makes of models' configs, as JSON: pages, groups and blocks, without weights.

Run as a script, in a process of its own: standard input holds a list of {"config", "block_size",
"kv_dtype"}, standard output gets one result for each, {"error"} where vLLM refuses it. The layers
are built on torch's meta device, so that models of any size do.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

POOL_BYTES = 64 * 2**30
MAX_MODEL_LEN = 8192
SPARSE_BACKEND = "vllm.v1.attention.backends.mla.xpu_mla_sparse.XPUMLASparseBackend"

os.environ.update(
    HF_HUB_OFFLINE="1",
    VLLM_NO_USAGE_STATS="1",
    DO_NOT_TRACK="1",
    VLLM_LOGGING_LEVEL="ERROR",
    VLLM_CPU_KVCACHE_SPACE="1",
)


def main() -> None:
    requests = json.load(sys.stdin)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what vLLM prints is no answer
    forget_the_cpu()
    start_distributed()
    json.dump([answer(request) for request in requests], answers)
    answers.close()


def forget_the_cpu() -> None:
    """What kind of CPU this is decides of the states' dtype and the latents' block, and of neither
    on GPUs; and no CPU has sparse attention. No kernel runs here, so any answer is as good."""
    import torch
    from vllm.platforms.cpu import CpuPlatform

    torch.cpu._is_avx512_bf16_supported = lambda: False
    torch.cpu._is_amx_tile_supported = lambda: True
    backend_of = CpuPlatform.get_attn_backend_cls

    def with_sparse(backend: Any, attn_selector_config: Any, **others: Any) -> str:
        if attn_selector_config.use_sparse:
            return SPARSE_BACKEND
        found: str = backend_of(backend, attn_selector_config, **others)
        return found

    CpuPlatform.get_attn_backend_cls = staticmethod(with_sparse)


def start_distributed() -> None:
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.distributed import init_distributed_environment, initialize_model_parallel

    with tempfile.NamedTemporaryFile() as store, set_current_vllm_config(VllmConfig()):
        init_distributed_environment(1, 0, f"file://{store.name}", 0, "gloo")
        initialize_model_parallel(1, 1)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(request["config"]))
        try:
            return pages(folder, request["block_size"], request["kv_dtype"])
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"}


def pages(folder: str, block_size: int, kv_dtype: str) -> dict[str, Any]:
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.platforms import current_platform
    from vllm.utils.torch_utils import set_default_torch_dtype
    from vllm.v1.attention.backends.utils import resolve_kv_cache_layout
    from vllm.v1.core import kv_cache_utils
    from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs
    from vllm.v1.worker.gpu.attn_utils import get_kv_cache_spec

    config = EngineArgs(
        model=folder,
        skip_tokenizer_init=True,
        enforce_eager=True,
        block_size=block_size,
        kv_cache_dtype=kv_dtype,
        max_model_len=MAX_MODEL_LEN,
        enable_prefix_caching=True,
    ).create_engine_config()
    with set_current_vllm_config(config), set_default_torch_dtype(config.model_config.dtype):
        with torch.device("meta"):
            initialize_model(config)
        current_platform.update_block_size_for_backend(config)
        specs = get_kv_cache_spec(config)
    register_all_kvcache_specs(config)
    resolve_kv_cache_layout(config, [["LBHNC"]], specs.values())
    [made] = kv_cache_utils.get_kv_cache_configs(config, [specs], [POOL_BYTES])
    scheduler_block, hash_block = kv_cache_utils.resolve_kv_cache_block_sizes(made, config)
    return {
        "layers": {name: layer(spec) for name, spec in specs.items()},
        "groups": [
            {"num_layers": len(group.layer_names), **layer(group.kv_cache_spec)}
            for group in made.kv_cache_groups
        ],
        "num_blocks": made.num_blocks,
        "unit_tokens": kv_cache_utils.resolve_cache_hit_alignment_tokens(
            made, config, scheduler_block, hash_block
        ),
    }


def layer(spec: Any) -> dict[str, Any]:
    """`content_bytes`: the page without padding; None where layers of several sizes are one."""
    return {
        "block_tokens": spec.block_size,
        "page_bytes": spec.page_size_bytes,
        "content_bytes": getattr(spec, "real_page_size_bytes", None),
        "window_tokens": getattr(spec, "sliding_window", None)
        or getattr(spec, "attention_chunk_size", None),
    }


if __name__ == "__main__":
    main()
