"""Puts a gateway together, and says what happens to it when an engine comes up."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from duramen.kernels.device import gpu_monitor
from duramen.layout.certify.history import certificate
from duramen.layout.errors import EngineError, RequestError
from duramen.layout.template import load_chat_template
from duramen.layout.tokenizer import Tokenizer
from duramen.serving.gateway import log
from duramen.serving.gateway.admission import Admission
from duramen.serving.gateway.bodies import Bodies
from duramen.serving.gateway.breaks import Breaks
from duramen.serving.gateway.chores import chores
from duramen.serving.gateway.engine_ledger import held_in_all, open_ledger
from duramen.serving.gateway.engines import Engines, Member, ServedEngine
from duramen.serving.gateway.gateway import Gateway, ServedModel, Serving
from duramen.serving.gateway.gauges import Levels
from duramen.serving.gateway.histories import Histories
from duramen.serving.gateway.metrics import Metrics
from duramen.serving.gateway.policies.warm import RecentRoots, Send, warm
from duramen.serving.gateway.residency import resident_in_all
from duramen.serving.gateway.serve_config import ServeConfig
from duramen.serving.gateway.sessions.conversation import Conversations, Model
from duramen.serving.gateway.sessions.null_store import NullStore
from duramen.serving.gateway.sessions.records import Scope
from duramen.serving.gateway.sessions.store import SqliteStore
from duramen.serving.gateway.sessions.store_protocol import Store
from duramen.serving.gateway.sessions.tree import SessionTree
from duramen.serving.gateway.supervise import ATTACHED, Patience, Supervisor
from duramen.serving.gateway.tenants import Tenants
from duramen.serving.gateway.upstream_body import chat_body
from duramen.serving.kv.attribute import Flights
from duramen.serving.kv.ledger import Held, Owner
from duramen.serving.vllm.engine import VllmEngine, attach, launch
from duramen.serving.vllm.facts import eos_token_ids
from duramen.serving.vllm.launch import Progress
from duramen.serving.vllm.protocol import CHAT_PATH
from duramen.serving.vllm.version import installed_build

MAX_REMEMBERED_BLOCKS = 100_000
PROBE = [3, 1, 2]  # ids that no template renders, too few to fill a block
SAMPLE = "A sample: 12,345 words\n\tof träffande 语言 👍 def f(x): return x"


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


@asynccontextmanager
async def open_gateway(
    config: ServeConfig, engines: Sequence[EngineStart]
) -> AsyncIterator[Gateway]:
    """Everything but the port; the engines' supervisors are made and not yet run."""
    settings, key_file = config.settings, config.api_key_file
    store = _open_store(config)
    members: list[Member] = []

    def on_forget(scope: Scope, session_id: str) -> None:
        for member in members:
            if member.ledger is not None:
                member.ledger.leave(scope, session_id)

    tree = SessionTree(store, settings.sessions.memory_bytes, on_forget)
    gateway = Gateway(
        settings=settings,
        tenants=Tenants.load(key_file, config.operator.say) if key_file else Tenants.open_to_all(),
        engines=Engines(members),
        bodies=Bodies(settings.limits),
        admission=Admission(settings.limits),
        metrics=Metrics(
            lambda: _levels(gateway), gpu_monitor().read, by_tenant=key_file is not None
        ),
        roots=RecentRoots(settings.policies.warm_roots),
        breaks=Breaks(),
        tree=tree,
    )
    bring_up = _BringUp(gateway, config)
    members += [bring_up.member(start) for start in engines]
    try:
        async with chores(tree, settings.sessions.ttl_s, members):
            yield gateway
    finally:
        await bring_up.close()
        store.close()


def _open_store(config: ServeConfig) -> Store:
    path = config.settings.sessions.store
    return NullStore() if path is None else SqliteStore(path)


def _levels(gateway: Gateway) -> Levels:
    members = gateway.engines.members
    mirrors = [m.engine.mirror for m in members if m.engine and m.engine.mirror]
    reports = {m.name: m.engine.itl_report() for m in members if m.engine}
    return Levels(
        num_running=gateway.admission.num_running,
        num_queued=gateway.admission.num_queued,
        engines_up={m.name: m.engine is not None for m in members},
        num_sessions=len(gateway.tree),
        sessions_bytes=gateway.tree.num_bytes,
        resident_tokens=resident_in_all(gateway.tree.sessions, mirrors) if mirrors else None,
        num_preemptions={m.name: m.num_preemptions for m in members},
        itl_reports={name: report for name, report in reports.items() if report},
        kv_held=_kv_held(members),
    )


def _kv_held(members: Sequence[Member]) -> dict[Owner, Held] | None:
    """None where nothing is kept, and while it is not known of one engine what is resident."""
    kept = [member for member in members if member.ledger is not None]
    mirrors = [member.engine.mirror if member.engine else None for member in kept]
    if not kept or any(mirror is None or mirror.broken for mirror in mirrors):
        return None
    return held_in_all(member.ledger for member in kept if member.ledger)


