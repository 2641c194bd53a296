"""The engines that a study compares: match unit, draft model, radix tree, size of the pool."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from duramen.experiments.study.keys import Ids, KeyChain
from duramen.experiments.study.prefixes import Lcp
from duramen.experiments.target import num_pool_blocks
from duramen.layout.blocks import reusable_tokens
from duramen.layout.errors import LayoutError
from duramen.serving.kv.cache import BlockCache
from duramen.serving.kv.radix import RadixCache


@dataclass(frozen=True)
class Arm:
    """`unit`: match unit and block size in tokens, of a radix tree the page. `draft`: a draft model
    loses the last matched block. `kv_tokens`: size of the pool, None = infinite."""

    unit: int = 16
    draft: bool = False
    radix: bool = False
    kv_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.unit < 1:
            raise LayoutError(f"match unit {self.unit} is below 1")
        if self.radix and self.draft:
            raise LayoutError("a radix tree with a draft model is not modelled")
        if self.kv_tokens is not None:
            num_pool_blocks(self.kv_tokens, self.unit)

    @property
    def label(self) -> str:
        parts = [f"{'radix page' if self.radix else 'unit'} {self.unit}"]
        parts += ["draft"] if self.draft else []
        parts += [] if self.kv_tokens is None else [f"pool {self.kv_tokens}"]
        return ", ".join(parts)

    def reusable(self, lcp: int, num_tokens: int) -> int:
        """What an engine with this unit can reuse of a prefix if nothing was evicted."""
        return reusable_tokens(lcp, num_tokens, self.unit, draft=self.draft)


class ArmCache:
    """One arm's cache over one layout. With an infinite pool a hit follows from the prefix alone;
    a finite one goes through the exact cache model."""

    def __init__(self, arm: Arm) -> None:
        self.arm = arm
        self._radix: RadixCache | None = None
        self._blocks: BlockCache | None = None
        if arm.kv_tokens is None:
            return
        num_units = num_pool_blocks(arm.kv_tokens, arm.unit)
        if arm.radix:
            self._radix = RadixCache(num_units * arm.unit, arm.unit)
        else:
            self._blocks = BlockCache(num_units + 1, arm.unit, draft=arm.draft)  # one is null
            self._chain = KeyChain(arm.unit)

    def serve(self, session_id: str, prompt: Ids, computed: Ids, lcp: Lcp) -> int | None:
        """Hit tokens of a call, None where the pool cannot hold it. `computed`: the prompt and the
        sampled tokens but the last, which is never computed."""
        if self._radix is not None:
            last_sampled = np.zeros(1, np.uint32)  # whatever it is
            return self._radix.serve(
                prompt, np.concatenate([computed[len(prompt) :], last_sampled])
            )
        if self._blocks is not None:
            keys = self._chain.keys(session_id, computed)
            return self._blocks.serve(keys, len(prompt), len(computed) - len(prompt))
        return self.arm.reusable(lcp.computed, len(prompt))

    def forget(self, session_id: str) -> None:
        """The session has ended: no key of it will be asked for again."""
        if self._blocks is not None:
            self._chain.forget(session_id)


def arms_of(
    units: Sequence[int], pools: Sequence[int | None], *, draft: bool, radix: bool
) -> list[Arm]:
    """Every unit with an infinite pool, with a draft model too if `draft`, a radix tree if `radix`;
    and the first unit with each pool."""
    arms = [Arm(unit) for unit in units]
    arms += [Arm(unit, draft=True) for unit in units[:1] if draft]
    arms += [Arm(1, radix=True)] if radix else []
    arms += [Arm(units[0], kv_tokens=pool) for pool in pools if pool is not None]
    arms += [Arm(1, radix=True, kv_tokens=p) for p in pools if radix and p is not None]
    return list(dict.fromkeys(arms))
