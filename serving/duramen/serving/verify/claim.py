"""One assumption of ours about the engine, and what came of trying it."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import msgspec

from duramen.layout.errors import EngineError
from duramen.serving.verify.subject import Subject

Verdict = Literal["holds", "broken", "not tried"]

CLAIM_TIMEOUT_S = 40.0
_PAGE = re.compile(r"<!doctype html|<html", re.I)
_MARKUP = re.compile(r"<(head|style|script)\b.*?</\1\s*>|<!--.*?-->|<[^<>]*>", re.I | re.S)
_MAX_SAID_CHARS = 300


class NotTried(Exception):
    """Raised by a probe that this server or these arguments leave no way to make."""


class Seen(NamedTuple):
    holds: bool
    saw: str


Probe = Callable[[Subject], Awaitable[Seen]]


@dataclass(frozen=True)
class Claim:
    """`asked`, `expected`: in words. `stands`: the part of Duramen that relies on it. `needed`:
    without it Duramen does not keep what it promises; else it only lacks something."""

    name: str
    asked: str
    expected: str
    stands: str
    probe: Probe
    needed: bool = True


@dataclass(frozen=True)
class Check:
    """`saw`: what the engine did, or why it was not tried."""

    claim: Claim
    verdict: Verdict
    saw: str
    elapsed_s: float

    @property
    def is_failure(self) -> bool:
        return self.claim.needed and self.verdict == "broken"

    def as_json(self) -> dict[str, Any]:
        claim = self.claim
        return {
            "name": claim.name,
            "verdict": self.verdict,
            "needed": claim.needed,
            "asked": claim.asked,
            "expected": claim.expected,
            "saw": self.saw,
            "stands": claim.stands,
            "elapsed_s": self.elapsed_s,
        }


def said(error: EngineError) -> str:
    """Its line, without the markup of the page that a proxy may have answered with."""
    line = str(error)
    if not _PAGE.search(line):
        return line
    line = " ".join(_MARKUP.sub(" ", line).split())
    return line if len(line) <= _MAX_SAID_CHARS else line[:_MAX_SAID_CHARS] + "…"


async def try_claim(claim: Claim, subject: Subject, deadline_s: float) -> Check:
    """What is broken is tried once more: on a busy server blocks may leave the cache in between.
    `deadline_s`: on the clock of time.monotonic."""
    check = await _once(claim, subject, deadline_s)
    if check.verdict != "broken":
        return check
    again = await _once(claim, subject, deadline_s)
    if again.verdict == "not tried":
        return check
    return replace(again, elapsed_s=check.elapsed_s + again.elapsed_s)


async def _once(claim: Claim, subject: Subject, deadline_s: float) -> Check:
    started_s = time.monotonic()

    def check(verdict: Verdict, saw: str) -> Check:
        return Check(claim, verdict, saw, time.monotonic() - started_s)

    left_s = min(CLAIM_TIMEOUT_S, deadline_s - started_s)
    if left_s <= 0:
        return check("not tried", "the time was used up")
    try:
        async with asyncio.timeout(left_s):
            seen = await claim.probe(subject)
    except NotTried as reason:
        return check("not tried", str(reason))
    except TimeoutError:
        if left_s < CLAIM_TIMEOUT_S:
            return check("not tried", "the time was used up")
        return check("broken", f"no answer within {CLAIM_TIMEOUT_S:.0f} s")
    except EngineError as error:
        return check("broken", said(error))
    except (LookupError, TypeError, AttributeError, msgspec.ValidationError) as error:
        # what the engine answered has another form than the one that is read
        return check("broken", f"an answer of another form: {type(error).__name__}: {error}")
    return check("holds" if seen.holds else "broken", seen.saw)
