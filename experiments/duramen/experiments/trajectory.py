"""The neutral form every recorded trajectory is read into: sessions of calls with their text.

A call holds the whole list of messages that was sent, as OpenAI chat messages. Message objects are
shared between the calls of a session (never mutate one), so a session costs the memory of its text
once. Each time and usage figure says whether it was recorded, derived or assumed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

Message = Mapping[str, Any]  # an OpenAI chat message: role, content, tool_calls, tool_call_id, name
Tool = Mapping[str, Any]  # an OpenAI tool definition


class Origin(Enum):
    RECORDED = "recorded"
    DERIVED = "derived"
    ASSUMED = "assumed"


@dataclass(frozen=True)
class Usage:
    """What the engine of the recording reported; None is "not reported", never 0. `prompt_tokens`
    includes the cached ones and those written to a cache, whatever the provider's own form."""

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    written_tokens: int | None = None


@dataclass(frozen=True)
class Sending:
    """What of a request, beside its messages and tools, decides what can be reused; None and empty
    are "not recorded".

    `options`: arguments of the chat template and what else of the body moves tokens. `keys`: of the
    body, in its order. `replica`: which of several servers answered. `duration_s`: until the reply
    had ended. `marks`: indices of the messages whose content bears a cache breakpoint (Anthropic's
    cache_control), -1 for one on tools. `ttl_s`: how long the request asks to keep what is cached,
    the longest where its marks differ; None where it does not say. `token_ids`, `reply_ids`: of the
    prompt and of what was sampled, as the engine reported them.
    """

    provider: str | None = None
    model: str | None = None
    salt: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    replica: str | None = None
    duration_s: float | None = None
    marks: tuple[int, ...] | None = None
    ttl_s: float | None = None
    token_ids: tuple[int, ...] | None = None
    reply_ids: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Call:
    """One request to a model. `time_s` counts from the session's first call.

    `tools` is None where the session's own tools were sent, else what this call sent instead:
    other tools, or the same ones with their keys in another order.
    """

    messages: tuple[Message, ...]
    reply: Message | None
    time_s: float | None = None
    usage: Usage = Usage()
    tools: tuple[Tool, ...] | None = None
    sending: Sending = Sending()


@dataclass(frozen=True)
class Session:
    """One agent's run: its calls in order, none for a run that failed before its first call.

    `origins` names the origin of each field, by field name ("messages", "reply", "tools", "time_s",
    "usage", "start_time_s"); the least certain one where calls differ. A field that the recording
    does not bear has no entry. `notes` say what a reader of its figures would not expect.
    """

    session_id: str
    calls: tuple[Call, ...]
    tools: tuple[Tool, ...] = ()
    start_time_s: float | None = None  # Unix time of the first call
    origins: Mapping[str, Origin] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def tools_of(self, call: Call) -> tuple[Tool, ...]:
        return self.tools if call.tools is None else call.tools
