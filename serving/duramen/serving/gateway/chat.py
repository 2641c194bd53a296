"""POST /v1/chat/completions: recognise, lay out, queue, send, forward, remember."""

import asyncio
import datetime
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing, nullcontext
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.types import Receive, Send

from duramen.layout.bounds import Bounds
from duramen.layout.errors import EngineError, LayoutError, RequestError
from duramen.serving.gateway import log
from duramen.serving.gateway.accounts import Histories, block_list
from duramen.serving.gateway.call import ChatCall, explanation
from duramen.serving.gateway.call_facts import BreakCause, CallFacts, Status
from duramen.serving.gateway.engines import Member
from duramen.serving.gateway.errors import DEADLINE, ApiError, within
from duramen.serving.gateway.exactness import template_arguments, why_not_exact
from duramen.serving.gateway.gateway import Gateway, ServedModel
from duramen.serving.gateway.policies.shape import Shaped, shape
from duramen.serving.gateway.sessions.conversation import (
    Conversations,
    Opened,
    scope_of,
    shared_tokens,
)
from duramen.serving.gateway.sessions.conversation import Request as Conversation
from duramen.serving.gateway.sessions.store_protocol import Store
from duramen.serving.gateway.shapes import check_chat
from duramen.serving.gateway.tenants import Tenant, request_salt
from duramen.serving.gateway.too_long import check_length, too_long
from duramen.serving.gateway.upstream_body import chat_body
from duramen.serving.gateway.wire import (
    DONE,
    REQUEST_ID,
    Answering,
    Disconnected,
    EventStream,
    send_json,
    while_connected,
)
from duramen.serving.kv.attribute import Flight
from duramen.serving.vllm.protocol import ChatEngine

SESSION_ID = re.compile("[!-~]{1,256}")
PATH = "/v1/chat/completions"


@dataclass
class Served:
    """A call on its way, for its account at the end."""

    request_id: str
    tenant: Tenant
    model: ServedModel
    asked_name: str
    body: dict[str, Any]
    explain: bool
    salt: str = ""
    why_not_exact: str | None = None
    shaped: Shaped | None = None
    opened: Opened | None = None
    bounds: Bounds | None = None
    cause: BreakCause | None = None
    queued_s: float | None = None
    flight: Flight | None = None
    mismatch: str | None = None
    call: ChatCall | None = None
    store_s: float | None = None
    arrived_s: float = field(default_factory=time.perf_counter)
    status: Status = "ok"
    error: BaseException | None = None

    @property
    def policies(self) -> tuple[str, ...]:
        """A line for each that acted."""
        acted = self.shaped.acted if self.shaped else ()
        if self.opened is not None and self.opened.root_padding:
            acted += (f"zones aligned: root padded by {self.opened.root_padding} tokens",)
        return acted

    @property
    def headers(self) -> dict[str, str]:
        if self.opened is None:
            return {"x-duramen-token-exact": "false"}
        return {
            "x-duramen-token-exact": "true",
            "x-duramen-session": self.opened.turn.session_id,
        }


