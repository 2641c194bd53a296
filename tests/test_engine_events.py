"""The event feed over real ZMQ sockets: order, gaps, replay, restart."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
import zmq
import zmq.asyncio
from mirror_cases import predict

from duramen.serving.kv.mirror import KvMirror
from duramen.serving.vllm.events import (
    END_OF_REPLAY,
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    EventBatch,
    EventFeed,
)
from duramen.serving.vllm.launch import EventEndpoints

A, B = [1, 2, 3, 4], [5, 6, 7, 8]
STORE_A = BlockStored(block_hashes=[b"a"], parent_block_hash=None, token_ids=A)
STORE_B = BlockStored(block_hashes=[b"b"], parent_block_hash=b"a", token_ids=B)


@dataclass
class Publisher:
    """The engine's end of the stream; `lost` batches are numbered but not sent."""

    pub: zmq.asyncio.Socket
    buffer: list[tuple[int, bytes]] = field(default_factory=list)
    sequence: int = 0

    async def publish(self, *events: object, lost: bool = False, forgotten: bool = False) -> None:
        payload = msgspec.msgpack.encode(EventBatch(0.0, list(events)))  # type: ignore[arg-type]
        number = self.sequence
        self.sequence += 1
        if not forgotten:
            self.buffer.append((number, payload))
        if not lost:
            await self.pub.send_multipart([b"", number.to_bytes(8, "big"), payload])

    async def serve_replay(self, router: zmq.asyncio.Socket) -> None:
        while True:
            client, _, number = await router.recv_multipart()
            for sequence, payload in self.buffer:
                if sequence >= int.from_bytes(number, "big"):
                    parts = [client, b"", b"", sequence.to_bytes(8, "big"), payload]
                    await router.send_multipart(parts)
            await router.send_multipart([client, b"", b"", END_OF_REPLAY, b""])


@dataclass
class Stream:
    publisher: Publisher
    mirror: KvMirror
    feed: EventFeed

    async def until(self, sequence: int) -> None:
        async with asyncio.timeout(10):
            while self.mirror.sequence < sequence:
                await asyncio.sleep(0.001)


@pytest.fixture
async def stream(tmp_path: Path) -> AsyncIterator[Stream]:
    endpoints = EventEndpoints(f"ipc://{tmp_path}/events", f"ipc://{tmp_path}/replay")
    context = zmq.asyncio.Context()
    pub, router = context.socket(zmq.XPUB), context.socket(zmq.ROUTER)
    pub.bind(endpoints.publish)
    router.bind(endpoints.replay)
    publisher, mirror = Publisher(pub), KvMirror(4)
    server = asyncio.create_task(publisher.serve_replay(router))
    feed = EventFeed(mirror, endpoints)
    await pub.recv()  # the subscription has arrived: from here on nothing is lost by chance
    yield Stream(publisher, mirror, feed)
    await feed.close()
    server.cancel()
    context.destroy(linger=0)


async def test_events_are_applied_in_order(stream: Stream) -> None:
    await stream.publisher.publish(STORE_A, STORE_B)
    await stream.publisher.publish(BlockRemoved(block_hashes=[b"b"]))
    await stream.until(2)
    assert predict(stream.mirror, [*A, *B, 0]) == 4
    await stream.publisher.publish(AllBlocksCleared())
    await stream.until(3)
    assert predict(stream.mirror, [*A, *B, 0]) == 0


async def test_a_lost_batch_is_replayed_before_the_next_is_applied(stream: Stream) -> None:
    await stream.publisher.publish(STORE_A, lost=True)
    await stream.publisher.publish(STORE_B)
    await stream.until(2)
    assert predict(stream.mirror, [*A, *B, 0]) == 8


async def test_sync_fetches_a_lost_last_batch(stream: Stream) -> None:
    await stream.publisher.publish(STORE_A, lost=True)
    assert await stream.feed.sync()
    assert predict(stream.mirror, [*A, 0]) == 4


async def test_a_batch_that_is_gone_stops_predictions_until_the_next_clear(stream: Stream) -> None:
    await stream.publisher.publish(STORE_A)
    await stream.publisher.publish(BlockRemoved(block_hashes=[b"a"]), lost=True, forgotten=True)
    await stream.publisher.publish(STORE_A)
    await stream.until(3)
    assert predict(stream.mirror, [*A, 0]) is None
    assert stream.mirror.broken == "event batches 1 to 1 are lost"
    await stream.publisher.publish(AllBlocksCleared(), STORE_A)
    await stream.until(4)
    assert predict(stream.mirror, [*A, 0]) == 4


async def test_a_restarted_engine_starts_an_empty_mirror(stream: Stream) -> None:
    await stream.publisher.publish(STORE_A)
    await stream.publisher.publish(STORE_B)
    await stream.until(2)
    stream.publisher.sequence = 0
    stream.publisher.buffer.clear()
    await stream.publisher.publish(STORE_A)
    async with asyncio.timeout(10):
        while stream.mirror.sequence != 1:
            await asyncio.sleep(0.001)
    assert predict(stream.mirror, [*A, *B, 0]) == 4


async def test_salt_comes_with_the_first_block_and_an_adapter_is_no_salt(stream: Stream) -> None:
    salted = msgspec.structs.replace(STORE_A, extra_keys=[("tenant",)])
    adapter = msgspec.structs.replace(STORE_A, extra_keys=[("other",)], lora_name="other")
    await stream.publisher.publish(salted, adapter)
    await stream.until(1)
    assert predict(stream.mirror, [*A, 0], "tenant") == 4
    assert predict(stream.mirror, [*A, 0], "other") == 0
    assert predict(stream.mirror, [*A, 0]) == 0


async def test_layers_cached_in_groups_are_not_predicted(stream: Stream) -> None:
    await stream.publisher.publish(msgspec.structs.replace(STORE_A, group_idx=1))
    await stream.until(1)
    assert predict(stream.mirror, [*A, 0]) is None
