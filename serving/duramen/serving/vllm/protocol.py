"""What the rest of Duramen asks of an engine: run these token ids, say exactly what happened."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from duramen.layout.errors import LayoutError
from duramen.serving.kv.mirror import KvMirror
from duramen.serving.vllm.itl_report import ItlReport
from duramen.serving.vllm.timings import EngineTimes

CHAT_PATH = "/v1/chat/completions"

Tool = Mapping[str, Any]  # an OpenAI tool definition
OnTokens = Callable[[tuple[int, ...], str], None]  # newly sampled ids and the text they added


@dataclass(frozen=True)
class Sampling:
    """How to sample. At temperature 0 the seed has no effect."""

    max_tokens: int
    temperature: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    min_tokens: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.min_tokens <= self.max_tokens or self.max_tokens < 1:
            raise LayoutError(
                f"max_tokens {self.max_tokens} must be at least 1 and at least "
                f"min_tokens {self.min_tokens}, which must not be negative"
            )


@dataclass(frozen=True)
class EngineInfo:
    """Facts read from the running engine.

    `unit_tokens`: granularity at which a prefix can hit. `num_kv_blocks`: size of the pool as the
    engine reports it, its one never-used null block included; None if it does not say.
    `reports_cached`: whether answers say how many tokens were cached.
    """

    name: str
    version: str
    model: str
    max_model_len: int
    unit_tokens: int
    num_kv_blocks: int | None
    eos_token_ids: tuple[int, ...]  # empty if not known
    reports_cached: bool
    kv_dtype: str = "auto"  # as vLLM's --kv-cache-dtype has it


@dataclass(frozen=True)
class Completion:
    """One finished call.

    `token_ids` are the sampled ones, verbatim. What the last of them is depends on the ending:
    EOS ("stop" or "tool_calls", `stop_reason` None): the EOS, which the message does not show;
    a stop string ("stop", `stop_reason` the string): the token that completed it, and the message
    ends before the string; "length": just the last one.

    `prompt_tokens` is what was sent. `cached_tokens` None means that the engine did not report it.
    `ttft_s` and `itl_s` are measured at the client: the time to the first event that carries
    tokens, then the times between such events.
    """

    token_ids: tuple[int, ...]
    message: Mapping[str, Any]  # role, content, and where there are any: tool_calls, reasoning
    finish_reason: str
    stop_reason: str | int | None
    prompt_tokens: int
    cached_tokens: int | None
    ttft_s: float
    itl_s: tuple[float, ...]
    elapsed_s: float


class Engine(Protocol):
    """A running engine with a prefix cache. Calls may run concurrently."""

    info: EngineInfo
    mirror: KvMirror | None  # None: the engine publishes no cache events

    async def complete(
        self,
        token_ids: Sequence[int],
        sampling: Sampling,
        *,
        tools: Sequence[Tool] = (),
        salt: str = "",
        on_tokens: OnTokens | None = None,
    ) -> Completion:
        """Run exactly `token_ids`. `salt` separates caches; "" is none.

        At the end of the model's context the answer is cut with "length". Raises RequestError if
        the engine refuses (a prompt that fills the context, an unknown id), EngineError if it died.
        """

    async def settle(self, token_ids: Sequence[int], salt: str = "") -> bool:
        """Wait until the mirror has seen all that a finished serial call did to the cache.

        `token_ids` is what the call computed: its prompt and all sampled tokens but the last.
        False if the events did not come, or there is no mirror: then predictions may lag.
        """

    async def reset_prefix_cache(self) -> bool:
        """Empty the prefix cache. False if the engine cannot or is at work: salt the calls then."""

    async def times(self) -> EngineTimes | None:
        """What the engine itself measured since it started; None if it does not say."""

    async def close(self) -> None:
        """Free everything; a second call does nothing."""


class ChatEngine(Engine, Protocol):
    """An engine that also takes OpenAI requests as they are; the gateway's upstream."""

    async def num_preemptions(self) -> int | None:
        """Requests that lost their KV blocks while they ran, since its start; None: not said."""

    def itl_report(self) -> ItlReport | None:
        """What its scheduler did to hold its target between tokens; None: it has none, or does not
        say."""

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The answer's JSON. Raises RequestError, EngineError."""

    def batches(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[list[bytes], None]:
        """Yield the events of a streamed answer as JSON, those that came together in one list.
        Closing it ends the request in the engine. Raises RequestError, EngineError."""
