"""The endpoints beside chat: completions, models, tokenize, sessions, health, metrics."""

import datetime
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.types import Receive, Send

from duramen.layout.errors import DuramenError, EngineError, LayoutError
from duramen.layout.zones import Zone
from duramen.serving.gateway.chat import engine_refusal, session_of
from duramen.serving.gateway.errors import ApiError, within
from duramen.serving.gateway.exactness import template_arguments, why_not_exact
from duramen.serving.gateway.gateway import Gateway, ServedModel
from duramen.serving.gateway.residency import resident_tokens
from duramen.serving.gateway.sessions.conversation import Request as Conversation
from duramen.serving.gateway.sessions.conversation import scope_of
from duramen.serving.gateway.sessions.records import walk
from duramen.serving.gateway.sessions.spans import unpack_spans
from duramen.serving.gateway.shapes import check_completion, check_tokenize
from duramen.serving.gateway.tenants import Tenant, is_loopback, request_salt
from duramen.serving.gateway.too_long import check_length
from duramen.serving.gateway.upstream_body import engine_fields, passed_on
from duramen.serving.gateway.wire import (
    DONE,
    Answering,
    EventStream,
    event,
    send_bytes,
    send_json,
    while_connected,
)
from duramen.serving.vllm.protocol import ChatEngine

COMPLETIONS = "/v1/completions"
FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip", "via")