class ChatService:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def __call__(self, request: Request, receive: Receive, send: Answering) -> None:
        """Answer one request. Raises ApiError, Disconnected."""
        gateway = self._gateway
        tenant = gateway.tenants.find(request.headers.get("authorization"))
        body = await gateway.bodies.read(request, tenant.name)
        check_chat(body)
        model, name = gateway.served(body)
        request_id = request.scope[REQUEST_ID]
        served = Served(request_id, tenant, model, name, body, _wants_explanation(request))
        served.why_not_exact = why_not_exact(body)
        served.salt = request_salt(tenant, body.get("cache_salt"))
        self._check_seed(body)
        try:
            deadline_s = gateway.settings.limits.deadline_s
            async with while_connected(receive, send), within(deadline_s):
                await self._serve(served, session_of(request), send)
        except Disconnected:
            served.status = "client_gone"
            raise
        except ApiError as error:
            served.status, served.error = _status_of(error), error
            raise
        except Exception as error:  # a bug of ours: counted as what it is for the client
            served.status, served.error = "engine_error", error
            raise
        finally:
            self._account(served)

    async def _serve(self, served: Served, session: str | None, send: Send) -> None:
        gateway = self._gateway
        conversations = gateway.conversations
        assert conversations is not None
        if served.why_not_exact is None:
            tokenizer = conversations.model.tokenizer
            await check_length(served.body, served.model.max_model_len, tokenizer)
            self._lay_out(served, conversations, session)
        opened = served.opened
        home = opened.turn.session_id if opened else session or served.tenant.name
        with conversations.held(opened) if opened else nullcontext():
            _, engine = gateway.engines.for_session(home)
            uncached = self._predict(served, engine)
            async with gateway.admission.admit(served.tenant.name, uncached) as slot:
                served.queued_s = slot.queued_s
                member, engine = gateway.engines.for_session(home)
                priority = slot.priority if member.takes_priority else None
                await self._run(served, conversations, member, engine, priority, send)

    def _lay_out(self, served: Served, conversations: Conversations, session: str | None) -> None:
        """Sets `opened`; or `why_not_exact` where only the engine can render these messages."""
        body, settings = served.body, self._gateway.settings
        scope = scope_of(served.tenant.name, served.model.name)
        tools: Sequence[Mapping[str, Any]] = body.get("tools") or []
        policies = settings.policies
        served.shaped = shape(
            body["messages"],
            list(tools),
            policies,
            tools_of_session=lambda shaped: conversations.session_tools(scope, shaped, session),
            count=lambda text: len(conversations.model.tokenizer.encode_text(text)),
        )
        question = Conversation(
            tenant=served.tenant.name,
            scope=scope,
            salt=served.salt,
            messages=[dict(m) for m in served.shaped.messages],
            tools=served.shaped.tools,
            arguments=template_arguments(body, settings.chat_template_arguments),
            session=session,
            suffix=served.shaped.suffix,
            align_unit=served.model.unit_tokens if policies.align_zones else 0,
        )
        try:
            served.opened = conversations.open(question, datetime.datetime.now())
        except LayoutError as error:
            served.why_not_exact = f"laid out by the engine: {error}"
            return
        num_tokens = len(served.opened.prompt.token_ids)
        if num_tokens >= served.model.max_model_len:
            raise too_long(served.model.max_model_len, num_tokens)

    def _predict(self, served: Served, engine: ChatEngine) -> int | None:
        """Predicted uncached tokens; None if nothing is known of the prompt."""
        opened = served.opened
        if opened is None:
            return None
        num_tokens = len(opened.prompt.token_ids)
        predicted = None
        if engine.mirror is not None:
            predicted = engine.mirror.resident(block_list(opened.hashes), num_tokens)
        if predicted is None:
            predicted = opened.num_recorded // served.model.unit_tokens * served.model.unit_tokens
        return num_tokens - predicted

    async def _run(
        self,
        served: Served,
        conversations: Conversations,
        member: Member,
        engine: ChatEngine,
        priority: int | None,
        send: Send,
    ) -> None:
        opened = served.opened
        call = ChatCall(conversations, served.body, served.asked_name, opened)
        served.call = call
        body = chat_body(
            served.body,
            served.model.upstream_name,
            opened.prompt.token_ids if opened else None,
            salt=served.salt,
            priority=priority,
        )
        if served.shaped is not None and served.shaped.tools:
            body["tools"] = served.shaped.tools
        histories = self._gateway.histories
        assert histories is not None
        if opened is not None:
            self._take_off(served, conversations, histories, member, engine)
        try:
            if served.body.get("stream"):
                # in a task of its own: its stack is short, and every token resumes all of it
                await asyncio.create_task(self._stream(served, conversations, engine, body, send))
            else:
                await self._answer(served, conversations, engine, body, send)
        except EngineError as error:
            raise engine_refusal(error, member) from error
        finally:
            if opened is not None:
                self._land(served, conversations, histories, member, engine)

    def _take_off(
        self,
        served: Served,
        conversations: Conversations,
        histories: Histories,
        member: Member,
        engine: ChatEngine,
    ) -> None:
        opened = served.opened
        assert opened is not None
        session = conversations.record(opened, served.tenant.name)
        served.bounds = histories.bounds(opened, session, served.salt)
        served.cause = self._gateway.breaks.cause(opened, served.body["messages"])
        histories.sent(opened, session, served.salt)
        blocks = block_list(opened.hashes)
        num_tokens = len(opened.prompt.token_ids)
        mirror = engine.mirror
        served.flight = member.flights.take_off(
            blocks,
            num_tokens,
            mirror.resident(blocks, num_tokens) if mirror else None,
            num_removed=mirror.num_removed if mirror else 0,
        )
        if opened.relation == "new":
            root = opened.prompt.token_ids[: shared_tokens(opened.prompt)]
            self._gateway.roots.use(root, served.salt)

    def _land(
        self,
        served: Served,
        conversations: Conversations,
        histories: Histories,
        member: Member,
        engine: ChatEngine,
    ) -> None:
        opened, call = served.opened, served.call
        assert opened is not None
        assert call is not None
        histories.sampled(call.reply_hashes, served.salt)
        if served.flight is not None:
            served.mismatch = member.flights.land(
                served.flight,
                call.delivered,
                num_removed=engine.mirror.num_removed if engine.mirror else 0,
                computed=block_list(opened.hashes + call.reply_hashes),
            )
        conversations.ended(opened, msgspec.json.encode(self._explain(served)))

    async def _stream(
        self,
        served: Served,
        conversations: Conversations,
        engine: ChatEngine,
        body: Mapping[str, Any],
        send: Send,
    ) -> None:
        call = served.call
        assert call is not None
        store = conversations.tree.store
        slow_reader_s = self._gateway.settings.limits.slow_reader_s
        with EventStream(send, served.headers, slow_reader_s) as stream:
            async with aclosing(engine.batches(PATH, body)) as batches:
                async for batch in batches:
                    out = b"".join([call.take_event(item) for item in batch])
                    if served.opened is not None:
                        await self._make_durable(served, store)
                    if out:
                        await stream.write(out)
            tail = call.extra_event(self._explain(served)) if served.explain else b""
            await stream.end(tail + DONE)

    async def _make_durable(self, served: Served, store: Store) -> None:
        """What was put is written before any of it is sent on; where it cannot be (a full disk) the
        call goes on, and /health and metrics say so."""
        started_s = time.perf_counter()
        if not await store.durable():
            self._gateway.metrics.store_failed()
        served.store_s = (served.store_s or 0.0) + time.perf_counter() - started_s

    async def _answer(
        self,
        served: Served,
        conversations: Conversations,
        engine: ChatEngine,
        body: Mapping[str, Any],
        send: Send,
    ) -> None:
        call = served.call
        assert call is not None
        answer = call.take_answer(await engine.post(PATH, body))
        if served.opened is not None:
            await self._make_durable(served, conversations.tree.store)
        if served.explain:
            answer["duramen"] = self._explain(served)
        await send_json(send, 200, answer, served.headers)

    def _check_seed(self, body: Mapping[str, Any]) -> None:
        temperature = body.get("temperature")
        hot = temperature is None or temperature > 0
        if self._gateway.refuses_seeds and body.get("seed") is not None and hot:
            raise ApiError(
                400,
                "a seed at a temperature above 0 ends vLLM 0.32's CPU build where a prefill is "
                "chunked: send temperature 0, or no seed",
                param="seed",
                code="unsupported_value",
            )

    def _explain(self, served: Served) -> dict[str, Any]:
        assert served.call is not None
        flight = served.flight
        predicted = None
        if flight is not None and flight.predicted is not None:
            predicted = (flight.predicted, flight.predicted_most or 0)
        return explanation(
            served.call,
            why_not_exact=served.why_not_exact,
            bounds=served.bounds,
            predicted=predicted,
            mismatch=served.mismatch,
            cause=served.cause,
            policies=served.policies,
            queued_s=served.queued_s or 0.0,
        )

    def _account(self, served: Served) -> None:
        call, flight = served.call, served.flight
        arrivals = call.arrivals_s if call and served.body.get("stream") else []
        zones = served.opened.zone_tokens if served.opened and call else {}
        facts = CallFacts(
            tenant=served.tenant.name,
            model=served.model.name,
            status=served.status,
            is_exact=served.opened is not None,
            zone_tokens=zones,
            bounds=served.bounds,
            predicted_low=flight.predicted if flight else None,
            predicted_high=flight.predicted_most if flight else None,
            delivered=call.delivered if call else None,
            mismatch=served.mismatch,  # type: ignore[arg-type]
            break_cause=served.cause,
            queue_s=served.queued_s,
            ttft_s=arrivals[0] - served.arrived_s if arrivals else None,
            itl_s=[b - a for a, b in pairwise(arrivals)],
            sampled_tokens=call.num_sampled if call else 0,
            store_s=served.store_s,
            policies=served.policies,
        )
        self._gateway.metrics.call_ended(facts)
        session = served.opened.turn.session_id if served.opened else None
        log.call_ended(facts, request_id=served.request_id, session_id=session, error=served.error)


