"""What a gateway does beside its calls, for as long as it runs."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from duramen.layout.errors import EngineError
from duramen.serving.gateway.engines import Member
from duramen.serving.gateway.sessions.tree import SessionTree

EXPIRE_EVERY_S = 600.0
EXPIRE_PAUSE_S = 0.05  # for calls, between two steps
PREEMPTIONS_EVERY_S = 5.0


@asynccontextmanager
async def chores(tree: SessionTree, ttl_s: float, members: Sequence[Member]) -> AsyncIterator[None]:
    """Sessions expire, preemptions are read, while the block runs."""
    running = [
        asyncio.create_task(_expire(tree, ttl_s)),
        asyncio.create_task(_count_preemptions(members)),
    ]
    try:
        yield
    finally:
        for chore in running:
            chore.cancel()
        await asyncio.wait(running)


async def _expire(tree: SessionTree, ttl_s: float) -> None:
    while True:
        before_s = time.time() - ttl_s
        tree.forget_older(before_s)
        while tree.store.expire(before_s):  # a few at a time, calls in between
            await asyncio.sleep(EXPIRE_PAUSE_S)
        await asyncio.sleep(EXPIRE_EVERY_S)


async def _count_preemptions(members: Sequence[Member]) -> None:
    """What each engine says of itself, now and then."""
    while True:
        for member in members:
            if member.engine is not None:
                with suppress(EngineError):
                    member.num_preemptions = await member.engine.num_preemptions()
        await asyncio.sleep(PREEMPTIONS_EVERY_S)
