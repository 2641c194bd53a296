"""What an operator sees of the gateway, for Prometheus.

One registry for each gateway. Labels are closed sets, the operator's engines, and the operator's
tenants where there are keys; never sessions, nor anything that a client wrote. vLLM's own metrics
stay on the engine's own page.
"""

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from duramen.serving.gateway.call_facts import CallFacts
from duramen.serving.gateway.call_series import Outcomes, Times, Tokens
from duramen.serving.gateway.gauges import GpuGauges, LevelGauges, ReadGpus, ReadLevels
from duramen.serving.gateway.series import Count


class Metrics:
    """`read_levels` and `read_gpus` are called at each scrape. `by_tenant`: there is a key file."""

    def __init__(
        self, read_levels: ReadLevels, read_gpus: ReadGpus, *, by_tenant: bool = False
    ) -> None:
        self._by_tenant = by_tenant
        tenant = ("tenant",) if by_tenant else ()
        self._outcomes, self._tokens, self._times = Outcomes(tenant), Tokens(tenant), Times()
        self._restarts = Count(
            "duramen_engine_restarts_total", "Engines that were started again after they had died."
        )
        self._store_failures = Count(
            "duramen_store_failures_total", "Group commits that could not be written."
        )
        self._registry = CollectorRegistry()
        for of_calls in (self._outcomes, self._tokens, self._times):
            for series in vars(of_calls).values():
                self._registry.register(series)
        for collector in (
            self._restarts,
            self._store_failures,
            LevelGauges(read_levels, by_tenant=by_tenant),
            GpuGauges(read_gpus),
        ):
            self._registry.register(collector)

    def call_ended(self, call: CallFacts) -> None:
        tenant = (call.tenant,) if self._by_tenant else ()
        self._outcomes.add(call, tenant)
        self._tokens.add(call, tenant)
        self._times.add(call)

    def engine_restarted(self) -> None:
        self._restarts.add(1)

    def store_failed(self) -> None:
        self._store_failures.add(1)

    def render(self) -> tuple[str, bytes]:
        """Content type and body of a scrape."""
        return CONTENT_TYPE_LATEST, generate_latest(self._registry)