@dataclass(frozen=True)
class Endpoints:
    gateway: Gateway

    async def completions(self, request: Request, receive: Receive, send: Answering) -> None:
        """Raw prompts are the client's own layout: they pass through, under the tenant's salt."""
        gateway = self.gateway
        tenant = gateway.tenants.find(request.headers.get("authorization"))
        body = await gateway.bodies.read(request, tenant.name)
        check_completion(body)
        model, name = gateway.served(body)
        salt = request_salt(tenant, body.get("cache_salt"))
        async with (
            while_connected(receive, send),
            within(gateway.settings.limits.deadline_s),
            gateway.admission.admit(tenant.name, None) as slot,
        ):
            member, engine = gateway.engines.for_session(tenant.name)
            priority = slot.priority if member.takes_priority else None
            sent = passed_on(body) | {"model": model.upstream_name}
            sent |= engine_fields(salt, priority)
            if body.get("stream_options") is not None:
                sent["stream_options"] = body["stream_options"]
            headers = {"x-duramen-token-exact": "false"}
            try:
                if body.get("stream"):
                    slow_reader_s = gateway.settings.limits.slow_reader_s
                    with EventStream(send, headers, slow_reader_s) as stream:
                        await _forward(engine, sent, name, stream)
                else:
                    answer = await engine.post(COMPLETIONS, sent)
                    await send_json(send, 200, answer | {"model": name}, headers)
            except EngineError as error:
                raise engine_refusal(error, member) from error

    async def models(self, request: Request, receive: Receive, send: Send) -> None:
        self.gateway.tenants.find(request.headers.get("authorization"))
        model, _ = self.gateway.served({})
        names = (model.name, *model.aliases)
        wanted = request.path_params.get("model")
        if wanted is not None:
            self.gateway.served({"model": wanted})
            await send_json(send, 200, _card(model, wanted))
            return
        await send_json(send, 200, {"object": "list", "data": [_card(model, n) for n in names]})

    async def tokenize(self, request: Request, receive: Receive, send: Send) -> None:
        """Of messages: the ids that a call with them would send now. Of a prompt: the engine's."""
        gateway = self.gateway
        tenant = gateway.tenants.find(request.headers.get("authorization"))
        body = await gateway.bodies.read(request, tenant.name)
        check_tokenize(body)
        session = session_of(request)
        model, _ = gateway.served(body)
        if "messages" in body and why_not_exact(body) is None:
            await send_json(send, 200, await self._tokens(tenant, model, body, session))
            return
        member, engine = gateway.engines.for_session(tenant.name)
        try:
            await send_json(
                send, 200, await engine.post("/tokenize", body | {"model": model.upstream_name})
            )
        except EngineError as error:
            raise engine_refusal(error, member) from error

    async def _tokens(
        self, tenant: Tenant, model: ServedModel, body: Mapping[str, Any], session: str | None
    ) -> dict[str, Any]:
        conversations = self.gateway.conversations
        assert conversations is not None
        await check_length(body, model.max_model_len, conversations.model.tokenizer)
        question = Conversation(
            tenant=tenant.name,
            scope=scope_of(tenant.name, model.name),
            salt=request_salt(tenant, body.get("cache_salt")),
            messages=body["messages"],
            tools=body.get("tools") or [],
            arguments=template_arguments(body, self.gateway.settings.chat_template_arguments),
            session=session,
        )
        try:
            opened = conversations.open(question, datetime.datetime.now())
        except LayoutError as error:
            raise ApiError(400, str(error), param="messages") from None
        token_ids = list(opened.prompt.token_ids)
        strings = None
        if body.get("return_token_strs"):
            strings = [conversations.model.tokenizer.token_text(i) for i in token_ids]
        return {
            "count": len(token_ids),
            "max_model_len": model.max_model_len,
            "tokens": token_ids,
            "token_strs": strings,
        }

    async def sessions(self, request: Request, receive: Receive, send: Send) -> None:
        tenant = self.gateway.tenants.find(request.headers.get("authorization"))
        model, _ = self.gateway.served({})
        listed = self.gateway.tree.listed(scope_of(tenant.name, model.name), tenant.name)
        await send_json(send, 200, {"object": "list", "data": listed})

    async def session(self, request: Request, receive: Receive, send: Send) -> None:
        """GET: every call of a session, with its zones, spans and bounds. DELETE forgets it."""
        gateway = self.gateway
        tenant = gateway.tenants.find(request.headers.get("authorization"))
        model, _ = gateway.served({})
        session_id = request.path_params["session"]
        scope = scope_of(tenant.name, model.name)
        if request.method == "DELETE":
            try:
                was_there = gateway.tree.delete(scope, session_id, tenant.name)
            except DuramenError:
                raise ApiError(
                    503,
                    "the session store cannot be written now: the session is not deleted",
                    type="server_error",
                    retry_after_s=60,
                ) from None
            if not was_there:
                raise _no_session(session_id)
            await send_json(send, 200, {"id": session_id, "object": "session", "deleted": True})
            return
        session = gateway.tree.session(scope, session_id)
        if session is None:
            raise _no_session(session_id)
        calls: list[dict[str, Any]] = [
            {
                "turn": f"{turn.turn_id:016x}",
                "parent": f"{turn.parent.turn.turn_id:016x}" if turn.parent else None,
                "num_messages": turn.num_messages,
                "created": turn.created_s,
                "added_tokens": len(turn.token_ids),
                "spans": [
                    {
                        "start": span.start,
                        "end": span.end,
                        "zone": span.zone.name.lower(),
                        "source": span.source,
                        "sampled": span.sampled,
                    }
                    for span in unpack_spans(turn.spans)
                ],
                "replies": [
                    {
                        "index": reply.index,
                        "sampled_tokens": len(reply.token_ids),
                        "finish_reason": reply.finish or None,
                    }
                    for reply in turn.replies
                ],
                "account": msgspec.json.decode(turn.record) if turn.record else None,
            }
            for first in session.first_turns
            for turn in walk(first)
        ]
        calls.sort(key=lambda call: call["created"])
        mirror, resident = gateway.engines.mirror_for(session_id), None
        if mirror is not None and not mirror.broken:
            counted = resident_tokens(session, mirror)
            resident = {zone.name.lower(): counted[zone] for zone in Zone}
        answer = {"id": session_id, "object": "session", "resident_tokens": resident}
        await send_json(send, 200, answer | {"calls": calls})

    async def health(self, request: Request, receive: Receive, send: Send) -> None:
        """200 when calls are taken, 503 with the reason while they are not: all of it for who asks
        on this machine, names and logs are not for others."""
        gateway, is_here = self.gateway, _is_here(request)
        store = gateway.tree.store.failing
        if store is not None and not is_here:
            store = "failing"
        if gateway.is_draining:
            state, reason = "draining", "the gateway is shutting down"
        elif gateway.engines.num_ready and gateway.model is not None:
            state, reason = "ready", None
        else:
            engines = gateway.engines
            state, reason = "starting", engines.why_down if is_here else engines.states
        answer = {"status": state, "reason": reason, "store": store or "ok"}
        await send_json(send, 200 if state == "ready" else 503, answer)

    async def metrics(self, request: Request, receive: Receive, send: Send) -> None:
        """The page names tenants where there are any: it is for the operator, on this machine."""
        if self.gateway.tenants.have_keys and not _is_here(request):
            raise ApiError(403, "/metrics is answered on this machine only", code="forbidden")
        content_type, page = self.gateway.metrics.render()
        await send_bytes(send, 200, page, [(b"content-type", content_type.encode())])


async def _forward(
    engine: ChatEngine, sent: Mapping[str, Any], name: str, stream: EventStream
) -> None:
    async with aclosing(engine.batches(COMPLETIONS, sent)) as batches:
        async for batch in batches:
            await stream.write(b"".join(_renamed(item, name) for item in batch))
    await stream.end(DONE)


def _renamed(item: bytes, name: str) -> bytes:
    return event({**msgspec.json.decode(item), "model": name})


def _is_here(request: Request) -> bool:
    """Whether a client on this machine asks, and not through a proxy on it."""
    if any(name in request.headers for name in FORWARDED):
        return False
    return request.client is not None and is_loopback(request.client.host)


def _card(model: ServedModel, name: str) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": model.created_s,
        "owned_by": "duramen",
        "root": model.name,
        "parent": None,
        "max_model_len": model.max_model_len,
    }


def _no_session(session_id: str) -> ApiError:
    return ApiError(404, f"there is no session {session_id!r}", code="session_not_found")
