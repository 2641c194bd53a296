"""A gateway from its configuration to the end of its last call."""

import asyncio
import math
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from types import FrameType

import uvicorn

from duramen.kernels.device import gpu_monitor
from duramen.layout.certify import certificate
from duramen.layout.errors import EngineError, RequestError
from duramen.layout.template import load_chat_template
from duramen.layout.tokenizer import Tokenizer
from duramen.serving.gateway import log
from duramen.serving.gateway.accounts import Histories
from duramen.serving.gateway.admission import Admission
from duramen.serving.gateway.app import make_app
from duramen.serving.gateway.bodies import Bodies
from duramen.serving.gateway.breaks import Breaks
from duramen.serving.gateway.engines import Engines, Member, ServedEngine
from duramen.serving.gateway.gateway import Gateway, ServedModel
from duramen.serving.gateway.http_protocol import BoundedHttp
from duramen.serving.gateway.metrics import Levels, Metrics
from duramen.serving.gateway.policies.warm import RecentRoots, warm
from duramen.serving.gateway.residency import resident_in_all
from duramen.serving.gateway.serve_config import ServeConfig
from duramen.serving.gateway.sessions.conversation import Conversations, Model
from duramen.serving.gateway.sessions.null_store import NullStore
from duramen.serving.gateway.sessions.store import SqliteStore
from duramen.serving.gateway.sessions.store_protocol import Store
from duramen.serving.gateway.sessions.tree import SessionTree
from duramen.serving.gateway.settings import Settings
from duramen.serving.gateway.supervise import ATTACHED, Patience, Supervisor
from duramen.serving.gateway.tenants import Tenants
from duramen.serving.gateway.upstream_body import chat_body
from duramen.serving.kv.attribute import Flights
from duramen.serving.vllm.engine import VllmEngine, attach, launch
from duramen.serving.vllm.facts import eos_token_ids
from duramen.serving.vllm.launch import Progress
from duramen.serving.vllm.version import installed_build

SendRoot = Callable[[Sequence[int], str, int], Awaitable[None]]

DRAIN_S = 60.0
EXPIRE_EVERY_S = 600.0
EXPIRE_PAUSE_S = 0.05  # for calls, between two steps
PREEMPTIONS_EVERY_S = 5.0
MAX_REMEMBERED_BLOCKS = 100_000
PROBE = (3, 1, 2)  # ids that no template renders, too few to fill a block


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
async def running(config: ServeConfig, engines: Sequence["EngineStart"]) -> AsyncIterator[Run]:
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


@asynccontextmanager
async def open_gateway(
    config: ServeConfig, engines: Sequence["EngineStart"]
) -> AsyncIterator[Gateway]:
    """Everything but the port; the engines' supervisors are made and not yet run."""
    settings = config.settings
    store = _open_store(config)
    tree = SessionTree(store, settings.sessions.memory_bytes)
    tenants = Tenants.load(config.api_key_file) if config.api_key_file else Tenants.open_to_all()
    admission = Admission(settings.limits)
    members: list[Member] = []
    gateway = Gateway(
        settings=settings,
        tenants=tenants,
        engines=Engines(members),
        bodies=Bodies(settings.limits),
        admission=admission,
        metrics=Metrics(
            lambda: _levels(gateway),
            gpu_monitor().read,
            by_tenant=config.api_key_file is not None,
        ),
        roots=RecentRoots(settings.policies.warm_roots),
        breaks=Breaks(),
        tree=tree,
    )
    wiring = _Wiring(gateway, config)
    members += [wiring.member(start) for start in engines]
    chores = [
        asyncio.create_task(_expire(tree, settings)),
        asyncio.create_task(_count_preemptions(members)),
    ]
    try:
        yield gateway
    finally:
        for chore in chores:
            chore.cancel()
        await asyncio.wait(chores)
        store.close()


