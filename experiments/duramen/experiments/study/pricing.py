"""What each provider would bill for a layout's calls.

The tokens are those of the study's own tokenizer, whichever the provider's: prices of layouts can
be compared with each other, and are no quote. The client sets cache breakpoints as agents commonly
do; under `zoned` it marks the ends of root and trunk, because the turns behind them slide, and the
prompt's end too where they leave several at once. A message counts as one position for a provider's
look-back, tool results in a row as one; thinking, text and tool uses of one message are not told
apart.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from hashlib import blake2b

from duramen.experiments.layouts.catalogue import Layout, LayoutName
from duramen.experiments.prices.book import Entry
from duramen.experiments.prices.call import KEY_TOKENS, PricedCall, Usage
from duramen.experiments.prices.provider_cache import ProviderCache
from duramen.experiments.study.keys import Ids, KeyChain
from duramen.experiments.study.walk import Step
from duramen.layout.blocks import common_prefix
from duramen.layout.zones import Prompt, Span, Zone

# how spans name what they belong to: "message 3 (tool)", "message 3 end", "message 3 (user) part 1"
MESSAGE = re.compile(
    r"message (?P<number>\d+)(?: \((?P<role>\w+)\))?(?: text)?(?: end)?(?: part (?P<part>\d+))?"
)
REPLY = "generation prompt"


@dataclass
class Pricing:
    """All entries over one layout's calls, in time order. Entries of equal rules share a cache.

    `serve` raises PriceError where a price is missing.
    """

    entries: Sequence[Entry]
    layout: Layout
    usage: dict[str, Usage] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._caches = {entry.rules: ProviderCache(entry.rules) for entry in self.entries}
        self._chain = KeyChain(KEY_TOKENS)

    def serve(self, step: Step, prompt: Ids) -> dict[str, Decimal]:
        """USD of a call, by provider/model."""
        call = self._call(step, prompt)
        usages = {rules: cache.serve(call) for rules, cache in self._caches.items()}
        usd = {}
        for entry in self.entries:
            usage = usages[entry.rules]
            self.usage[entry.name] = self.usage.get(entry.name, Usage()) + usage
            usd[entry.name] = entry.cost(usage)
        return usd

    def forget(self, session_id: str) -> None:
        self._chain.forget(session_id)

    def _call(self, step: Step, prompt: Ids) -> PricedCall:
        session_id = step.session.session_id
        keys = self._chain.keys(session_id, prompt)
        blocks = list(content_blocks(step.prompt))
        ends = [block.end for block in blocks]
        content_ends = [*ends[:-1], _end_of_content(step.prompt)]
        return PricedCall(
            time_s=step.time_s,
            num_tokens=len(prompt),
            output_tokens=len(step.reply_ids),
            keys=keys,
            ends=ends,
            end_keys=[_key_at(keys, prompt, end) for end in content_ends],
            session=session_id,
            marks=self._marks(blocks),
        )

    def _marks(self, blocks: Sequence["Block"]) -> list[int] | None:
        if self.layout.name is not LayoutName.ZONED:
            return None
        last = {block.zone: number for number, block in enumerate(blocks)}
        if self.layout.step == 1:
            last.pop(Zone.LEAF, None)
        return sorted(last.values())


@dataclass(frozen=True)
class Block:
    """A message's tokens up to `end`; tool results in a row are one, as providers count them."""

    end: int
    zone: Zone


def content_blocks(prompt: Prompt) -> Iterator[Block]:
    """One per message, however the template frames it; the last one ends with the prompt, the
    opening of the reply included. What belongs to no message stays with the one before it."""
    opening = prompt.token_ids[_end_of_content(prompt) :]
    current, zone, begin = _owner(prompt.spans[0]), prompt.spans[0].zone, 0
    for span in prompt.spans[1:]:
        owner = _owner(span)
        if owner is None or (span.end == len(prompt.token_ids) and owner.message is None):
            continue
        if current is not None and not owner.goes_on(current):
            end = span.start
            if span.source.endswith("text"):  # it has no frame of its own
                end = _before_opening(prompt.token_ids, begin, end, opening)
            yield Block(end, zone)
            zone, begin = span.zone, end
        current = owner
    yield Block(len(prompt.token_ids), zone)


def _before_opening(ids: Sequence[int], begin: int, end: int, opening: Sequence[int]) -> int:
    """Where a reply's frame begins, if it is counted with the block [begin, end) before it: at the
    last place that looks most like the `opening` of the prompt's own reply, at least half of it."""
    best, num_best = end, (len(opening) - 1) // 2
    for start in range(end - 1, max(end - 4 * len(opening), begin), -1):
        num_same = common_prefix(ids[start:end], opening)
        if num_same > num_best:
            best, num_best = start, num_same
    return best


@dataclass(frozen=True)
class _Owner:
    """What a span belongs to: a message (None: the reply that is being opened) and, of messages
    that were merged into one, its part; the role where the span names it."""

    message: str | None
    part: str | None = None
    role: str | None = None

    def goes_on(self, before: "_Owner") -> bool:
        if before.message is None:
            return self.role in ("assistant", None)
        is_same = (self.message, self.part) == (before.message, before.part)
        return is_same or self.role == before.role == "tool"


def _owner(span: Span) -> _Owner | None:
    if span.source == REPLY:
        return _Owner(None, role="assistant")
    found = MESSAGE.match(span.source)
    return _Owner(found["number"], found["part"], found["role"]) if found else None


def _end_of_content(prompt: Prompt) -> int:
    last = prompt.spans[-1]
    return last.start if last.source == REPLY else last.end


def _key_at(keys: Sequence[bytes], prompt: Ids, end: int) -> bytes:
    """Equal where everything up to `end` is: the chained key before it, and the tokens since."""
    num_full = end // KEY_TOKENS
    before = keys[num_full - 1] if num_full else b""
    since = prompt[num_full * KEY_TOKENS : end].tobytes()
    return blake2b(before + since, digest_size=16).digest()


def usage_json(usage: Mapping[str, Usage]) -> dict[str, dict[str, int]]:
    """Billed tokens by model and kind."""
    return {
        model: {name: getattr(sums, name) for name in Usage.__slots__}
        for model, sums in usage.items()
    }
