"""POST /v1/chat/completions: recognise, lay out, queue, send, forward, remember."""

import asyncio
import time
from collections.abc import Mapping
from contextlib import aclosing, nullcontext
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.types import Receive, Send

from duramen.layout.errors import EngineError, LayoutError
from duramen.serving.gateway.accounting import accounted
from duramen.serving.gateway.chat_answer import ChatAnswer
from duramen.serving.gateway.engines import Member, ServedEngine
from duramen.serving.gateway.errors import within
from duramen.serving.gateway.exactness import why_not_exact
from duramen.serving.gateway.gateway import Gateway
from duramen.serving.gateway.headers import session_of, wants_explanation
from duramen.serving.gateway.lay_out import lay_out
from duramen.serving.gateway.ongoing import OngoingCall
from duramen.serving.gateway.refusals import engine_refusal
from duramen.serving.gateway.sessions.conversation import Opened, shared_tokens
from duramen.serving.gateway.shapes import check_chat
from duramen.serving.gateway.tenants import request_salt
from duramen.serving.gateway.upstream_body import chat_body, estimated_tokens
from duramen.serving.gateway.wire import (
    DONE,
    REQUEST_ID,
    Answering,
    EventStream,
    send_json,
    while_connected,
)
from duramen.serving.kv.seen import split_hashes
from duramen.serving.vllm.protocol import CHAT_PATH, ChatEngine


