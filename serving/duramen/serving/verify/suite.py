"""Every assumption of ours about the engine, tried on one that runs: the guard of its upgrades.

It takes two minutes at most and leaves the engine as it was, but for blocks under salts that
nobody else has.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from duramen.layout.errors import EngineError, RequestError
from duramen.serving.verify import cache_claims, render_claims, seam_claims, server
from duramen.serving.verify.claim import Check, Claim, said, try_claim
from duramen.serving.verify.subject import Prompts, Subject
from duramen.serving.vllm.facts import Facts, facts_of, read_version
from duramen.serving.vllm.http import EngineHttp
from duramen.serving.vllm.launch import EventEndpoints

SUITE_S = 120.0
FIRST_ANSWER_S = 10.0

# The harshest come last: what an engine makes of an id that it cannot know is its own affair.
CLAIMS: tuple[Claim, ...] = (
    server.VERSION,
    server.FACTS,
    server.HEALTH,
    *seam_claims.CLAIMS,
    cache_claims.REPORTED,
    *cache_claims.CLAIMS,
    cache_claims.EVENTS,
    *render_claims.CLAIMS,
    seam_claims.FALLBACK,
    server.TIMINGS,
    server.PROMPT_TOKENS,
    seam_claims.TOO_LONG,
    seam_claims.UNKNOWN_ID,
)


@dataclass(frozen=True)
class Verified:
    """`facts` is None where the server does not say what the probes need to know."""

    version: str
    facts: Facts | None
    checks: tuple[Check, ...]

    @property
    def is_fit(self) -> bool:
        """Whether everything that Duramen needs, as far as it was tried, holds."""
        return not any(check.is_failure for check in self.checks)


async def verify(
    url: str,
    *,
    prompts: Prompts | None = None,
    events: EventEndpoints | None = None,
    api_key: str | None = None,
    progress: Callable[[Check], None] = lambda check: None,
) -> Verified:
    """Try every claim on the server at `url`, one after another.

    Raises EngineError if nothing answers there within 10 s, or nothing that names a version.
    """
    http = EngineHttp(url, lambda: "Is it running, and is the address right?", api_key=api_key)
    try:
        version = await _first_answer(http)
        deadline_s = time.monotonic() + SUITE_S
        try:
            facts = await facts_of(http, None, version)
        except (EngineError, LookupError, TypeError) as error:
            reason = said(error) if isinstance(error, EngineError) else str(error)
            return Verified(version, None, _without_facts(f"{type(error).__name__}: {reason}"))
        subject = Subject(http, facts, prompts, events, api_key)
        checks = []
        for claim in CLAIMS:
            checks.append(await try_claim(claim, subject, deadline_s))
            progress(checks[-1])
    finally:
        await http.close()
    return Verified(version, facts, tuple(checks))


async def _first_answer(http: EngineHttp) -> str:
    """The version. Raises EngineError."""
    try:
        async with asyncio.timeout(FIRST_ANSWER_S):
            return await read_version(http)
    except TimeoutError:
        raise EngineError(
            f"no answer from {http.url} within {FIRST_ANSWER_S:.0f} s: is it vLLM's address?"
        ) from None
    except RequestError as error:
        if error.status in (401, 403):
            raise EngineError(said(error)) from None
        raise EngineError(
            f"{http.url} is no vLLM: /version answers {error.status}; give vLLM's address, "
            "without /v1"
        ) from None
    except EngineError as error:
        raise EngineError(said(error)) from None


def _without_facts(reason: str) -> tuple[Check, ...]:
    """No probe can be made: their sizes are those of the server's blocks."""
    unknown = "the server does not say its model, context or blocks"
    return (
        Check(server.FACTS, "broken", reason, 0.0),
        *(Check(c, "not tried", unknown, 0.0) for c in CLAIMS if c is not server.FACTS),
    )
