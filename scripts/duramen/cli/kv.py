"""`duramen kv`: what a model's KV cache takes, from its config.json alone."""

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from duramen.cli.options import JsonFile
from duramen.cli.output import check_json_file, write_json
from duramen.layout.errors import ModelError
from duramen.layout.tokenizer_files import read_json
from duramen.serving.fit import GIB, context_tokens
from duramen.serving.kv.arch import Architecture
from duramen.serving.kv.footprint import Footprint, KvDtype, other_attentions
from duramen.serving.kv.pages import Pages, lay_out

ENGINE = "vLLM 0.32"
BLOCK_STEP = 16  # tokens: what all of its attention kernels for GPUs ask for, or a multiple of it
MOST_GIB = 1_000_000
ATTENTIONS = {"mha": "MHA", "gqa": "GQA, 8 KV heads", "mqa": "MQA", "mla": "MLA, 512 + 64"}


def kv(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG_OR_DIR", help="A config.json, or a model's folder.")
    ],
    tp: Annotated[int, typer.Option(min=1, help="GPUs that share the model.")] = 1,
    kv_dtype: Annotated[
        KvDtype, typer.Option(help="Format of the cache; auto is what the model asks for.")
    ] = KvDtype.AUTO,
    block_size: Annotated[
        int, typer.Option(min=1, help=f"Tokens per block, a multiple of {BLOCK_STEP}.")
    ] = BLOCK_STEP,
    context: Annotated[
        int | None, typer.Option(min=1, help="Tokens per sequence; by default the model's limit.")
    ] = None,
    memory: Annotated[
        float | None,
        typer.Option(min=0, max=MOST_GIB, metavar="GiB", help="For the cache, on each GPU."),
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Say what a model's KV cache takes per token and per sequence, and what fits."""
    check_json_file(json_file)
    if block_size % BLOCK_STEP:
        raise ModelError(
            f"--block-size must be a multiple of {BLOCK_STEP} tokens (of 32 on a CPU), as vLLM's "
            f"attention kernels have it, not {block_size}"
        )
    file = config / "config.json" if config.is_dir() else config
    if not file.is_file():
        raise ModelError(f"{file} is missing: give a config.json or a model's folder")
    read = read_json(file)
    arch = Architecture.from_config(read)
    rank = Footprint.of(arch, tp, kv_dtype)
    pages = lay_out(rank, block_size)
    fields = {
        "engine": ENGINE,
        "model": file.resolve().parent.name,
        "device": None,
        "unit_tokens": pages.unit_tokens,
        "kv_dtype": kv_dtype.of(arch).value,
        **as_json(Footprint.of(arch, kv_dtype=kv_dtype)),
        "per_rank": {
            "tensor_parallel_size": tp,
            **as_json(rank),
            "block_tokens": pages.block_tokens,
            "num_groups": len(pages.groups),
            "bytes_per_block": pages.bytes_per_block,
        },
        "layers": layers_json(pages),
        "at_context": None if context is None else context_json(rank, pages, context),
        "in_memory": None,
        "other_attentions": {
            name: footprint.bytes_per_token for name, footprint in other_attentions(arch).items()
        },
    }
    if memory is not None:
        context = context or context_tokens(read)
        if context is None:
            raise ModelError(f"{file} does not say how long a context is: give --context")
        fields["in_memory"] = memory_json(pages, int(memory * GIB), context)
    if json_file is None:
        Console().print(as_table(arch, fields))
    else:
        write_json("kv", fields, json_file)


def as_json(footprint: Footprint) -> dict[str, int]:
    return {
        "bytes_per_token": footprint.bytes_per_token,
        "bytes_per_token_beyond_window": footprint.bytes_per_token_beyond_window,
        "state_bytes_per_sequence": footprint.state_bytes_per_sequence,
    }


def layers_json(pages: Pages) -> dict[str, dict[str, int | None]]:
    """By kind; within one, all layers are alike."""
    each = [page for group in pages.groups for page in group.pages]
    numbers = Counter(page.cache.kind for page in each)
    return {
        page.cache.kind: {
            "num_layers": numbers[page.cache.kind],
            "bytes_per_token": page.cache.bytes_per_token,
            "state_bytes": page.cache.state_bytes,
            "window_tokens": page.cache.window,
            "block_tokens": page.block_tokens,
            "page_bytes": page.page_bytes,
            "padding_bytes": page.padding_bytes,
        }
        for page in each
    }


def context_json(rank: Footprint, pages: Pages, context: int) -> dict[str, int]:
    num_blocks = pages.blocks_at(context)
    return {
        "context_tokens": context,
        "bytes_per_sequence": rank.bytes_at(context),
        "num_blocks": num_blocks,
        "pool_bytes_per_sequence": num_blocks * pages.bytes_per_block,
    }


def memory_json(pages: Pages, pool_bytes: int, context: int) -> dict[str, int]:
    return {
        "pool_bytes": pool_bytes,
        "num_blocks": pages.num_blocks(pool_bytes),
        "context_tokens": context,
        "num_tokens": pages.num_tokens(pool_bytes, context),
        "num_sequences": pages.num_sequences(pool_bytes, context),
    }


def as_table(arch: Architecture, fields: dict[str, Any]) -> Table:
    rank = fields["per_rank"]
    table = Table(
        "",
        "",
        title=escape(f"{fields['model']} ({arch.model_type}, {len(arch.layers)} layers)"),
        title_justify="left",
        show_header=False,
    )
    for kind, layer in fields["layers"].items():
        table.add_row(f"{layer['num_layers']} x {kind}", of_layer(layer))
    table.add_row(f"a token, {fields['kv_dtype']}", as_bytes(fields["bytes_per_token"]))
    if fields["bytes_per_token_beyond_window"] != fields["bytes_per_token"]:
        beyond = as_bytes(fields["bytes_per_token_beyond_window"])
        table.add_row("a token beyond the window", beyond)
    if fields["state_bytes_per_sequence"]:
        table.add_row("a sequence, besides", as_bytes(fields["state_bytes_per_sequence"]))
    if rank["tensor_parallel_size"] > 1:
        table.add_row(
            f"a token, each of {rank['tensor_parallel_size']} GPUs",
            as_bytes(rank["bytes_per_token"]),
        )
    table.add_row("match unit", f"{fields['unit_tokens']:,} tokens")
    if at := fields["at_context"]:
        table.add_row(
            f"a sequence of {at['context_tokens']:,}, each GPU",
            f"{as_bytes(at['bytes_per_sequence'])}; "
            f"in blocks {as_bytes(at['pool_bytes_per_sequence'])}",
        )
    if fits := fields["in_memory"]:
        table.add_row(
            f"in {fits['pool_bytes'] / GIB:g} GiB, each GPU",
            f"{fits['num_tokens']:,} tokens; "
            f"{fits['num_sequences']:,} sequences of {fits['context_tokens']:,}",
        )
    for name, num_bytes in fields["other_attentions"].items():
        table.add_row(f"a token, were it {ATTENTIONS[name]}, bfloat16", as_bytes(num_bytes))
    return table


def of_layer(layer: dict[str, int | None]) -> str:
    if layer["state_bytes"]:
        text = f"{layer['state_bytes']:,} B per sequence"
    else:
        text = f"{layer['bytes_per_token']:,} B per token"
    if layer["window_tokens"]:
        text += f", at most {layer['window_tokens']:,} tokens"
    return f"{text}, padded by {layer['padding_bytes']:,}" if layer["padding_bytes"] else text


def as_bytes(number: int) -> str:
    if number < 2**20:
        return f"{number:,} B ({number / 2**10:,.1f} KiB)"
    if number < GIB:
        return f"{number / 2**20:,.1f} MiB"
    return f"{number / GIB:,.2f} GiB"
