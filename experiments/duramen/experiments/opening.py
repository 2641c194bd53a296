"""Opens what a replay runs on: the cache model, a vLLM of ours, or one that runs already."""

import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from duramen.experiments.layouts.model import Model
from duramen.experiments.target import (
    LARGER_THAN_POOL,
    LONGER_THAN_CONTEXT,
    LiveTarget,
    ModelTarget,
    Target,
    num_pool_blocks,
)
from duramen.layout.errors import EngineError, ModelError
from duramen.layout.template import load_chat_template
from duramen.layout.tokenizer import Tokenizer
from duramen.layout.tokenizer_files import read_json
from duramen.serving.vllm.engine import attach, launch
from duramen.serving.vllm.facts import eos_token_ids
from duramen.serving.vllm.launch import VllmConfig, default_block_size
from duramen.serving.vllm.protocol import Sampling
from duramen.serving.vllm.version import installed_build

DEFAULT_UNIT = 16  # vLLM's block size on GPUs


@dataclass(frozen=True)
class Opening:
    """`model_dir` is None with an `upstream`. `unit` and `kv_tokens` None: the engine's own choice,
    in the cache model 16 and infinite. `open_loop`: calls do not wait for each other, whatever
    `concurrency` says."""

    tokenizer_dir: Path
    model_dir: Path | None
    chat_template: Path | None
    upstream: str | None
    port: int | None
    unit: int | None
    kv_tokens: int | None
    sampling: Sampling
    concurrency: int
    api_key: str | None = None  # of the upstream
    open_loop: bool = False


@dataclass(frozen=True)
class Opened:
    """`facts`: engine, model and unit_tokens, as results name them."""

    target: Target
    facts: dict[str, Any]


def load_model(
    tokenizer_dir: Path, chat_template: Path | None, *, independent_seams: bool = False
) -> Model:
    """Tokenizer, template and EOS ids of a model folder. Raises LayoutError or ModelError if files
    are amiss."""
    if not tokenizer_dir.is_dir():
        raise ModelError(f"{tokenizer_dir} is no folder: name the one with the model's files")
    template = load_chat_template(tokenizer_dir, chat_template)
    tokenizer = Tokenizer.load(tokenizer_dir, template.source)
    try:
        eos_ids = eos_token_ids(tokenizer_dir)
    except msgspec.DecodeError as error:
        raise ModelError(f"{tokenizer_dir}: a config file is broken JSON: {error}") from None
    return Model(tokenizer, template, frozenset(eos_ids), independent_seams)


def open_model(opening: Opening) -> Opened:
    """The cache model; its context is the model's own where the folder says it."""
    unit = opening.unit or DEFAULT_UNIT
    target = ModelTarget(opening.kv_tokens, unit, context_tokens(opening.tokenizer_dir))
    facts = {"engine": "cache model of vLLM 0.32", "model": opening.tokenizer_dir.name}
    return Opened(target, facts | {"unit_tokens": unit})


@asynccontextmanager
async def open_live(opening: Opening, progress: Callable[[str], None]) -> AsyncIterator[Opened]:
    """A running engine; one that we started is gone afterwards. Raises EngineError."""
    salt = ""
    if opening.upstream is not None:
        engine = await attach(opening.upstream, api_key=opening.api_key)
        salt = f"duramen-{uuid.uuid4().hex[:12]}"
    else:
        engine = await launch(_config(opening), progress)
    try:
        info = engine.info
        if opening.unit not in (None, info.unit_tokens):
            raise EngineError(
                f"the engine matches in units of {info.unit_tokens} tokens, not of {opening.unit}"
            )
        context = context_tokens(opening.model_dir or opening.tokenizer_dir)
        by_pool = opening.kv_tokens is not None and info.max_model_len != context
        target = LiveTarget(
            engine,
            opening.sampling,
            serial=opening.concurrency == 1 and not opening.open_loop,
            salt=salt,
            limit_reason=LARGER_THAN_POOL if by_pool else LONGER_THAN_CONTEXT,
        )
        own = opening.model_dir if opening.upstream is None else None
        facts = {"engine": f"{info.name} {info.version}", "model": own.name if own else info.model}
        yield Opened(target, facts | {"unit_tokens": info.unit_tokens})
    finally:
        await engine.close()


def _config(opening: Opening) -> VllmConfig:
    assert opening.model_dir is not None
    granule = default_block_size()
    unit = opening.unit or granule
    if unit % granule:
        raise EngineError(
            f"this vLLM build needs units that are multiples of {granule}: not {unit}"
        )
    max_model_len = context_tokens(opening.model_dir)
    num_blocks = None
    if opening.kv_tokens is not None:
        num_blocks = num_pool_blocks(opening.kv_tokens, unit)
        max_model_len = min(num_blocks * unit, max_model_len or opening.kv_tokens)
    return VllmConfig(
        opening.model_dir,
        port=opening.port,
        block_size=unit,
        max_model_len=max_model_len,
        num_kv_blocks=None if num_blocks is None else num_blocks + 1,  # one is never used
        chat_template=opening.chat_template,
        extra_args=_whole_prefills(opening.sampling, max_model_len),
    )


def _whole_prefills(sampling: Sampling, num_tokens: int | None) -> tuple[str, ...]:
    """A seeded request whose prefill is cut into chunks kills vLLM 0.32's CPU build ("CPU Generator
    does not use offset", v1/worker/gpu_model_runner.py): options that keep prefills whole."""
    if installed_build()[0] != "cpu" or not sampling.temperature or sampling.seed is None:
        return ()
    limit = ("--max-num-batched-tokens", str(num_tokens)) if num_tokens else ()
    return ("--no-enable-chunked-prefill", *limit)


def context_tokens(model_dir: Path) -> int | None:
    """What the model's configuration says of its context; None if it says nothing."""
    config = read_json(model_dir / "config.json", required=False)
    context = config.get("max_position_embeddings")
    return context if isinstance(context, int) else None
