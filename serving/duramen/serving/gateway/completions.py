"""POST /v1/completions: raw prompts are the client's own layout and pass through."""

import time
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.types import Receive

from duramen.layout.errors import EngineError
from duramen.serving.gateway.accounting import accounted
from duramen.serving.gateway.call_facts import CallFacts, Status
from duramen.serving.gateway.chat_answer import shown_usage
from duramen.serving.gateway.engines import Member
from duramen.serving.gateway.errors import within
from duramen.serving.gateway.gateway import Gateway, Serving
from duramen.serving.gateway.headers import NOT_EXACT
from duramen.serving.gateway.refusals import engine_refusal
from duramen.serving.gateway.shapes import check_completion
from duramen.serving.gateway.tenants import Tenant, request_salt
from duramen.serving.gateway.upstream_body import engine_fields, estimated_tokens, passed_on
from duramen.serving.gateway.wire import (
    DONE,
    REQUEST_ID,
    Answering,
    EventStream,
    event,
    send_json,
    while_connected,
)
from duramen.serving.vllm.protocol import ChatEngine

PATH = "/v1/completions"


@dataclass
class _Call:
    request_id: str
    tenant: Tenant
    serving: Serving
    name: str
    body: dict[str, Any]
    status: Status = "ok"
    error: BaseException | None = None
    queued_s: float | None = None
    session_id: str | None = None  # it belongs to none
    sampled_tokens: int = 0
    arrived_s: float = field(default_factory=time.perf_counter)
    arrivals_s: list[float] = field(default_factory=list)

    def taken(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """An answer or an event, as the client gets it."""
        shown = {**data, "model": self.name}
        if usage := data.get("usage"):
            self.sampled_tokens = usage.get("completion_tokens") or 0
            is_single = (self.body.get("n") or 1) == 1 and isinstance(self.body["prompt"], str)
            shown["usage"] = shown_usage(usage, is_single=is_single)
        return shown

    def facts(self) -> CallFacts:
        first = self.arrivals_s[:1]
        return CallFacts(
            tenant=self.tenant.name,
            model=self.serving.model.name,
            status=self.status,
            is_exact=False,
            queue_s=self.queued_s,
            ttft_s=first[0] - self.arrived_s if first else None,
            itl_s=[b - a for a, b in pairwise(self.arrivals_s)],
            sampled_tokens=self.sampled_tokens,
        )


class CompletionService:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def __call__(self, request: Request, receive: Receive, send: Answering) -> None:
        """Under the tenant's salt. Raises ApiError, Disconnected."""
        gateway = self._gateway
        tenant = gateway.tenants.find(request.headers.get("authorization"))
        body = await gateway.bodies.read(request, tenant.name)
        check_completion(body)
        serving = gateway.serving
        request_id = request.scope[REQUEST_ID]
        call = _Call(request_id, tenant, serving, serving.name_in(body), body)
        serving.check_seed(body)
        deadline_s = gateway.settings.limits.deadline_s
        uncached = estimated_tokens(body["prompt"])
        with accounted(call, gateway.metrics):
            async with (
                while_connected(receive, send),
                within(deadline_s),
                gateway.admission.admit(tenant.name, uncached) as slot,
            ):
                call.queued_s = slot.queued_s
                member, engine = gateway.engines.for_session(tenant.name)
                priority = slot.priority if member.takes_priority else None
                await self._run(call, member, engine, priority, send)

    async def _run(
        self,
        call: _Call,
        member: Member,
        engine: ChatEngine,
        priority: int | None,
        send: Answering,
    ) -> None:
        body = call.body
        sent = passed_on(body) | {"model": call.serving.model.upstream_name}
        sent |= engine_fields(request_salt(call.tenant, body.get("cache_salt")), priority)
        if body.get("stream_options") is not None:
            sent["stream_options"] = body["stream_options"]
        try:
            if not body.get("stream"):
                await send_json(send, 200, call.taken(await engine.post(PATH, sent)), NOT_EXACT)
                return
            slow_reader_s = self._gateway.settings.limits.slow_reader_s
            with EventStream(send, NOT_EXACT, slow_reader_s) as stream:
                async with aclosing(engine.batches(PATH, sent)) as batches:
                    async for batch in batches:
                        call.arrivals_s.append(time.perf_counter())
                        events = (call.taken(msgspec.json.decode(item)) for item in batch)
                        await stream.write(b"".join(map(event, events)))
                await stream.end(DONE)
        except EngineError as error:
            raise engine_refusal(error, member) from error