def _status_of(error: ApiError) -> Status:
    if error.code == DEADLINE:
        return "deadline"
    return "engine_error" if error.status >= 500 else "refused"


def engine_refusal(error: EngineError, member: Member) -> ApiError:
    """In OpenAI's shape: the engine's own refusal, or that it failed, which is looked into."""
    if not isinstance(error, RequestError):
        member.supervisor.report_failure()
        return ApiError(
            503,
            f"the engine failed during this call, try again: {_public(error)}",
            type="server_error",
            code="engine_unavailable",
            retry_after_s=5,
        )
    code = None
    if error.status in (401, 403):
        return ApiError(
            503,
            "the engine does not take the gateway's own key: tell the operator",
            type="server_error",
            code="engine_unavailable",
        )
    if "maximum context length" in error.reason or "max_model_len" in error.reason:
        code = "context_length_exceeded"
    return ApiError(error.status, error.reason, param=error.param, code=code)


def _public(error: EngineError) -> str:
    """What a client may know: not where the engine runs, nor what its log says."""
    text = str(error)
    if "other token ids" in text or "did not say which" in text:
        return text
    return "it stopped answering"


def session_of(request: Request) -> str | None:
    session = request.headers.get("x-duramen-session")
    if session is not None and not SESSION_ID.fullmatch(session):
        raise ApiError(
            400,
            "x-duramen-session must be 1 to 256 printable ASCII characters without blanks",
            param="x-duramen-session",
        )
    return session


def _wants_explanation(request: Request) -> bool:
    return request.headers.get("x-duramen-explain", "") not in ("", "0", "false")
