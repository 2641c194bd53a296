"""A chat call on its way: what is known of it, for its account and for its client."""

import time
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import msgspec

from duramen.layout.bounds import Bounds
from duramen.layout.zones import Zone
from duramen.serving.gateway.breaks import Look
from duramen.serving.gateway.call_facts import CallFacts, Status
from duramen.serving.gateway.chat_answer import ChatAnswer
from duramen.serving.gateway.gateway import Serving
from duramen.serving.gateway.headers import NOT_EXACT, SESSION, TOKEN_EXACT
from duramen.serving.gateway.lay_out import LaidOut
from duramen.serving.gateway.sessions.conversation import Opened
from duramen.serving.gateway.tenants import Tenant
from duramen.serving.kv.attribute import Flight, Mismatch
from duramen.serving.kv.held import Chain


@dataclass
class OngoingCall:
    """Filled in as the call goes on; None is "not known" or "did not come to that".

    `laid_out` None: not token-exact, because of `why_not_exact`. `name`: how the client calls the
    model. `chain`: what it holds of the cache. `store_s`: what it waited for group commits.
    """

    request_id: str
    tenant: Tenant
    serving: Serving
    name: str
    body: dict[str, Any]
    salt: str
    wants_explanation: bool
    why_not_exact: str | None
    laid_out: LaidOut | None = None
    bounds: Bounds | None = None
    look: Look | None = None
    queued_s: float | None = None
    flight: Flight | None = None
    chain: Chain | None = None
    mismatch: Mismatch | None = None
    answer: ChatAnswer | None = None
    store_s: float | None = None
    status: Status = "ok"
    error: BaseException | None = None
    arrived_s: float = field(default_factory=time.perf_counter)

    @property
    def opened(self) -> Opened | None:
        return self.laid_out.opened if self.laid_out else None

    @property
    def session_id(self) -> str | None:
        return self.opened.turn.session_id if self.opened else None

    @property
    def policies(self) -> tuple[str, ...]:
        return self.laid_out.policies if self.laid_out else ()

    @property
    def headers(self) -> dict[str, str]:
        if self.session_id is None:
            return NOT_EXACT
        return {TOKEN_EXACT: "true", SESSION: self.session_id}

    def facts(self) -> CallFacts:
        answer, flight = self.answer, self.flight
        arrivals = answer.arrivals_s if answer and self.body.get("stream") else []
        return CallFacts(
            tenant=self.tenant.name,
            model=self.serving.model.name,
            status=self.status,
            is_exact=self.opened is not None,
            zone_tokens=self.opened.zone_tokens if self.opened and answer else {},
            bounds=self.bounds,
            predicted_low=flight.predicted if flight else None,
            predicted_high=flight.predicted_most if flight else None,
            delivered=answer.delivered if answer else None,
            mismatch=self.mismatch,
            break_cause=self.look.cause if self.look else None,
            volatile_kinds={str(field.kind) for field in self.look.volatile} if self.look else (),
            queue_s=self.queued_s,
            ttft_s=arrivals[0] - self.arrived_s if arrivals else None,
            itl_s=[b - a for a, b in pairwise(arrivals)],
            sampled_tokens=answer.num_sampled if answer else 0,
            store_s=self.store_s,
            policies=self.policies,
        )

    def explanation(self) -> dict[str, Any]:
        """The `duramen` object: what the client is told, without any of the content."""
        assert self.answer is not None
        flight, opened = self.flight, self.opened
        predicted = [flight.predicted, flight.predicted_most] if flight else None
        told: dict[str, Any] = {
            "token_exact": opened is not None,
            "not_exact_because": self.why_not_exact,
            "queued_ms": round((self.queued_s or 0.0) * 1000, 3),
            "delivered_tokens": self.answer.delivered,
            "predicted_tokens": predicted if flight and flight.predicted is not None else None,
            "mismatch": self.mismatch,
            "policies": list(self.policies),
            "finish_reasons": self.answer.finish_reasons,
            "sampled_tokens": self.answer.num_sampled,
        }
        if opened is not None and self.bounds is not None:
            told |= {
                "session": opened.turn.session_id,
                "relation": opened.relation,
                "edit": msgspec.to_builtins(opened.edit) if opened.edit else None,
                "break": self.look.cause if self.look else None,
                "volatile": [
                    {"kind": field.kind, "character": field.start}
                    for field in (self.look.volatile if self.look else ())
                ],
                "zones": {zone.name.lower(): opened.zone_tokens[zone] for zone in Zone},
                "bounds": {
                    "prompt": self.bounds.num_tokens,
                    "content": self.bounds.content,
                    "token": self.bounds.token,
                    "unit": self.bounds.unit,
                },
                "recorded_tokens": opened.num_recorded,
                "deviations": [{"token": d.token, "call": d.call} for d in opened.deviations],
                "notes": list(opened.prompt.notes),
            }
        return told
