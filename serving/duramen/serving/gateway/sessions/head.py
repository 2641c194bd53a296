"""What a first turn and everything behind it is rendered with."""

import datetime
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from duramen.layout.fingerprint import head_digest
from duramen.serving.gateway.sessions.records import Turn, path_to


class Head(msgspec.Struct):
    """`now`: what the clock stands at for the template, ISO; `root_tokens`: leading tokens in zone
    ROOT."""

    tools: list[dict[str, Any]]
    arguments: dict[str, Any]
    salt: str
    now: str
    generation_prompt: str = ""
    root_tokens: int = 0


def head_of(turn: Turn) -> Head:
    first = path_to(turn.parent)[0] if turn.parent is not None else turn
    assert isinstance(first, Turn)
    return msgspec.json.decode(first.head, type=Head)


def began_at(turn: Turn | None, now: datetime.datetime) -> datetime.datetime:
    """What the clock of a conversation stands at that may have begun already."""
    return now if turn is None else datetime.datetime.fromisoformat(head_of(turn).now)


def root_digest(
    tools: Sequence[Mapping[str, Any]], arguments: Mapping[str, Any], salt: str
) -> bytes:
    """Of a head, but for the clock."""
    return blake2b(head_digest(tools, arguments) + salt.encode(), digest_size=16).digest()
