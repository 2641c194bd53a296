"""Asking a mirror about a prompt."""

from collections.abc import Sequence

from duramen.layout.blocks import block_hashes
from duramen.serving.kv.mirror import KvMirror


def predict(mirror: KvMirror, token_ids: Sequence[int], salt: str = "") -> int | None:
    hashes = list(block_hashes(token_ids, mirror.block_size, salt))
    return mirror.resident(hashes, len(token_ids))
