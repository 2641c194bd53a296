"""Every call ends in the metrics and in the log, however it ends."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from duramen.serving.gateway import log
from duramen.serving.gateway.call_facts import CallFacts, Status
from duramen.serving.gateway.errors import ApiError
from duramen.serving.gateway.metrics import Metrics
from duramen.serving.gateway.refusals import status_of
from duramen.serving.gateway.wire import Disconnected


class Accounted(Protocol):
    status: Status
    error: BaseException | None

    @property
    def request_id(self) -> str: ...

    @property
    def session_id(self) -> str | None: ...

    def facts(self) -> CallFacts: ...


@contextmanager
def accounted(call: Accounted, metrics: Metrics) -> Iterator[None]:
    """Tells from what the block raises how the call ended."""
    try:
        yield
    except Disconnected:
        call.status = "client_gone"
        raise
    except ApiError as error:
        call.status, call.error = status_of(error), error
        raise
    except Exception as error:  # a bug of ours: counted as what it is for the client
        call.status, call.error = "engine_error", error
        raise
    finally:
        facts = call.facts()
        metrics.call_ended(facts)
        log.call_ended(
            facts, request_id=call.request_id, session_id=call.session_id, error=call.error
        )
