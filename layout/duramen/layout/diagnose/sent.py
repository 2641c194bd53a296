"""One call in the layers that are known of it, and what is found where two of them part."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from duramen.layout.diagnose.causes import Cause, Layer

Message = Mapping[str, Any]
Tool = Mapping[str, Any]


@dataclass(frozen=True)
class Request:
    """What a client sent, as OpenAI chat messages and tools.

    `options`: arguments of the chat template and what else of the body moves tokens
    (reasoning_effort, chat_template_kwargs, tool_choice, ...). `keys`: of the body, in its order,
    where that is known.
    """

    messages: Sequence[Message]
    tools: Sequence[Tool] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    keys: Sequence[str] = ()


@dataclass(frozen=True)
class Sent:
    """A layer that is not known is None; one layer is enough. `text`: the rendered prompt, a
    Tracked where we rendered it. `reply_ids`: sampled behind `token_ids`; None where not known, and
    then nothing is expected behind the prompt."""

    request: Request | None = None
    text: str | None = None
    token_ids: Sequence[int] | None = None
    reply_ids: Sequence[int] | None = None


@dataclass(frozen=True)
class Finding:
    """Where and why a call parts from an earlier one.

    `token`: the first that differs, counted in the later call; None without ids. `character`: the
    same in its text; None without texts. `confidence` in (0, 1]: 1 where the layers prove it.
    `evidence`: what was seen, in one line, with the values before and after. `mend`: what to change
    in this case, concretely.
    """

    layer: Layer
    cause: Cause
    confidence: float
    evidence: str
    mend: str
    token: int | None = None
    character: int | None = None
