"""Every scenario of the demo set."""

from duramen.experiments.record.scenarios import (
    blank_lines,
    given_twice,
    leaked_tags,
    span_gap,
    zero_usage,
)

SCENARIOS = (
    blank_lines.SCENARIO,
    given_twice.SCENARIO,
    leaked_tags.SCENARIO,
    span_gap.SCENARIO,
    zero_usage.SCENARIO,
)
