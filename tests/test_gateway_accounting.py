"""However a call ends, it is counted as what it was."""

from dataclasses import dataclass

import pytest

from duramen.serving.gateway.accounting import accounted
from duramen.serving.gateway.call_facts import CallFacts, Status
from duramen.serving.gateway.errors import DEADLINE, ApiError
from duramen.serving.gateway.gauges import Levels
from duramen.serving.gateway.metrics import Metrics
from duramen.serving.gateway.wire import Disconnected

LEVELS = Levels(num_running=0, num_queued=0, engines_up={}, num_sessions=0, sessions_bytes=0)


@dataclass
class Call:
    request_id: str = "req-1"
    session_id: str | None = None
    status: Status = "ok"
    error: BaseException | None = None

    def facts(self) -> CallFacts:
        return CallFacts(tenant="a", model="m", status=self.status, is_exact=False)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (None, "ok"),
        (Disconnected(), "client_gone"),
        (ApiError(400, "no"), "refused"),
        (ApiError(504, "late", code=DEADLINE), "deadline"),
        (ApiError(503, "down"), "engine_error"),
        (KeyError("a bug of ours"), "engine_error"),
    ],
)
def test_how_a_call_ends(error: Exception | None, status: Status) -> None:
    call, metrics = Call(), Metrics(lambda: LEVELS, lambda: ())
    if error is None:
        with accounted(call, metrics):
            pass
    else:
        with pytest.raises(type(error)), accounted(call, metrics):
            raise error
    page = metrics.render()[1].decode()
    assert f'duramen_calls_total{{exact="false",status="{status}"}} 1.0' in page
