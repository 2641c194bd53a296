"""vLLM's KV event stream into a mirror: nothing lost, nothing twice (distributed/kv_events.py).

Batches are numbered. One that is missing is asked for at the replay address; if it is gone there
too, the mirror stops predicting instead of being wrong.
"""

import asyncio
from contextlib import suppress
from typing import Any

import msgspec
import zmq
import zmq.asyncio

from duramen.serving.kv.mirror import KvMirror
from duramen.serving.vllm.launch import EventEndpoints

REPLAY_TIMEOUT_S = 5.0
END_OF_REPLAY = (-1).to_bytes(8, "big", signed=True)


class BlockStored(msgspec.Struct, tag=True):
    block_hashes: list[int | bytes]
    parent_block_hash: int | bytes | None
    token_ids: list[int]
    medium: str | None = None
    lora_name: str | None = None
    extra_keys: list[tuple[Any, ...] | None] | None = None
    group_idx: int | None = None


class BlockRemoved(msgspec.Struct, tag=True):
    block_hashes: list[int | bytes]
    medium: str | None = None
    group_idx: int | None = None


class AllBlocksCleared(msgspec.Struct, tag=True):
    pass


class EventBatch(msgspec.Struct, array_like=True):
    time_s: float
    events: list[BlockStored | BlockRemoved | AllBlocksCleared]
    data_parallel_rank: int | None = None


class EventFeed:
    """Applies batches to `mirror` in order; mirror.sequence is the number of the next one."""

    def __init__(self, mirror: KvMirror, endpoints: EventEndpoints) -> None:
        self._mirror = mirror
        self._endpoints = endpoints
        self._decoder = msgspec.msgpack.Decoder(EventBatch)
        self._last_published = -1
        self._replaying = asyncio.Lock()
        self._context = zmq.asyncio.Context()
        self._subscriber = self._context.socket(zmq.SUB)
        self._subscriber.set_hwm(0)
        self._subscriber.connect(endpoints.publish)
        self._subscriber.subscribe(b"")
        self._task = asyncio.create_task(self._follow())

    async def sync(self) -> bool:
        """Apply everything that the engine has published until now. False if it does not answer."""
        try:
            async with self._replaying:
                await asyncio.wait_for(self._replay(), REPLAY_TIMEOUT_S)
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        self._context.destroy(linger=0)
        self._mirror.break_off("the engine's events are not followed any more")

    async def _follow(self) -> None:
        while True:
            _, number, payload = await self._subscriber.recv_multipart()
            sequence = int.from_bytes(number, "big")
            if sequence <= self._last_published:  # the engine was started anew
                self._mirror.clear()
                self._mirror.sequence = 0
            self._last_published = sequence
            if sequence > self._mirror.sequence:
                await self.sync()
            self._apply(sequence, payload)

    async def _replay(self) -> None:
        with self._context.socket(zmq.DEALER) as dealer:
            dealer.setsockopt(zmq.LINGER, 0)
            dealer.connect(self._endpoints.replay)
            await dealer.send_multipart([b"", self._mirror.sequence.to_bytes(8, "big")])
            while True:
                _, _, number, payload = await dealer.recv_multipart()
                if number == END_OF_REPLAY:
                    return
                self._apply(int.from_bytes(number, "big"), payload)

    def _apply(self, sequence: int, payload: bytes) -> None:
        """Apply a batch once: those that came by the other way before are skipped."""
        if sequence < self._mirror.sequence:
            return
        if sequence > self._mirror.sequence:
            self._mirror.break_off(
                f"event batches {self._mirror.sequence} to {sequence - 1} are lost"
            )
        batch = self._decoder.decode(payload)
        if batch.data_parallel_rank:
            self._mirror.break_off("the engine runs several data-parallel caches")
        for event in batch.events:
            self._apply_event(event)
        self._mirror.sequence = sequence + 1

    def _apply_event(self, event: BlockStored | BlockRemoved | AllBlocksCleared) -> None:
        if isinstance(event, AllBlocksCleared):
            self._mirror.clear()
        elif event.group_idx:
            self._mirror.break_off("the engine caches several groups of layers apart")
        elif event.medium not in (
            None,
            "GPU",
        ):  # an offloading tier, not the pool; CPU build: "GPU"
            return
        elif isinstance(event, BlockRemoved):
            self._mirror.remove(event.block_hashes)
        else:
            self._mirror.store(
                event.block_hashes, event.parent_block_hash, event.token_ids, _salt(event)
            )


def _salt(event: BlockStored) -> str:
    """What sets the first block apart from the same tokens elsewhere: the plain salt, if only that.

    A LoRA adapter's blocks get a salt that no caller can name.
    """
    key = event.extra_keys[0] if event.extra_keys else None
    if key is None:
        return ""
    if len(key) == 1 and isinstance(key[0], str) and event.lora_name is None:
        return key[0]
    return repr((event.lora_name, key))