class _BringUp:
    """Reads the model's files once. The first engine that is up says what is served; later ones
    must be alike."""

    def __init__(self, gateway: Gateway, config: ServeConfig) -> None:
        self._gateway = gateway
        self._config = config
        self._template = load_chat_template(config.model_dir, config.chat_template)
        self._tokenizer = Tokenizer.load(config.model_dir, self._template.source)
        self._turn_end_ids = frozenset(eos_token_ids(config.model_dir))
        self._warming: set[asyncio.Task[None]] = set()

    def member(self, start: EngineStart) -> Member:
        async def on_ready(engine: ServedEngine, generation: int) -> None:
            await self._ready(member, engine, generation)

        operator = self._config.operator
        supervisor = Supervisor(
            start.open, on_ready, patience=start.patience, progress=operator.progress
        )
        member = Member(start.name, supervisor, Flights(1))
        return member

    async def _ready(self, member: Member, engine: ServedEngine, generation: int) -> None:
        gateway = self._gateway
        member.flights = Flights(_block_size(engine), MAX_REMEMBERED_BLOCKS)
        await _check_tokenizer(member.name, engine, self._tokenizer)
        member.takes_priority = await _takes_priority(member.name, engine)
        if generation > 1:
            gateway.metrics.engine_restarted()
        log.event("engine_ready", engine=member.name, generation=generation)
        if engine.mirror is not None:
            member.ledger = member.ledger or open_ledger(
                engine.info, _block_size(engine), self._config
            )
            if member.ledger is not None:
                engine.mirror.watch(member.ledger)
        if gateway.up is None:
            gateway.up = self._serving(engine)
        else:
            _check_alike(member.name, engine, gateway.up.model)
        warming = asyncio.create_task(warm(gateway.roots.roots(), _warmer(member, engine)))
        self._warming.add(warming)
        warming.add_done_callback(self._warming.discard)
        self._config.operator.say(self._config.ready_line)

    async def close(self) -> None:
        for warming in self._warming:
            warming.cancel()
        if self._warming:
            await asyncio.wait(self._warming)

    def _serving(self, engine: ServedEngine) -> Serving:
        info, settings = engine.info, self._gateway.settings
        history = settings.history
        if history == "auto":
            found = certificate(
                self._template, self._tokenizer, dict(settings.chat_template_arguments)
            )
            history = "verbatim" if found.keeps_history else "template"
            if found.why:
                self._config.operator.say(f"history: template, since {found.why}")
        model = Model(
            self._tokenizer,
            self._template,
            self._turn_end_ids | frozenset(info.eos_token_ids),
            _block_size(engine),
            history,
        )
        served = ServedModel(
            name=self._config.model_name,
            upstream_name=info.model,
            aliases=settings.aliases,
            max_model_len=info.max_model_len,
            unit_tokens=info.unit_tokens,
            created_s=int(time.time()),
        )
        return Serving(
            model=served,
            conversations=Conversations(model, self._gateway.tree),
            histories=Histories(info.unit_tokens, _block_size(engine)),
            refuses_seeds=self._config.vllm is not None and installed_build()[0] == "cpu",
        )


def _block_size(engine: ServedEngine) -> int:
    return engine.mirror.block_size if engine.mirror else engine.info.unit_tokens


def _check_alike(name: str, engine: ServedEngine, model: ServedModel) -> None:
    info = engine.info
    if info.unit_tokens != model.unit_tokens:
        raise EngineError(
            f"{name} matches in units of {info.unit_tokens} tokens, the first engine in units of "
            f"{model.unit_tokens}: start all replicas alike"
        )
    if info.model != model.upstream_name:
        raise EngineError(f"{name} serves {info.model}, not {model.upstream_name}")


async def _check_tokenizer(name: str, engine: ServedEngine, tokenizer: Tokenizer) -> None:
    """Ids of one tokenizer mean nothing to another. An engine that has no /tokenize is trusted."""
    body = {"model": engine.info.model, "prompt": SAMPLE, "add_special_tokens": False}
    try:
        theirs = (await engine.post("/tokenize", body))["tokens"]
    except RequestError:
        return
    if theirs != list(tokenizer.encode_text(SAMPLE, at_start=True)):
        raise EngineError(f"{name} has another tokenizer than the model folder: name its own")


async def _takes_priority(name: str, engine: ServedEngine) -> bool:
    """Whether its scheduler orders by priority: one that does not refuses such a request.

    Raises EngineError if its chat endpoint does not run ids of ours."""
    for priority in (1, None):
        body = chat_body({"max_tokens": 1}, engine.info.model, PROBE, salt="", priority=priority)
        try:
            answer = await engine.post(CHAT_PATH, body)
        except RequestError:
            continue
        if answer.get("prompt_token_ids") != PROBE:
            break
        return priority is not None
    raise EngineError(f"{name} takes no token ids in chat requests: it is no vLLM that can be used")


def _warmer(member: Member, engine: ServedEngine) -> Send:
    async def send(token_ids: Sequence[int], salt: str, priority: int) -> None:
        body = chat_body(
            {"max_tokens": 1},
            engine.info.model,
            list(token_ids),
            salt=salt,
            priority=priority if member.takes_priority else None,
        )
        await engine.post(CHAT_PATH, body)

    return send
