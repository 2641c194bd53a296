"""A gateway from its configuration to the end of its last call."""

import asyncio
import math
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import FrameType

import uvicorn

from duramen.layout.errors import EngineError
from duramen.serving.gateway import log
from duramen.serving.gateway.app import make_app
from duramen.serving.gateway.bring_up import EngineStart, engines_of, open_gateway
from duramen.serving.gateway.gateway import Gateway
from duramen.serving.gateway.http_protocol import BoundedHttp
from duramen.serving.gateway.serve_config import ServeConfig

DRAIN_S = 60.0


def serve(config: ServeConfig) -> None:
    """Run until SIGTERM or SIGINT; calls that run then are finished. Raises DuramenError if the
    files of the model or the store cannot be used, EngineError if the engine does not stay up."""
    with log.json_lines(sys.stderr):
        uvicorn_loop = uvicorn.Config(_nothing, log_config=None).get_loop_factory()
        with asyncio.Runner(loop_factory=uvicorn_loop) as runner:
            runner.run(_serve(config))


async def _nothing(scope: object, receive: object, send: object) -> None: ...


async def _serve(config: ServeConfig) -> None:
    async with running(config, engines_of(config)) as run:
        await run.ended()
        failed = [m for m in run.gateway.engines.members if m.supervisor.state == "failed"]
        if len(failed) == len(run.gateway.engines.members):
            raise EngineError(f"no engine stays up: {run.gateway.engines.why_down}")


@dataclass(frozen=True)
class Run:
    """A gateway that takes calls, and what it consists of."""

    gateway: Gateway
    server: uvicorn.Server
    serving: asyncio.Task[None]
    supervising: Sequence[asyncio.Task[None]]

    async def ended(self) -> None:
        """Return when a signal has ended it or its engines have failed, after the last call."""
        await asyncio.wait(
            {self.serving, asyncio.ensure_future(asyncio.wait(self.supervising))},
            return_when=asyncio.FIRST_COMPLETED,
        )


@asynccontextmanager
async def running(config: ServeConfig, engines: Sequence[EngineStart]) -> AsyncIterator[Run]:
    """The gateway at its port, with engines that start meanwhile. At the end calls that run are
    finished. Raises EngineError if the port is taken."""
    async with open_gateway(config, engines) as gateway:
        server = _Server(gateway, _uvicorn_config(config, gateway))
        serving = asyncio.create_task(server.serve())
        supervisors = [member.supervisor for member in gateway.engines.members]
        supervising = [asyncio.create_task(supervisor.run()) for supervisor in supervisors]
        try:
            yield Run(gateway, server, serving, supervising)
        finally:
            server.should_exit = True
            await serving
            for supervisor in supervisors:
                await supervisor.close()
            await asyncio.wait(supervising)


def _uvicorn_config(config: ServeConfig, gateway: Gateway) -> uvicorn.Config:
    return uvicorn.Config(
        make_app(gateway),
        host=config.host,
        port=config.port,
        log_config=None,
        access_log=False,
        server_header=False,
        http=BoundedHttp,
        ws="none",
        timeout_graceful_shutdown=int(min(DRAIN_S, config.settings.limits.deadline_s)),
        timeout_keep_alive=75,
        ssl_certfile=config.tls.cert_file if config.tls else None,
        ssl_keyfile=config.tls.key_file if config.tls else None,
    )


class _Server(uvicorn.Server):
    """After a signal it refuses calls and says so, also in /health, until those that run have
    ended; a second one ends it at once. Signals are not raised again: the engine and the store are
    still to be closed."""

    def __init__(self, gateway: Gateway, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._gateway = gateway
        self._drained_by_s = math.inf

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._gateway.is_draining:
            self.should_exit = self.force_exit = True
            return
        self._gateway.is_draining = True
        self._gateway.admission.close()
        self._drained_by_s = time.monotonic() + DRAIN_S
        log.event("draining")

    async def on_tick(self, counter: int) -> bool:
        ends = await super().on_tick(counter)
        if time.monotonic() >= self._drained_by_s:
            self.config.timeout_graceful_shutdown = 1
            return True
        return ends or (self._gateway.is_draining and not self._gateway.admission.num_running)
