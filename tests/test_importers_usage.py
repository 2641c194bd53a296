"""One function makes one form of every provider's usage."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.experiments.importers.messages import check_usage
from duramen.experiments.trajectory import Usage
from duramen.layout.errors import TrajectoryError

OPENAI = {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107}
FORMS = {
    "openai": (
        OPENAI | {"prompt_tokens_details": {"cached_tokens": 64}},
        Usage(100, 64, 7),
    ),
    "openai, nothing cached": (
        OPENAI | {"prompt_tokens_details": {"cached_tokens": 0}},
        Usage(100, 0, 7),
    ),
    "openai, not reported": (OPENAI | {"prompt_tokens_details": None}, Usage(100, None, 7)),
    "openrouter": (
        OPENAI | {"prompt_tokens_details": {"cached_tokens": 10, "cache_write_tokens": 80}},
        Usage(100, 10, 7, 80),
    ),
    "moonshot, atif": (OPENAI | {"cached_tokens": 32}, Usage(100, 32, 7)),
    "responses": (
        {
            "input_tokens": 100,
            "input_tokens_details": {"cached_tokens": 64},
            "output_tokens": 7,
            "output_tokens_details": {"reasoning_tokens": 3},
        },
        Usage(100, 64, 7),
    ),
    "codex": (
        {
            "input_tokens": 100,
            "cached_input_tokens": 64,
            "output_tokens": 7,
            "reasoning_output_tokens": 3,
            "total_tokens": 107,
        },
        Usage(100, 64, 7),
    ),
    "codex, oldest": ({"prompt": 100, "completion": 7}, Usage(100, None, 7)),
    "anthropic": (
        {
            "input_tokens": 6,
            "cache_read_input_tokens": 64,
            "cache_creation_input_tokens": 30,
            "output_tokens": 7,
        },
        Usage(100, 64, 7, 30),
    ),
    "anthropic, writes by ttl": (
        {
            "input_tokens": 6,
            "cache_read_input_tokens": 64,
            "cache_creation": {
                "ephemeral_5m_input_tokens": 20,
                "ephemeral_1h_input_tokens": 10,
            },
            "output_tokens": 7,
        },
        Usage(100, 64, 7, 30),
    ),
    "anthropic, cold": (
        {
            "input_tokens": 100,
            "cache_read_input_tokens": 0,
            "cache_creation_input_tokens": 0,
            "output_tokens": 7,
        },
        Usage(100, 0, 7, 0),
    ),
    "anthropic before caching": (
        {"input_tokens": 100, "output_tokens": 7},
        Usage(100, None, 7),
    ),
    "bedrock": (
        {
            "inputTokens": 6,
            "outputTokens": 7,
            "cacheReadInputTokens": 64,
            "cacheWriteInputTokens": 30,
        },
        Usage(100, 64, 7, 30),
    ),
    "deepseek": (
        OPENAI | {"prompt_cache_hit_tokens": 64, "prompt_cache_miss_tokens": 36},
        Usage(100, 64, 7),
    ),
    "deepseek without the sum": (
        {"prompt_cache_hit_tokens": 64, "prompt_cache_miss_tokens": 36, "completion_tokens": 7},
        Usage(100, 64, 7),
    ),
    "gemini": (
        {
            "promptTokenCount": 100,
            "cachedContentTokenCount": 64,
            "candidatesTokenCount": 4,
            "thoughtsTokenCount": 3,
        },
        Usage(100, 64, 7),
    ),
    "litellm of anthropic": (
        OPENAI
        | {
            "prompt_tokens_details": {"cached_tokens": 64, "cache_creation_tokens": 30},
            "cache_read_input_tokens": 64,
            "cache_creation_input_tokens": 30,
        },
        Usage(100, 64, 7, 30),
    ),
    "opentelemetry": (
        {
            "gen_ai.usage.input_tokens": 100,
            "gen_ai.usage.output_tokens": 7,
            "gen_ai.usage.cache_read.input_tokens": 64,
            "gen_ai.usage.cache_creation.input_tokens": 30,
        },
        Usage(100, 64, 7, 30),
    ),
    "opentelemetry before 1.27": (
        {"gen_ai.usage.prompt_tokens": 100, "gen_ai.usage.completion_tokens": 7},
        Usage(100, None, 7),
    ),
    "langfuse, each token once": (
        {"input": 36, "input_cached_tokens": 64, "output": 7, "total": 107},
        Usage(100, 64, 7),
    ),
    "langfuse, reasoning apart": (
        {
            "input": 36,
            "input_cached_tokens": 64,
            "output": 4,
            "output_reasoning_tokens": 3,
            "total": 107,
        },
        Usage(100, 64, 7),
    ),
    "langfuse, input is all": (
        {"input": 100, "input_cached_tokens": 64, "output": 7, "total": 107},
        Usage(100, 64, 7),
    ),
    "langfuse of anthropic": (
        {
            "input": 6,
            "cache_read_input_tokens": 64,
            "cache_creation_input_tokens": 30,
            "output": 7,
        },
        Usage(100, 64, 7, 30),
    ),
    "nothing": ({}, Usage()),
    "null": (None, Usage()),
    "nulls": ({"prompt_tokens": None, "completion_tokens": None}, Usage()),
}


@pytest.mark.parametrize("name", FORMS)
def test_each_form(name):
    given_usage, expected = FORMS[name]
    assert check_usage(given_usage, "log:1") == expected


@pytest.mark.parametrize(
    "usage",
    [
        OPENAI | {"prompt_tokens_details": {"cached_tokens": 101}},
        OPENAI | {"prompt_cache_hit_tokens": 64, "prompt_cache_miss_tokens": 35},
        OPENAI | {"cache_read_input_tokens": 90, "cache_creation_input_tokens": 20},
    ],
)
def test_contradictions_leave_prompt_and_cached_unknown(usage):
    assert check_usage(usage, "log:1") == Usage(None, None, 7, None)


def test_two_counts_of_cached_tokens_that_differ_are_none():
    usage = OPENAI | {"prompt_tokens_details": {"cached_tokens": 0}, "cached_tokens": 64}
    assert check_usage(usage, "log:1") == Usage(100, None, 7)


@pytest.mark.parametrize(
    ("usage", "error"),
    [
        ({"prompt_tokens": "12"}, "usage.prompt_tokens is '12'; expected a count of tokens"),
        ({"input_tokens": -1}, "usage.input_tokens is a number; expected a count of tokens"),
        ({"input_tokens": 1.5}, "usage.input_tokens is a number"),
        ({"output_tokens": True}, "usage.output_tokens is true or false"),
        ({"cache_read_input_tokens": 2**60}, "usage.cache_read_input_tokens is a number"),
        ({"prompt_tokens_details": 5}, "usage.prompt_tokens_details is a number; expected an obj"),
        ([], "usage is an empty list; expected an object"),
    ],
)
def test_what_is_no_count_is_refused(usage, error):
    with pytest.raises(TrajectoryError, match=f"^log:1: {error}"):
        check_usage(usage, "log:1")


COUNTS = st.one_of(st.none(), st.integers(0, 1000))


@given(COUNTS, COUNTS, COUNTS, COUNTS)
def test_anthropic_parts_add_up_and_what_is_missing_stays_none(new, read, written, output):
    usage = check_usage(
        {
            "input_tokens": new,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": written,
            "output_tokens": output,
        },
        "log:1",
    )
    prompt = None if new is None else new + (read or 0) + (written or 0)
    assert usage == Usage(prompt, read, output, written)
