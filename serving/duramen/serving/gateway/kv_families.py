"""KV bytes and byte-seconds of a ledger, for Prometheus."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from duramen.serving.kv.ledger import Held, Owner


def kv_families(held: Mapping[Owner, Held], *, by_tenant: bool) -> Iterator[Metric]:
    labels = ("zone", "tenant") if by_tenant else ("zone",)
    now = GaugeMetricFamily(
        "duramen_kv_bytes",
        "KV cache that is held now, in bytes, by zone; shared blocks are split.",
        labels=labels,
    )
    so_far = CounterMetricFamily(
        "duramen_kv_byte_seconds",
        "KV cache that was held, in bytes x seconds, by zone; shared blocks are split.",
        labels=labels,
    )
    num_bytes: defaultdict[tuple[str, ...], float] = defaultdict(float)
    byte_seconds: defaultdict[tuple[str, ...], float] = defaultdict(float)
    for owner, each in held.items():
        values = (owner.zone.value, owner.tenant)[: len(labels)]
        num_bytes[values] += each.num_bytes
        byte_seconds[values] += each.byte_seconds
    for values, total in num_bytes.items():
        now.add_metric(values, total)
        so_far.add_metric(values, byte_seconds[values])
    yield now
    yield so_far
