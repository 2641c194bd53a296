"""Why a provider's cache did not hold what it was sent before: by its published rules, as the price
book has them (experiments/prices), on the times, sizes and marks of two calls."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from duramen.experiments.prices.book import Book, Entry
from duramen.experiments.prices.rules import CacheRules
from duramen.experiments.trajectory import Call, Message, Sending
from duramen.layout.diagnose.causes import Cause

# How the models of a provider are called, where others serve their own in the same form of request.
_OWN_NAMES: Mapping[str, re.Pattern[str]] = {
    "anthropic": re.compile(r"(?<![a-z])claude"),
    "openai": re.compile(r"(?<![a-z])(chatgpt|codex|gpt(?!-oss)|o\d)"),
}


class Reason(NamedTuple):
    cause: Cause
    confidence: float
    evidence: str


@dataclass(frozen=True)
class Provider:
    """The rules that can apply to a model. `fallback`: where the book does not have this very
    model, whose rules these are, in words."""

    rules: tuple[CacheRules, ...]
    fallback: str = ""

    @property
    def is_sure(self) -> bool:
        return not self.fallback

    @property
    def min_tokens(self) -> int:
        """No model caches less."""
        return min(rules.min_tokens for rules in self.rules)

    @property
    def granule(self) -> int:
        """Tokens by which a hit may fall short of what is cached."""
        return max(rules.granularity_tokens for rules in self.rules)


def provider_of(sending: Sending, book: Book) -> Provider | None:
    """None where the log names no provider, or one that the book does not have, or a model that is
    none of the provider's: its server only takes the same requests. Variants of a model with
    another life of the cache are left out where the request did not ask for them."""
    own = [entry for entry in book if entry.name.startswith(f"{sending.provider}/")]
    if sending.provider is None or not own:
        return None
    model = _own_name(sending.provider, (sending.model or "").lower())
    if model is None:
        return None
    bases = {_base(entry) for entry in own}
    named = [base for base in bases if re.match(rf"{re.escape(base)}(?![a-z0-9.])", model)]
    base = max(named, key=len, default=None)
    usual = [entry.rules for entry in own if "+" not in entry.name and base in (None, _base(entry))]
    asked = repr(sending.model) if sending.model else "the model, which is not named,"
    whose = f"{asked} is not in the price book: by the rules of all of {sending.provider}'s models"
    return Provider(tuple(dict.fromkeys(usual)), "" if base else whose)


def _own_name(provider: str, model: str) -> str | None:
    """The name without a host's words in front ("us.anthropic.", "vertex_ai/"); None for a model
    of somebody else."""
    names = _OWN_NAMES.get(provider)
    if names is None or not model:
        return model
    found = names.search(model)
    return None if found is None else model[found.start() :]


def provider_reason(provider: Provider, before: Call, after: Call, num_known: int) -> Reason | None:
    """The first rule by which `after` cannot hit what `before` had cached; None if none is known to
    forbid it. `num_known`: tokens that both begin with."""
    found = (
        _below_minimum(provider, num_known)
        or _expired(provider, before, after)
        or _out_of_sight(provider, before, after)
    )
    if found is None or provider.is_sure:
        return found
    return found._replace(evidence=f"{found.evidence} ({provider.fallback})")


def _base(entry: Entry) -> str:
    return entry.name.partition("/")[2].partition("+")[0]


def _below_minimum(provider: Provider, num_known: int) -> Reason | None:
    least, most = provider.min_tokens, max(rules.min_tokens for rules in provider.rules)
    if num_known >= most:
        return None
    minimum = f"{least:,} is the minimum" if least == most else f"{least:,} to {most:,} the minimum"
    evidence = f"{num_known:,} tokens are shared, and {minimum}"
    return Reason("below-minimum", 1.0 if num_known < least else 0.5, evidence)


def _expired(provider: Provider, before: Call, after: Call) -> Reason | None:
    if before.time_s is None or after.time_s is None:
        return None
    gap_s = after.time_s - before.time_s
    asked_s = before.sending.ttl_s
    lives_s = [asked_s] if asked_s else [rules.ttl_s for rules in provider.rules if rules.ttl_s]
    if not lives_s or gap_s <= min(lives_s):
        return None
    surely = gap_s > max(lives_s)
    life_s = max(lives_s) if surely else min(lives_s)
    evidence = f"{gap_s:.0f} s since the last use of the entry, which lives {life_s:.0f} s"
    return Reason("ttl-expired", 1.0 if surely else 0.6, evidence)


def _out_of_sight(provider: Provider, before: Call, after: Call) -> Reason | None:
    """By marks: an entry ends at the earlier call's last one, and is looked for from this call's
    marks on, backwards."""
    marks, old_marks = after.sending.marks, before.sending.marks
    backs = [r.lookback_positions for r in provider.rules if r.kind == "breakpoints"]
    if marks is None or old_marks is None or len(backs) < len(provider.rules):
        return None
    if not marks or not old_marks:
        which = "this call" if old_marks else "the earlier call"
        return Reason("breakpoint-moved", 0.9, f"{which} sets no cache breakpoint")
    entry = max(_positions(before.messages, old_marks))
    looking = [position for position in _positions(after.messages, marks) if position >= entry]
    last, old_last = max(marks), max(old_marks)
    if not looking:
        moved = f"the last breakpoint was on message {old_last} and is on message {last} now"
        return Reason("breakpoint-moved", 1.0, moved)
    distance, reach = min(looking) - entry, max((back or 0) for back in backs)
    if None in backs or distance < reach:
        return None
    evidence = (
        f"{distance} content blocks from the breakpoint on message {old_last} to the next one "
        f"on message {last}; the provider looks back over {reach}, the breakpoint's included"
    )
    return Reason("lookback-exceeded", 1.0, evidence)


def _positions(messages: Sequence[Message], marks: Sequence[int]) -> list[int]:
    """Content blocks up to and with each marked message; 0 for a mark on the tools."""
    ends, position = [], 0
    for message in messages:
        position += num_blocks(message)
        ends.append(position)
    return [0 if mark < 0 else ends[min(mark, len(ends) - 1)] for mark in marks if ends]


def num_blocks(message: Message) -> int:
    """Content blocks that an Anthropic client sends for an OpenAI message."""
    content = message.get("content")
    num_parts = len(content) if isinstance(content, list) else int(bool(content))
    calls = message.get("tool_calls")
    num_calls = len(calls) if isinstance(calls, list) else 0
    return max(num_parts + num_calls + bool(message.get("reasoning_content")), 1)
