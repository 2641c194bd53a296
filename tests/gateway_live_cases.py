"""A gateway in front of live vLLM: in a thread of this process, or as the real command."""

import asyncio
import json
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import openai
from gateway_cases import Message, Quiet, free_port, until

from duramen.serving.gateway.bring_up import engines_of
from duramen.serving.gateway.serve_config import ServeConfig
from duramen.serving.gateway.server import Run, running
from duramen.serving.gateway.settings import Limits, Settings
from duramen.serving.vllm.engine import VllmEngine
from duramen.serving.vllm.launch import VllmProcess

MODEL = "smollm2"
ALIAS = "small"
UNIT = 32
MAX_BODY_BYTES = 2**20
START_LIMIT_S = 240  # vLLM's start takes 20 s on two idle cores


@dataclass(frozen=True)
class LiveGateway:
    """One that takes calls, in a thread whose event loop is `loop`. `url` ends in /v1."""

    url: str
    vllm: VllmProcess
    run: Run
    loop: asyncio.AbstractEventLoop

    @property
    def root(self) -> str:
        return self.url.removesuffix("/v1")

    def client(self, **options: Any) -> openai.AsyncOpenAI:
        return client_of(self.url, **options)

    async def settled(self, token_ids: Sequence[int]) -> None:
        """The mirror has heard that the engine has cached them."""
        engine = self.run.gateway.engines.members[0].engine
        assert isinstance(engine, VllmEngine)
        settling = asyncio.run_coroutine_threadsafe(engine.settle(token_ids), self.loop)
        assert await asyncio.wrap_future(settling)


def client_of(url: str, **options: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0, **options)


@contextmanager
def attached(vllm: VllmProcess) -> Iterator[LiveGateway]:
    """A gateway without a store, attached to `vllm`."""
    config = ServeConfig(
        settings=Settings(aliases=(ALIAS,), limits=Limits(max_body_bytes=MAX_BODY_BYTES)),
        model_dir=vllm.model_dir,
        model_name=MODEL,
        operator=Quiet(),
        upstreams=(vllm.url,),
        upstream_events={vllm.url: vllm.events},
        port=free_port(),
    )
    ready: Future[LiveGateway] = Future()
    end = asyncio.Event()

    async def serve() -> None:
        async with running(config, engines_of(config)) as run:
            await run.gateway.engines.members[0].supervisor.wait_until_ready()
            await until(lambda: run.server.started)
            ready.set_result(LiveGateway(config.url, vllm, run, asyncio.get_running_loop()))
            await end.wait()

    def give_up(done: "Future[None]") -> None:
        if not ready.done():
            ready.set_exception(done.exception() or RuntimeError("it ended before it was ready"))

    with ThreadPoolExecutor(1) as pool:
        serving = pool.submit(asyncio.run, serve())
        serving.add_done_callback(give_up)
        gateway = ready.result()
        try:
            yield gateway
        finally:
            gateway.loop.call_soon_threadsafe(end.set)
            serving.result()


class Served:
    """`duramen serve` as a process, with what it said."""

    def __init__(self, *arguments: str) -> None:
        self.port = free_port()
        self.said: list[str] = []
        command = [sys.executable, "-m", "duramen.cli.main", "serve", *arguments]
        command += ["--port", str(self.port)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.said += self.process.stderr

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, **options: Any) -> openai.AsyncOpenAI:
        return client_of(f"{self.root}/v1", **options)

    def health(self) -> tuple[int, dict[str, Any]]:
        """(0, {}) while nothing listens."""
        try:
            with urllib.request.urlopen(f"{self.root}/health", timeout=30) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)
        except OSError:
            return 0, {}

    async def ready(self) -> None:
        deadline_s = time.monotonic() + START_LIMIT_S
        while (await asyncio.to_thread(self.health))[0] != 200:
            ends = self.process.poll() is not None or time.monotonic() > deadline_s
            assert not ends, "".join(self.said)
            await asyncio.sleep(0.1)

    def kill(self) -> None:
        """SIGKILL: it cannot do anything about it."""
        self.process.kill()
        self._ended()

    def terminate(self) -> int:
        self.process.terminate()
        return self._ended()

    def _ended(self) -> int:
        code = self.process.wait(120)
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code


async def wait_for(condition: Callable[[], object], limit_s: float = 120) -> None:
    """`condition` may block: it runs in a thread."""
    deadline_s = time.monotonic() + limit_s
    while not await asyncio.to_thread(condition):
        assert time.monotonic() < deadline_s, "waited in vain"
        await asyncio.sleep(0.05)


@contextmanager
def serving(*arguments: str) -> Iterator[Served]:
    """Ended at the end, unless that happened before."""
    served = Served(*arguments)
    try:
        yield served
    finally:
        if served.process.returncode is None:
            served.terminate()


def behind(vllm: VllmProcess, store: Path) -> list[str]:
    """Arguments of `duramen serve` for a gateway that is attached to `vllm`."""
    events = f"{vllm.events.publish},{vllm.events.replay}"
    where = ["--upstream", vllm.url, "--kv-events", events, "--store", str(store)]
    return [str(vllm.model_dir), "--model-name", MODEL, *where]


def fresh(text: str) -> list[Message]:
    """A system message that no other test sends, and `text`: nothing of it is cached."""
    system = f"{uuid4()} is the number of this talk. You answer briefly and to the point."
    return [{"role": "system", "content": system}, {"role": "user", "content": text}]