class _Wiring:
    """What happens to the gateway when an engine comes up."""

    def __init__(self, gateway: Gateway, config: ServeConfig) -> None:
        self._gateway = gateway
        self._config = config
        template = load_chat_template(config.model_dir, config.chat_template)
        self._template = template
        self._tokenizer = Tokenizer.load(config.model_dir, template.source)
        self._turn_end_ids = frozenset(eos_token_ids(config.model_dir))

    def member(self, start: "EngineStart") -> Member:
        async def on_ready(engine: ServedEngine, generation: int) -> None:
            await self._ready(member, engine, generation)

        supervisor = Supervisor(
            start.open,
            on_ready,
            patience=start.patience,
            progress=self._config.operator.progress,
        )
        member = Member(start.name, supervisor, Flights(1))
        return member

    async def _ready(self, member: Member, engine: ServedEngine, generation: int) -> None:
        gateway, info = self._gateway, engine.info
        block_size = engine.mirror.block_size if engine.mirror else info.unit_tokens
        member.flights = Flights(block_size, MAX_REMEMBERED_BLOCKS)
        member.takes_priority = await _takes_priority(engine)
        if generation > 1:
            gateway.metrics.engine_restarted()
        log.event("engine_ready", engine=member.name, generation=generation)
        if gateway.model is None:
            self._first(engine)
        elif gateway.model.unit_tokens != info.unit_tokens:
            raise EngineError(
                f"{member.name} matches in units of {info.unit_tokens} tokens, the first engine in "
                f"units of {gateway.model.unit_tokens}: start all replicas alike"
            )
        elif gateway.model.upstream_name != info.model:
            raise EngineError(
                f"{member.name} serves {info.model}, not {gateway.model.upstream_name}"
            )
        await warm(gateway.roots.roots(), _warmer(member, engine))
        self._config.operator.say(self._config.ready_line)

    def _first(self, engine: ServedEngine) -> None:
        gateway, info, settings = self._gateway, engine.info, self._gateway.settings
        block_size = engine.mirror.block_size if engine.mirror else info.unit_tokens
        history = settings.history
        if history == "auto":
            found = certificate(
                self._template, self._tokenizer, dict(settings.chat_template_arguments)
            )
            history = "verbatim" if found.keeps_history else "template"
        model = Model(
            self._tokenizer,
            self._template,
            self._turn_end_ids | frozenset(info.eos_token_ids),
            block_size,
            history,
        )
        gateway.conversations = Conversations(model, gateway.tree)
        gateway.histories = Histories(info.unit_tokens, block_size)
        gateway.refuses_seeds = self._config.vllm is not None and installed_build()[0] == "cpu"
        gateway.model = ServedModel(
            name=self._config.model_name,
            upstream_name=info.model,
            aliases=settings.aliases,
            max_model_len=info.max_model_len,
            unit_tokens=info.unit_tokens,
            created_s=int(time.time()),
        )


@dataclass(frozen=True)
class EngineStart:
    """How one engine comes up, again and again."""

    name: str
    open: Callable[[Progress], Awaitable[ServedEngine]]
    patience: Patience


def engines_of(config: ServeConfig) -> list[EngineStart]:
    """The child that is to be started, or the servers that run already."""

    async def start(progress: Progress) -> VllmEngine:
        assert config.vllm is not None
        return await launch(config.vllm, progress)

    def attaching(url: str) -> Callable[[Progress], Awaitable[VllmEngine]]:
        async def attach_to(progress: Progress) -> VllmEngine:
            progress(f"attaching to {url}")
            return await attach(
                url,
                api_key=config.upstream_api_key,
                model_dir=config.model_dir,
                events=config.upstream_events.get(url),
            )

        return attach_to

    if config.vllm is not None:
        return [EngineStart("vllm", start, Patience())]
    return [EngineStart(url, attaching(url), ATTACHED) for url in config.upstreams]


async def _takes_priority(engine: ServedEngine) -> bool:
    """Whether its scheduler orders by priority: one that does not refuses such a request."""
    body = {
        "model": engine.info.model,
        "messages": [],
        "kv_transfer_params": {"prompt_token_ids": list(PROBE)},
        "max_tokens": 1,
        "priority": 1,
    }
    try:
        await engine.post("/v1/chat/completions", body)
    except RequestError:
        return False
    return True


def _warmer(member: Member, engine: ServedEngine) -> SendRoot:
    async def send(token_ids: Sequence[int], salt: str, priority: int) -> None:
        body = chat_body(
            {"max_tokens": 1},
            engine.info.model,
            list(token_ids),
            salt=salt,
            priority=priority if member.takes_priority else None,
        )
        await engine.post("/v1/chat/completions", body)

    return send


def _open_store(config: ServeConfig) -> Store:
    path = config.settings.sessions.store
    return NullStore() if path is None else SqliteStore(path)


async def _expire(tree: SessionTree, settings: Settings) -> None:
    while True:
        before_s = time.time() - settings.sessions.ttl_s
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


def _levels(gateway: Gateway) -> Levels:
    members = gateway.engines.members
    mirrors = [m.engine.mirror for m in members if m.engine and m.engine.mirror]
    return Levels(
        num_running=gateway.admission.num_running,
        num_queued=gateway.admission.num_queued,
        engines_up={m.name: m.engine is not None for m in members},
        num_sessions=len(gateway.tree),
        sessions_bytes=gateway.tree.num_bytes,
        resident_tokens=resident_in_all(gateway.tree.sessions, mirrors) if mirrors else None,
        num_preemptions={m.name: m.num_preemptions for m in members},
    )
