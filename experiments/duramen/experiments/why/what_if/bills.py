"""What each call of a session costs: at an engine's block cache, at providers, on own GPUs.

Each session is served alone, from an empty cache, by the accounting of the layout study.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

import numpy as np

from duramen.experiments.layouts.catalogue import Layout, LayoutName
from duramen.experiments.layouts.model import Model
from duramen.experiments.prices.book import Entry
from duramen.experiments.prices.own_gpu import TimeModel
from duramen.experiments.study.keys import Ids, KeyChain
from duramen.experiments.study.measure import ids_of
from duramen.experiments.study.pricing import Pricing
from duramen.experiments.study.walk import Step, Walk
from duramen.experiments.target import num_pool_blocks
from duramen.experiments.trajectory import Session
from duramen.serving.kv.cache import BlockCache

AS_GIVEN = Layout(LayoutName.RECORDED)


@dataclass(frozen=True)
class Payers:
    """Who is asked what it costs. `devices`: by name. The rest is of the engine's cache, as in
    `why`; providers' caches have rules of their own."""

    entries: Sequence[Entry] = ()
    devices: Mapping[str, TimeModel] = field(default_factory=dict)
    unit_tokens: int = 16
    kv_tokens: int | None = None
    draft: bool = False

    @property
    def names(self) -> list[str]:
        return [*(entry.name for entry in self.entries), *self.devices]


@dataclass(frozen=True)
class Bill:
    """One call. `cached`: tokens that the engine reuses. `usd`: by payer; of GPUs the modelled
    `seconds` at their price per hour."""

    call: int
    num_tokens: int
    cached: int
    usd: Mapping[str, Decimal]
    seconds: Mapping[str, float]

    @property
    def computed(self) -> int:
        return self.num_tokens - self.cached


class Engine:
    """One session's block cache."""

    def __init__(self, payers: Payers) -> None:
        size, unit = payers.kv_tokens, payers.unit_tokens
        num_blocks = None if size is None else num_pool_blocks(size, unit) + 1  # vLLM's null block
        self._cache = BlockCache(num_blocks, unit, draft=payers.draft)
        self._chain = KeyChain(unit)

    def serve(self, prompt: Ids, reply: Ids) -> int:
        """Tokens that hit: none where the pool cannot hold the call."""
        keys = self._chain.keys("served", np.concatenate([prompt, reply[:-1]]))
        return self._cache.serve(keys, len(prompt), len(reply[:-1])) or 0

    def match(self, prompt: Ids) -> int:
        """Tokens that would hit. Nothing changes."""
        return self._cache.match(self._chain.keys("asked", prompt), len(prompt))


def steps(session: Session, model: Model) -> Iterator[Step]:
    """Calls that the template refuses are left out."""
    return Walk(model, AS_GIVEN)(session)


def bills(sent: Iterable[Step], payers: Payers) -> Iterator[Bill]:
    engine, pricing = Engine(payers), Pricing(payers.entries, AS_GIVEN)
    for step in sent:
        prompt, reply = ids_of(step.prompt.token_ids), ids_of(step.reply_ids)
        cached = engine.serve(prompt, reply)
        usd = dict(pricing.serve(step, prompt))
        seconds = {}
        for name, device in payers.devices.items():
            num_steps = max(len(reply) - 1, 0)
            seconds[name] = device.prefill_s(len(prompt) - cached, cached)
            seconds[name] += device.decode_s(num_steps, len(prompt))
            usd[name] = device.cost(seconds[name])
        yield Bill(step.call, len(prompt), cached, usd, seconds)
