"""The event that streams mostly consist of: text that one choice goes on with.

Read into a fixed shape it costs a fraction of what a dict does. Whatever has another shape (the
first and the last event, tool calls, log-probabilities, several choices) is none.
"""

from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

NoValue = None | UnsetType


class Delta(Struct, forbid_unknown_fields=True):
    content: str | UnsetType | None = UNSET
    reasoning: str | UnsetType | None = UNSET


class Choice(Struct, forbid_unknown_fields=True):
    index: int
    delta: Delta
    token_ids: list[int] | UnsetType = UNSET
    logprobs: NoValue = UNSET
    finish_reason: NoValue = UNSET
    stop_reason: NoValue = UNSET


class TextEvent(Struct, forbid_unknown_fields=True):
    """A field that is UNSET did not come, and is not written."""

    id: str
    object: str
    created: int
    model: str
    choices: tuple[Choice]
    usage: NoValue = UNSET
    prompt_token_ids: NoValue = UNSET
    system_fingerprint: Any = UNSET
    service_tier: Any = UNSET


_decode = msgspec.json.Decoder(TextEvent).decode


def text_event(data: bytes) -> TextEvent | None:
    """None if it is something else."""
    try:
        return _decode(data)
    except msgspec.DecodeError:
        return None
