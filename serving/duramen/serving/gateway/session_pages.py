"""GET and DELETE /v1/duramen/sessions[/{id}]: what is remembered, without its text."""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.types import Receive

from duramen.layout.errors import DuramenError
from duramen.layout.zones import Zone
from duramen.serving.gateway.errors import ApiError
from duramen.serving.gateway.gateway import Gateway
from duramen.serving.gateway.residency import resident_tokens
from duramen.serving.gateway.sessions.records import Scope, Turn
from duramen.serving.gateway.sessions.spans import unpack_spans
from duramen.serving.gateway.sessions.tree import Session
from duramen.serving.gateway.wire import Answering, send_json


class SessionPages:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def listed(self, request: Request, receive: Receive, send: Answering) -> None:
        tenant = self._gateway.tenants.find(request.headers.get("authorization"))
        scope = self._scope(tenant.name)
        listed = self._gateway.tree.listed(scope, tenant.name)
        await send_json(send, 200, {"object": "list", "data": listed})

    async def one(self, request: Request, receive: Receive, send: Answering) -> None:
        """GET: every call of a session, with its zones, spans and bounds. DELETE forgets it."""
        tenant = self._gateway.tenants.find(request.headers.get("authorization"))
        scope = self._scope(tenant.name)
        session_id = request.path_params["session"]
        if request.method == "DELETE":
            if not self._delete(scope, session_id, tenant.name):
                raise _no_session(session_id)
            await send_json(send, 200, {"id": session_id, "object": "session", "deleted": True})
            return
        session = self._gateway.tree.session(scope, session_id)
        if session is None:
            raise _no_session(session_id)
        await send_json(send, 200, self._page(session))

    def _scope(self, tenant: str) -> Scope:
        serving = self._gateway.serving
        return serving.conversations.scope_of(tenant, serving.model.name)

    def _delete(self, scope: Scope, session_id: str, tenant: str) -> bool:
        try:
            return self._gateway.tree.delete(scope, session_id, tenant)
        except DuramenError:
            raise ApiError(
                503,
                "the session store cannot be written now: the session is not deleted",
                type="server_error",
                retry_after_s=60,
            ) from None

    def _page(self, session: Session) -> dict[str, Any]:
        mirror, resident = self._gateway.engines.mirror_for(session.session_id), None
        if mirror is not None and not mirror.broken:
            counted = resident_tokens(session, mirror)
            resident = {zone.name.lower(): counted[zone] for zone in Zone}
        ledger = self._gateway.engines.ledger_for(session.session_id)
        turns = sorted(session.turns(), key=lambda turn: turn.created_s)
        return {
            "id": session.session_id,
            "object": "session",
            "resident_tokens": resident,
            "kv": ledger.page(session.scope, session.session_id) if ledger else None,
            "calls": [_call(turn) for turn in turns],
        }


def _call(turn: Turn) -> dict[str, Any]:
    return {
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


def _no_session(session_id: str) -> ApiError:
    return ApiError(404, f"there is no session {session_id!r}", code="session_not_found")
