"""Which requests are laid out here, and which only vLLM can render."""

from collections.abc import Mapping
from typing import Any

_OTHERS_RENDER: Mapping[
    str, tuple[Any, ...]
] = {  # field -> the values with which it changes nothing
    "echo": (None, False),
    "continue_final_message": (None, False),
    "add_generation_prompt": (None, True),
    "add_special_tokens": (None, False),
    "chat_template": (None,),
    "documents": (None, []),
    "truncate_prompt_tokens": (None,),
    "mm_processor_kwargs": (None, {}),
    "media_io_kwargs": (None, {}),
}

# what a template is given beside the arguments that are free
_NOT_ARGUMENTS = frozenset(
    {
        "messages",
        "conversation",
        "tools",
        "documents",
        "add_generation_prompt",
        "continue_final_message",
        "chat_template",
        "tokenize",
        "strftime_now",
        "raise_exception",
        "bos_token",
        "eos_token",
        "pad_token",
        "unk_token",
    }
)


def why_not_exact(body: Mapping[str, Any]) -> str | None:
    """None if the prompt can be laid out here; else what is in the way, for the client to read."""
    for name, neutral in _OTHERS_RENDER.items():
        if body.get(name) not in neutral:
            return f"{name} is rendered by the engine"
    for name in body.get("chat_template_kwargs") or {}:
        if name in _NOT_ARGUMENTS:
            return f"chat_template_kwargs sets {name}"
    for i, message in enumerate(body["messages"]):
        content = message.get("content")
        if isinstance(content, list):
            for part in content:
                if isinstance(part, Mapping) and part.get("type") not in (None, "text"):
                    return f"message {i} has a part of type {part.get('type')}"
        if message.get("audio"):
            return f"message {i} has audio"
    return None


def template_arguments(body: Mapping[str, Any], defaults: Mapping[str, object]) -> dict[str, Any]:
    """What the chat template gets beside messages and tools, as vLLM 0.32 puts it together
    (ChatCompletionRequest.build_chat_params)."""
    arguments: dict[str, Any] = {**defaults, **(body.get("chat_template_kwargs") or {})}
    effort = body.get("reasoning_effort")
    if effort is not None:
        arguments.setdefault("enable_thinking", effort != "none")
        arguments["reasoning_effort"] = effort
    return arguments
