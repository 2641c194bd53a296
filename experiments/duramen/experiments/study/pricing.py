"""What each provider would bill for a layout's calls.

The tokens are those of the study's own tokenizer, whichever the provider's: prices of layouts can
be compared with each other, and are no quote. The client sets cache breakpoints as agents commonly
do; under `zoned` it marks the ends of root and trunk, because the turns behind them slide.
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
from duramen.layout.zones import Prompt, Zone

MESSAGE = re.compile(r"message \d+ \((\w+)\)")  # a span that opens a message
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
        return sorted(number for zone, number in last.items() if zone is not Zone.LEAF)


@dataclass(frozen=True)
class Block:
    """A message's tokens up to `end`; tool results in a row are one, as providers count them."""

    end: int
    zone: Zone


def content_blocks(prompt: Prompt) -> Iterator[Block]:
    """The last one ends with the prompt, the opening of the reply included."""
    end, zone, role = prompt.spans[0].end, prompt.spans[0].zone, ""
    for span in prompt.spans[1:]:
        opened = MESSAGE.fullmatch(span.source)
        opens_reply = span.source == REPLY and span.end < len(prompt.token_ids)
        if opened or opens_reply:
            new_role = opened[1] if opened else "assistant"
            if not (role == new_role == "tool"):
                yield Block(end, zone)
            zone, role = span.zone, new_role
        end = span.end
    yield Block(end, zone)


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
