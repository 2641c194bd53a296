"""One form of usage out of those of every provider and log. Missing is None, never 0.

prompt_tokens includes what was read from a cache and what was written to one. In the forms of
OpenAI (chat and Responses), vLLM, Gemini, ATIF, Codex and OpenTelemetry the prompt's count includes
them already; in those of Anthropic and Bedrock it does not, so the three are added up; DeepSeek
reports hit and miss, whose sum is the prompt. Langfuse keeps each token under one key (`input`
beside `input_cached_tokens`, ...), unless its `total` shows that `input` holds them all. LiteLLM
adds Anthropic's keys to OpenAI's: its prompt_tokens includes them.

Counts that contradict each other (more cached than prompt, hit + miss that is not the prompt) leave
prompt and cached None: which of them is wrong cannot be told. Two counts of what was cached that
differ leave it None.

Sources: platform.openai.com/docs/guides/prompt-caching; docs.anthropic.com, prompt caching,
"Tracking cache performance"; api-docs.deepseek.com/guides/kv_cache; ai.google.dev/api,
UsageMetadata; docs.aws.amazon.com/bedrock, TokenUsage; opentelemetry.io/docs/specs/semconv,
registry of gen-ai attributes; langfuse.com/docs, token and cost tracking; Harbor's ATIF RFC;
openai/codex, TokenUsage.
"""

from collections.abc import Callable

from duramen.experiments.trajectory import Usage

Path = tuple[str, ...]
Count = Callable[[Path], int | None]

OTEL = "gen_ai.usage."
INCLUSIVE: tuple[Path, ...] = (
    ("prompt_tokens",),
    ("promptTokenCount",),
    ("prompt_token_count",),
    (OTEL + "input_tokens",),
    (OTEL + "prompt_tokens",),
    ("promptTokens",),
    ("prompt",),
)
CACHED: tuple[Path, ...] = (
    ("prompt_tokens_details", "cached_tokens"),
    ("input_tokens_details", "cached_tokens"),
    ("cached_input_tokens",),
    ("cached_tokens",),
    ("cachedContentTokenCount",),
    ("cached_content_token_count",),
    ("prompt_cache_hit_tokens",),
    (OTEL + "cache_read.input_tokens",),
    (OTEL + "cache_read_input_tokens",),
)
READ: tuple[Path, ...] = (("cache_read_input_tokens",), ("cacheReadInputTokens",))
WRITTEN: tuple[Path, ...] = (
    ("cache_creation_input_tokens",),
    ("cacheWriteInputTokens",),
    ("prompt_tokens_details", "cache_creation_tokens"),
    ("prompt_tokens_details", "cache_write_tokens"),
    ("prompt_tokens_details", "created_cache_tokens"),
    (OTEL + "cache_creation.input_tokens",),
    (OTEL + "cache_creation_input_tokens",),
)
WRITTEN_BY_TTL: tuple[Path, ...] = (
    ("cache_creation", "ephemeral_5m_input_tokens"),
    ("cache_creation", "ephemeral_1h_input_tokens"),
)
COMPLETION: tuple[Path, ...] = (
    ("completion_tokens",),
    ("output_tokens",),
    ("outputTokens",),
    (OTEL + "output_tokens",),
    (OTEL + "completion_tokens",),
    ("completionTokens",),
    ("completion",),
    ("output",),
)
LANGFUSE_READ: tuple[Path, ...] = (
    ("input_cached_tokens",),
    ("input_cache_read",),
    ("cache_read_input_tokens",),
)
LANGFUSE_WRITTEN: tuple[Path, ...] = (
    ("input_cache_creation",),
    ("cache_creation_input_tokens",),
)
LANGFUSE_INPUT = (*LANGFUSE_READ, *LANGFUSE_WRITTEN, ("input_audio_tokens",))
LANGFUSE_OUTPUT: tuple[Path, ...] = (("output_reasoning_tokens",), ("output_audio_tokens",))


def normalised(count: Count) -> Usage:
    """`count` gives the number at a path of keys in the usage object, None where it has none."""
    if count(("input",)) is not None:
        return _langfuse(count)
    read = _first(count, READ)
    cached = _agreed(count, (*CACHED, *READ))
    written = _first(count, WRITTEN)
    written = _sum(count, WRITTEN_BY_TTL, needs_all=False) if written is None else written
    return _checked(
        Usage(
            prompt_tokens=_prompt(count, read, written),
            cached_tokens=cached,
            completion_tokens=_completion(count),
            written_tokens=written,
        ),
        hit=count(("prompt_cache_hit_tokens",)),
        miss=count(("prompt_cache_miss_tokens",)),
    )


def _prompt(count: Count, read: int | None, written: int | None) -> int | None:
    prompt = _first(count, INCLUSIVE)
    if prompt is not None:
        return prompt
    uncached = _first(count, (("input_tokens",), ("inputTokens",)))
    if uncached is None:
        return _sum(count, (("prompt_cache_hit_tokens",), ("prompt_cache_miss_tokens",)))
    if _first(count, CACHED) is not None:
        return uncached  # the form of Responses: it includes them
    return uncached + (read or 0) + (written or 0)


def _completion(count: Count) -> int | None:
    candidates = _first(count, (("candidatesTokenCount",), ("candidates_token_count",)))
    if candidates is None:
        return _first(count, COMPLETION)
    thoughts = _first(count, (("thoughtsTokenCount",), ("thoughts_token_count",)))
    return candidates + (thoughts or 0)


def _langfuse(count: Count) -> Usage:
    prompt, completion, total = count(("input",)), count(("output",)), count(("total",))
    is_all = None not in (prompt, completion) and total == (prompt or 0) + (completion or 0)
    if not is_all:
        prompt = _plus(prompt, _sum(count, LANGFUSE_INPUT, needs_all=False))
        completion = _plus(completion, _sum(count, LANGFUSE_OUTPUT, needs_all=False))
    cached, written = _agreed(count, LANGFUSE_READ), _first(count, LANGFUSE_WRITTEN)
    return _checked(Usage(prompt, cached, completion, written))


def _plus(number: int | None, more: int | None) -> int | None:
    return None if number is None else number + (more or 0)


def _checked(usage: Usage, hit: int | None = None, miss: int | None = None) -> Usage:
    prompt = usage.prompt_tokens
    if prompt is None:
        return usage
    known = (usage.cached_tokens or 0) + (usage.written_tokens or 0)
    if known > prompt or (hit is not None and miss is not None and hit + miss != prompt):
        return Usage(None, None, usage.completion_tokens, None)
    return usage


def _first(count: Count, paths: tuple[Path, ...]) -> int | None:
    return next((found for path in paths if (found := count(path)) is not None), None)


def _agreed(count: Count, paths: tuple[Path, ...]) -> int | None:
    found = {number for path in paths if (number := count(path)) is not None}
    return found.pop() if len(found) == 1 else None


def _sum(count: Count, paths: tuple[Path, ...], *, needs_all: bool = True) -> int | None:
    found = [number for path in paths if (number := count(path)) is not None]
    if not found or (needs_all and len(found) < len(paths)):
        return None
    return sum(found)
