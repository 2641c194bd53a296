"""vLLM behind the Engine protocol: a child of ours, or a server that runs already."""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any

from duramen.layout.errors import EngineError, RequestError
from duramen.serving.kv.mirror import KvMirror
from duramen.serving.timing_profile import Flag
from duramen.serving.vllm.events import EventFeed
from duramen.serving.vllm.facts import eos_token_ids, read_facts
from duramen.serving.vllm.flags import read_flags
from duramen.serving.vllm.http import EngineHttp
from duramen.serving.vllm.itl_report import ItlReport
from duramen.serving.vllm.launch import EventEndpoints, Progress, VllmConfig, VllmProcess
from duramen.serving.vllm.protocol import Completion, EngineInfo, OnTokens, Sampling, Tool
from duramen.serving.vllm.seam import Seam, find_seam
from duramen.serving.vllm.timings import EngineTimes, parse_preemptions, parse_times

START_TIMEOUT_S = 900.0
SETTLE_TIMEOUT_S = 2.0
STEPS_IN_FLIGHT = 2  # with async scheduling one step is planned while another runs


class VllmEngine:
    """Implements protocol.Engine. Made by `launch` or `attach`."""

    def __init__(self, http: EngineHttp, seam: Seam, info: EngineInfo, *, dev_mode: bool) -> None:
        self.info = info
        self.mirror: KvMirror | None = None
        self._http = http
        self._seam = seam
        self._dev_mode = dev_mode
        self._feed: EventFeed | None = None
        self._process: VllmProcess | None = None

    async def complete(
        self,
        token_ids: Sequence[int],
        sampling: Sampling,
        *,
        tools: Sequence[Tool] = (),
        salt: str = "",
        on_tokens: OnTokens | None = None,
    ) -> Completion:
        return await self._seam.run(token_ids, sampling, tools, salt, on_tokens)

    async def num_preemptions(self) -> int | None:
        return parse_preemptions((await self._http.get("/metrics")).decode())

    async def flags(self) -> dict[str, Flag]:
        """Those that decide how it batches; empty where the server does not say."""
        return await read_flags(self._http)

    def itl_report(self) -> ItlReport | None:
        return None if self._process is None else self._process.itl_report()

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        return await self._http.post(path, body)

    def batches(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[list[bytes], None]:
        return self._http.batches(path, body)

    @property
    def is_alive(self) -> bool | None:
        """Whether the server that we started runs; None for one that we only attached to."""
        return None if self._process is None else self._process.is_alive

    async def is_healthy(self, timeout_s: float) -> bool:
        """Whether the server says in time that its engine works."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._http.get("/health")
        except (EngineError, TimeoutError):
            return False
        return True

    def explain(self) -> str:
        """What is known of a server that died or does not answer: a sentence. Ask before `close`,
        which deletes the log."""
        return self._http.explain()

    async def settle(self, token_ids: Sequence[int], salt: str = "") -> bool:
        if self._feed is None or self.mirror is None:
            return False
        deadline_s = time.monotonic() + SETTLE_TIMEOUT_S
        await self._drain()
        while await self._feed.sync():
            if self.mirror.holds_all(token_ids, salt):
                return True
            if time.monotonic() > deadline_s:
                break
        return False

    async def reset_prefix_cache(self) -> bool:
        """The engine publishes a reset only with its next step: the mirror is emptied here."""
        if not self._dev_mode:
            return False
        if self._feed is not None:
            await self._drain()
            await self._feed.sync()
        answer = await self._http.post("/reset_prefix_cache", {})
        if answer["success"] and self.mirror is not None:
            self.mirror.clear()
        return bool(answer["success"])

    async def times(self) -> EngineTimes | None:
        try:
            page = await self._http.get("/metrics")
        except RequestError:  # it is there, and does not show this page
            return None
        return parse_times(page.decode(errors="replace"))

    async def close(self) -> None:
        if self._feed is not None:
            await self._feed.close()
            self._feed = None
        await self._http.close()
        if self._process is not None:
            await asyncio.to_thread(self._process.stop)

    async def _drain(self) -> None:
        """Return when the steps that ran at the call have ended: the core answers between steps."""
        if self._dev_mode:
            for _ in range(STEPS_IN_FLIGHT):
                await self._http.get("/is_sleeping")


async def launch(config: VllmConfig, progress: Progress = lambda line: None) -> VllmEngine:
    """Start vLLM, wait until it answers, connect. Raises EngineError with what its log says."""
    process = VllmProcess(config)
    try:
        await wait_until_ready(process, progress)
        http = EngineHttp(process.url, process.explain)
        engine = await _connect(http, None, process.events, config.model_dir)
    except BaseException:
        await asyncio.to_thread(process.stop)
        raise
    engine._process = process
    return engine


async def attach(
    url: str,
    *,
    model: str | None = None,
    events: EventEndpoints | None = None,
    model_dir: Path | None = None,
    api_key: str | None = None,
) -> VllmEngine:
    """Connect to a running server; `close` leaves it running.

    `model` says which one if it serves several, `model_dir` where its EOS ids are written. Raises
    EngineError if the server does not answer, is too old, or does not run token ids of ours.
    """
    where = "Is it running, and is the address right?"
    http = EngineHttp(url, lambda: where, api_key=api_key)
    return await _connect(http, model, events, model_dir)


async def wait_until_ready(process: VllmProcess, progress: Progress) -> None:
    """Return when the server answers. Raises EngineError if it ends before, or takes too long."""
    started_s = time.monotonic()
    http = EngineHttp(process.url, process.explain)
    try:
        while (waited_s := time.monotonic() - started_s) < START_TIMEOUT_S:
            if not process.is_alive:
                raise EngineError(f"vLLM did not start. {process.explain()}")
            progress(f"starting vLLM, {waited_s:.0f} s")
            try:
                await http.get("/health")
                return
            except EngineError:
                await asyncio.sleep(0.5)
    finally:
        await http.close()
    raise EngineError(f"vLLM is not up after {START_TIMEOUT_S:.0f} s. {process.explain()}")


async def _connect(
    http: EngineHttp, model: str | None, events: EventEndpoints | None, model_dir: Path | None
) -> VllmEngine:
    """An engine that owns `http`, with its mirror caught up."""
    try:
        facts = await read_facts(http, model)
        seam, probe = await find_seam(http, facts.model)
        info = EngineInfo(
            name="vllm",
            version=facts.version,
            model=facts.model,
            max_model_len=facts.max_model_len,
            unit_tokens=facts.unit_tokens,
            num_kv_blocks=facts.num_kv_blocks,
            eos_token_ids=eos_token_ids(model_dir) if model_dir else (),
            reports_cached=probe.cached_tokens is not None,
            kv_dtype=facts.kv_dtype,
        )
        engine = VllmEngine(http, seam, info, dev_mode=facts.dev_mode)
        if events is not None:
            engine.mirror = KvMirror(facts.block_size)
            engine._feed = EventFeed(engine.mirror, events)
            await engine.settle(())
    except BaseException:
        await http.close()
        raise
    return engine
