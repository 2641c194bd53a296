"""What a call must keep to count as good: its first token in time, and no long gaps after it."""

import re
from dataclasses import dataclass

from duramen.layout.errors import DuramenError

UNITS_S = {"s": 1.0, "ms": 0.001}


@dataclass(frozen=True)
class Slo:
    """`ttft_s`: the most until the first token. `itl_s`: the most that the 99th percentile of the
    call's own gaps may be. None: any time will do."""

    ttft_s: float | None = None
    itl_s: float | None = None

    def is_met(self, ttft_s: float, itl_p99_s: float | None) -> bool:
        """`itl_p99_s` is None for a call of one token."""
        return _is_within(ttft_s, self.ttft_s) and _is_within(itl_p99_s, self.itl_s)


def _is_within(value_s: float | None, most_s: float | None) -> bool:
    return value_s is None or most_s is None or value_s <= most_s


def parse_slo(text: str) -> Slo:
    """From `ttft=2s,itl=400ms`, either of them or both. Raises DuramenError for anything else."""
    times_s: dict[str, float] = {}
    for part in text.split(","):
        found = re.fullmatch(r"\s*(ttft|itl)=(\d+(?:\.\d+)?)(ms|s)\s*", part)
        if found is None or found[1] in times_s:
            raise DuramenError(f"{text!r} is no objective: write it like ttft=2s,itl=400ms")
        times_s[found[1]] = float(found[2]) * UNITS_S[found[3]]
    return Slo(times_s.get("ttft"), times_s.get("itl"))
