"""How many bytes a model's weights take once vLLM has loaded them, from its files' headers."""

from pathlib import Path
from typing import Any

import msgspec

from duramen.layout.errors import ModelError
from duramen.layout.tokenizer_files import read_json

INDEX = "model.safetensors.index.json"
OTHER_FORMS = ("*.bin", "*.gguf")
LFS_POINTER = b"version https://git-lfs"
LOADED_AS_16_BIT = {"F32": 2, "F64": 4}  # loaded bytes are stored ones divided by this
MAX_HEADER_BYTES = 100_000_000  # as in the safetensors library


def weight_bytes(model_dir: Path) -> int:
    """Bytes of all tensors; those of 32 bits count as 16, which vLLM casts them to by itself.

    Raises ModelError where files are missing, cut short, or none are there.
    """
    if found := _safetensors(model_dir):
        return sum(_tensor_bytes(file) for file in found)
    for pattern in OTHER_FORMS:
        if found := sorted(model_dir.glob(pattern)):
            return sum(file.stat().st_size for file in found)
    raise ModelError(f"no weights in {model_dir}: neither *.safetensors nor *.bin nor *.gguf")


def _safetensors(model_dir: Path) -> list[Path]:
    """The files that vLLM loads: those of the index if there is one."""
    index = read_json(model_dir / INDEX, required=False).get("weight_map")
    if not isinstance(index, dict):
        whole = model_dir / "model.safetensors"
        return [whole] if whole.is_file() else sorted(model_dir.glob("*.safetensors"))
    names = sorted({str(name) for name in index.values()})
    missing = [name for name in names if not (model_dir / name).is_file()]
    if missing:
        raise ModelError(
            f"{len(missing)} of {len(names)} weight files are missing from {model_dir}, the first "
            f"is {missing[0]}: download the model again"
        )
    return [model_dir / name for name in names]


def _tensor_bytes(file: Path) -> int:
    """From the header, by the format's description: 8 bytes with its length, then JSON."""
    with file.open("rb") as stream:
        head = stream.read(8)
        length = int.from_bytes(head, "little")
        if (head + stream.read(len(LFS_POINTER) - 8)).startswith(LFS_POINTER):
            raise ModelError(f"{file} is a Git LFS pointer, not the weights: git lfs pull")
        stream.seek(8)
        raw = stream.read(length) if length <= MAX_HEADER_BYTES else b""
    try:
        header = msgspec.json.decode(raw)
        ends, loaded = zip(*map(_extent, _tensors(header)), strict=True)
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError, RecursionError):
        raise ModelError(f"{file} is no safetensors file, or is cut short") from None
    if file.stat().st_size < 8 + length + max(ends):
        raise ModelError(f"{file} is cut short: download it again")
    return sum(loaded)


def _tensors(header: dict[str, Any]) -> list[dict[str, Any]]:
    return [tensor for name, tensor in header.items() if name != "__metadata__"]


def _extent(tensor: dict[str, Any]) -> tuple[int, int]:
    """Where a tensor ends, and the bytes that it takes once loaded."""
    start, end = tensor["data_offsets"]
    if not 0 <= start <= end:
        raise ValueError
    return end, (end - start) // LOADED_AS_16_BIT.get(tensor["dtype"], 1)
