"""A client's request as it goes to the engine."""

from collections.abc import Mapping, Sequence
from typing import Any

CHARACTERS_PER_TOKEN = 4

# Fields that are the gateway's to set, whatever a client sends.
OURS = frozenset(
    {
        "messages",
        "model",
        "kv_transfer_params",
        "ec_transfer_params",
        "cache_salt",
        "priority",
        "request_id",
        "session_id",
        "return_token_ids",
        "return_prompt_text",
        "stream_options",
        "stream_interval",
    }
)


def chat_body(
    body: Mapping[str, Any],
    model: str,
    token_ids: Sequence[int] | None,
    *,
    salt: str,
    priority: int | None,
) -> dict[str, Any]:
    """`token_ids` None: the engine renders the messages itself."""
    sent = passed_on(body) | {"model": model, "return_token_ids": True}
    if token_ids is None:
        sent["messages"] = body["messages"]
    else:
        sent["messages"] = []
        sent["kv_transfer_params"] = {"prompt_token_ids": token_ids}
    if body.get("stream"):
        options = {k: v for k, v in (body.get("stream_options") or {}).items() if v is not None}
        sent["stream_options"] = {**options, "include_usage": True}
    return sent | engine_fields(salt, priority)


def passed_on(body: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that a client may set, also those inside vLLM's own extension field."""
    sent = {name: value for name, value in body.items() if name not in OURS and value is not None}
    if isinstance(extra := sent.get("vllm_xargs"), Mapping):
        sent["vllm_xargs"] = {name: value for name, value in extra.items() if name not in OURS}
    return sent


def estimated_tokens(text: object) -> int:
    """Of a prompt that is not encoded here: about four characters make a token. Ids count as
    they are."""
    if isinstance(text, str):
        return len(text) // CHARACTERS_PER_TOKEN
    if isinstance(text, Mapping):
        return sum(estimated_tokens(value) for value in text.values())
    if isinstance(text, list):
        return sum(estimated_tokens(value) for value in text)
    return 1


def engine_fields(salt: str, priority: int | None) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if salt:
        fields["cache_salt"] = salt
    if priority is not None:
        fields["priority"] = priority
    return fields
