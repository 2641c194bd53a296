"""Claims about what the server says of itself."""

from duramen.serving.verify.claim import Claim, Seen
from duramen.serving.verify.subject import Subject
from duramen.serving.vllm.facts import facts_of
from duramen.serving.vllm.timings import (
    PREEMPTIONS,
    PREFILL,
    QUEUE,
    TTFT,
    parse_preemptions,
    parse_times,
)
from duramen.serving.vllm.version import OLDEST, check_version

BY_SOURCE = "vllm:prompt_tokens_by_source_total"


async def _version(subject: Subject) -> Seen:
    check_version(subject.facts.version)
    return Seen(True, subject.facts.version)


async def _facts(subject: Subject) -> Seen:
    facts = await facts_of(subject.http, subject.facts.model, subject.facts.version)
    saw = f"{facts.model}, {facts.max_model_len} tokens of context, blocks of {facts.block_size}"
    return Seen(True, f"{saw}, match unit {facts.unit_tokens}")


async def _health(subject: Subject) -> Seen:
    await subject.http.get("/health")
    return Seen(True, "it answers")


async def _timings(subject: Subject) -> Seen:
    page = (await subject.http.get("/metrics")).decode(errors="replace")
    times = parse_times(page)
    found = {
        TTFT: times is not None,
        QUEUE: times is not None and times.queue is not None,
        PREFILL: times is not None and times.prefill is not None,
        PREEMPTIONS: parse_preemptions(page) is not None,
    }
    missing = [name for name, is_there in found.items() if not is_there]
    return Seen(not missing, f"missing: {', '.join(missing)}" if missing else "all of them")


async def _by_source(subject: Subject) -> Seen:
    page = (await subject.http.get("/metrics")).decode(errors="replace")
    is_there = f"\n{BY_SOURCE}" in f"\n{page}"
    return Seen(is_there, "it is there" if is_there else "it is missing")


VERSION = Claim(
    "version",
    "GET /version",
    f"vLLM {OLDEST[0]}.{OLDEST[1]} or newer",
    "serving/vllm/version.py: everything else was tried with that",
    _version,
)
FACTS = Claim(
    "facts",
    "GET /v1/models and /metrics",
    "the model, its context, the block size and the match unit",
    "serving/vllm/facts.py: every figure in tokens",
    _facts,
)
HEALTH = Claim(
    "health",
    "GET /health",
    "an answer without an error",
    "the gateway's watch over its engines",
    _health,
)
TIMINGS = Claim(
    "timing-metrics",
    "GET /metrics, once calls have run",
    f"histograms {TTFT}, {QUEUE}, {PREFILL} and the counter {PREEMPTIONS}",
    "serving/vllm/timings.py: the engine's own times in replays, preemptions in the gateway",
    _timings,
    needed=False,
)
PROMPT_TOKENS = Claim(
    "prompt-tokens-by-source",
    "GET /metrics, once calls have run",
    f"the counter {BY_SOURCE}",
    "the metric to trust for hit rates over all calls, n > 1 included",
    _by_source,
    needed=False,
)
