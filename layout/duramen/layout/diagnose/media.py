"""Content parts that bear data in base64 instead of text: images, audio, files."""

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from duramen.layout.diagnose.change import Change

_KINDS = ("image", "audio", "video")
_DATA_KEYS = ("data", "file_data")  # Anthropic's source, OpenAI's input_audio and file
_URL = "data:"
_MAX_DEPTH = 3  # of the object in a part that bears the data
_HEAD_CHARS = 40


@dataclass(frozen=True)
class Media:
    """`kind`: image, audio, video or file. `digest`: of the decoded bytes, in hexadecimal."""

    kind: str
    num_bytes: int
    digest: str

    def __str__(self) -> str:
        return f"[{self.kind}, {self.num_bytes:,} bytes, hash {self.digest}]"


def media_of(part: Any) -> Media | None:
    """None for a part that bears no data: text, or a link."""
    if not isinstance(part, Mapping):
        return None
    data = next(_data_in(part, _MAX_DEPTH), "")
    if not data or (decoded := _decoded(data)) is None:
        return None
    named = f"{part.get('type')} {data[:_HEAD_CHARS]}"
    kind = next((kind for kind in _KINDS if kind in named), "file")
    return Media(kind, len(decoded), blake2b(decoded, digest_size=4).hexdigest())


def media_change(old: Any, new: Any) -> Change | None:
    """Of content in two requests, whose first part that differs bears data in both."""
    if isinstance(old, str) or isinstance(new, str):
        return None
    if not isinstance(old, Sequence) or not isinstance(new, Sequence):
        return None
    pairs = enumerate(zip(old, new, strict=False))
    index, (was, now) = next(((i, pair) for i, pair in pairs if pair[0] != pair[1]), (0, (0, 0)))
    before, after = media_of(was), media_of(now)
    if before is None or after is None or before == after:
        return None
    sizes = dict.fromkeys(f"{each.num_bytes:,}" for each in (before, after))
    size = f"{' -> '.join(sizes)} bytes, hash {before.digest} -> {after.digest}"
    mend = f"send the bytes of the {before.kind} as they were sent first"
    return Change("history-edited", 0.95, f"{before.kind} changed ({size})", f"part {index}", mend)


def _data_in(value: Mapping[str, Any], depth: int) -> Iterator[str]:
    for key, item in value.items():
        if isinstance(item, str) and (key in _DATA_KEYS or item.startswith(_URL)):
            yield item
        elif isinstance(item, Mapping) and depth:
            yield from _data_in(item, depth - 1)


def _decoded(data: str) -> bytes | None:
    """None for what is no base64."""
    coded = data.partition(",")[2] if data.startswith(_URL) else data
    try:
        return base64.b64decode("".join(coded.split()), validate=True)
    except ValueError:
        return None
