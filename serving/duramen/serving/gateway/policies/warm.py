"""Roots that were used lately, computed again after an engine (re)start, before anyone asks."""

import logging
from array import array
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from duramen.layout.errors import EngineError, LayoutError
from duramen.serving.gateway import log

LOWEST_PRIORITY = 2**62  # vLLM runs lower numbers first


@dataclass(frozen=True)
class Root:
    """`token_ids`: of the zone ROOT. `salt`: the cache salt that it was sent with."""

    token_ids: Sequence[int]
    salt: str
    num_uses: int


Send = Callable[[Sequence[int], str, int], Awaitable[object]]  # token ids, salt, priority


class RecentRoots:
    """The last `capacity` distinct roots. Takes 4 bytes a token."""

    def __init__(self, capacity: int) -> None:
        if capacity < 0:
            raise LayoutError(f"cannot remember {capacity} roots: give 0 or more")
        self.capacity = capacity
        self._uses: OrderedDict[tuple[str, bytes], int] = OrderedDict()  # the latest last

    def use(self, token_ids: Sequence[int], salt: str) -> None:
        """A session has begun with this root. An empty one is nothing to remember."""
        if not self.capacity or not token_ids:
            return
        key = (salt, array("I", token_ids).tobytes())
        self._uses[key] = self._uses.pop(key, 0) + 1
        if len(self._uses) > self.capacity:
            self._uses.popitem(last=False)

    def roots(self) -> list[Root]:
        """Most used first; of equally used ones the latest."""
        latest = [
            Root(array("I", token_bytes), salt, num_uses)
            for (salt, token_bytes), num_uses in reversed(self._uses.items())
        ]
        return sorted(latest, key=lambda root: -root.num_uses)


async def warm(roots: Sequence[Root], send: Send) -> None:
    """Send each root once, one after the other, behind all other work.

    `send` computes a prompt and one token. An EngineError that it raises is logged: a root that
    cannot be warmed is computed by the first call that needs it.
    """
    for root in roots:
        try:
            await send(root.token_ids, root.salt, LOWEST_PRIORITY)
        except EngineError as error:
            log.event("root_not_warmed", logging.WARNING, error=error)