class ChatService:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def __call__(self, request: Request, receive: Receive, send: Answering) -> None:
        """Answer one request. Raises ApiError, Disconnected."""
        gateway = self._gateway
        tenant = gateway.tenants.find(request.headers.get("authorization"))
        body = await gateway.bodies.read(request, tenant.name)
        check_chat(body)
        serving = gateway.serving
        call = OngoingCall(
            request_id=request.scope[REQUEST_ID],
            tenant=tenant,
            serving=serving,
            name=serving.name_in(body),
            body=body,
            salt=request_salt(tenant, body.get("cache_salt")),
            wants_explanation=wants_explanation(request),
            why_not_exact=why_not_exact(body),
        )
        serving.check_seed(body)
        deadline_s = gateway.settings.limits.deadline_s
        with accounted(call, gateway.metrics):
            async with while_connected(receive, send), within(deadline_s):
                await self._serve(call, session_of(request), send)

    async def _serve(self, call: OngoingCall, session: str | None, send: Send) -> None:
        gateway = self._gateway
        if call.why_not_exact is None:
            try:
                call.laid_out = await lay_out(
                    call.serving, gateway.settings, call.tenant, call.body, session
                )
            except LayoutError as error:  # then the engine renders, or refuses
                call.why_not_exact = f"laid out by the engine: {error}"
        opened = call.opened
        home = call.session_id or session or call.tenant.name
        with call.serving.conversations.held(opened) if opened else nullcontext():
            _, engine = gateway.engines.for_session(home)
            if opened is not None:
                uncached = _predict_uncached(opened, engine)
            else:
                uncached = estimated_tokens(call.body["messages"])
            async with gateway.admission.admit(call.tenant.name, uncached) as slot:
                call.queued_s = slot.queued_s
                member, engine = gateway.engines.for_session(home)
                priority = slot.priority if member.takes_priority else None
                await self._run(call, member, engine, priority, send)

    async def _run(
        self,
        call: OngoingCall,
        member: Member,
        engine: ServedEngine,
        priority: int | None,
        send: Send,
    ) -> None:
        opened = call.opened
        call.answer = ChatAnswer(call.serving.conversations, call.body, call.name, opened)
        body = chat_body(
            call.body,
            call.serving.model.upstream_name,
            opened.prompt.token_ids if opened else None,
            salt=call.salt,
            priority=priority,
        )
        if call.laid_out is not None and call.laid_out.shaped.tools:
            body["tools"] = call.laid_out.shaped.tools
        if opened is not None:
            self._take_off(call, opened, member, engine)
        try:
            if call.body.get("stream"):
                # in a task of its own: its stack is short, and every token resumes all of it
                await asyncio.create_task(self._stream(call, call.answer, engine, body, send))
            else:
                await self._answer(call, call.answer, engine, body, send)
        except EngineError as error:
            raise engine_refusal(error, member) from error
        finally:
            if opened is not None:
                _land(call, opened, call.answer, member, engine)

    def _take_off(
        self, call: OngoingCall, opened: Opened, member: Member, engine: ServedEngine
    ) -> None:
        """The call counts as sent from here on."""
        histories = call.serving.histories
        session = call.serving.conversations.record(opened, call.tenant.name)
        call.bounds = histories.bounds(opened, session, call.salt)
        call.look = self._gateway.breaks.look(opened, call.body["messages"])
        histories.sent(opened, session, call.salt)
        blocks, num_tokens = opened.blocks, len(opened.prompt.token_ids)
        call.flight = member.flights.take_off(
            blocks,
            num_tokens,
            engine.mirror.resident(blocks, num_tokens) if engine.mirror else None,
            num_removed=engine.mirror.num_removed if engine.mirror else 0,
        )
        if opened.relation == "new":
            root = opened.prompt.token_ids[: shared_tokens(opened.prompt)]
            self._gateway.roots.use(root, call.salt)
        if member.ledger is not None:
            call.chain = member.ledger.sent(opened, call.tenant.name)

    async def _stream(
        self,
        call: OngoingCall,
        answer: ChatAnswer,
        engine: ChatEngine,
        body: Mapping[str, Any],
        send: Send,
    ) -> None:
        slow_reader_s = self._gateway.settings.limits.slow_reader_s
        with EventStream(send, call.headers, slow_reader_s) as stream:
            async with aclosing(engine.batches(CHAT_PATH, body)) as batches:
                async for batch in batches:
                    out = b"".join([answer.take_event(item) for item in batch])
                    if call.opened is not None:
                        await self._make_durable(call)
                    if out:
                        await stream.write(out)
            explained = call.wants_explanation
            tail = answer.extra_event(call.explanation()) if explained else b""
            await stream.end(tail + DONE)

    async def _answer(
        self,
        call: OngoingCall,
        answer: ChatAnswer,
        engine: ChatEngine,
        body: Mapping[str, Any],
        send: Send,
    ) -> None:
        answered = answer.take_answer(await engine.post(CHAT_PATH, body))
        if call.opened is not None:
            await self._make_durable(call)
        if call.wants_explanation:
            answered["duramen"] = call.explanation()
        await send_json(send, 200, answered, call.headers)

    async def _make_durable(self, call: OngoingCall) -> None:
        """What was put is written before any of it is sent on; where it cannot be (a full disk) the
        call goes on, and /health and metrics say so."""
        started_s = time.perf_counter()
        if not await self._gateway.tree.store.durable():
            self._gateway.metrics.store_failed()
        call.store_s = (call.store_s or 0.0) + time.perf_counter() - started_s


def _predict_uncached(opened: Opened, engine: ServedEngine) -> int:
    """Tokens that will have to be computed; where nothing is mirrored, as if all that is on record
    were resident."""
    num_tokens, predicted = len(opened.prompt.token_ids), None
    if engine.mirror is not None:
        predicted = engine.mirror.resident(opened.blocks, num_tokens)
    return num_tokens - (opened.num_recorded if predicted is None else predicted)


def _land(
    call: OngoingCall, opened: Opened, answer: ChatAnswer, member: Member, engine: ServedEngine
) -> None:
    call.serving.histories.sampled(answer.reply_hashes, call.salt)
    if call.flight is not None:
        call.mismatch = member.flights.land(
            call.flight,
            answer.delivered,
            num_removed=engine.mirror.num_removed if engine.mirror else 0,
            computed=[*opened.blocks, *split_hashes(answer.reply_hashes)],
        )
    if member.ledger is not None and call.chain is not None:
        member.ledger.ended(call.chain)
    call.serving.conversations.ended(opened, msgspec.json.encode(call.explanation()))
