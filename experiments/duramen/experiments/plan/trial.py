"""What a setting comes to on some traffic, simulated."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from duramen.experiments.plan.kv_pool import Blocks, KvPool
from duramen.experiments.plan.setting import Setting
from duramen.experiments.plan.traffic import Traffic
from duramen.experiments.timed.engine import StepBudget, TimedEngine
from duramen.experiments.timed.figures import Goodput, Ranks, TimedFigures, figures
from duramen.experiments.timed.itl_budget import itl_budget
from duramen.experiments.timed.rules import rules_of
from duramen.experiments.timed.slo import Slo
from duramen.serving.kv.batching.rules import Rules
from duramen.serving.timing_profile import TimingProfile


@dataclass(frozen=True)
class Trial:
    """`ttft_p99_s` of all calls, `itl_p99_s` of all gaps (0 where no call has two tokens).
    `goodput`: calls that met the objectives one by one."""

    setting: Setting
    blocks: Blocks
    ttft_s: Ranks
    itl_s: Ranks
    tokens_per_s: float
    goodput: Goodput
    cached_tokens: int
    num_preemptions: int

    @property
    def ttft_p99_s(self) -> float:
        return self.ttft_s.p99 or 0.0

    @property
    def itl_p99_s(self) -> float:
        return self.itl_s.p99 or 0.0

    def over(self, slo: Slo) -> dict[str, float]:
        """By objective, how far its 99th percentile is above it: 0.5 is half as much again."""
        limits = {"ttft": (self.ttft_p99_s, slo.ttft_s), "itl": (self.itl_p99_s, slo.itl_s)}
        return {
            name: found_s / most_s - 1
            for name, (found_s, most_s) in limits.items()
            if most_s is not None and found_s > most_s
        }

    def as_json(self) -> dict[str, Any]:
        return {
            "setting": self.setting.as_json(),
            "unit_tokens": self.blocks.unit_tokens,
            "kv_tokens": self.blocks.num_tokens,
            "ttft_s": asdict(self.ttft_s),
            "itl_s": asdict(self.itl_s),
            "output_tokens_per_s": self.tokens_per_s,
            "goodput": {
                "num_calls": self.goodput.num_calls,
                "share": self.goodput.share,
                "calls_per_s": self.goodput.calls_per_s,
            },
            "cached_tokens": self.cached_tokens,
            "num_preemptions": self.num_preemptions,
        }


@dataclass
class Trials:
    """Simulates settings on one profile and one pool. `granule`: tokens of the smallest block,
    whose keys the calls have."""

    profile: TimingProfile
    pool: KvPool
    slo: Slo
    granule: int
    _blocks: dict[tuple[int, str], Blocks] = field(default_factory=dict)

    def blocks(self, setting: Setting) -> Blocks:
        wanted = (setting.block_size, setting.kv_dtype)
        if wanted not in self._blocks:
            self._blocks[wanted] = self.pool.blocks(*wanted)
        return self._blocks[wanted]

    def run(self, setting: Setting, traffic: Traffic) -> Trial:
        """Raises DuramenError where the profile's flags make no rules, LayoutError for a call that
        the pool could never hold."""
        blocks = self.blocks(setting)
        rules = self._rules(setting, blocks)
        engine = TimedEngine(
            rules,
            self.profile.step,
            self._step_budget(setting, rules),
            call_fixed_s=self.profile.call_fixed_s,
        )
        timeline = engine.run(traffic.arrivals(blocks.unit_tokens // self.granule))
        return _trial(setting, blocks, figures(timeline, self.slo))

    def _rules(self, setting: Setting, blocks: Blocks) -> Rules:
        flags: Mapping[str, Any] = {**self.profile.flags, **setting.as_flags()}
        # one block is never used
        num_blocks = None if blocks.num_blocks is None else blocks.num_blocks + 1
        return rules_of(replace(self.profile, flags=flags), blocks.unit_tokens, num_blocks)

    def _step_budget(self, setting: Setting, rules: Rules) -> StepBudget | None:
        if setting.itl_target_ms is None:
            return None
        target_s, most = setting.itl_target_ms / 1000, rules.max_num_batched_tokens
        return itl_budget(self.profile.step, target_s, most)


def _trial(setting: Setting, blocks: Blocks, found: TimedFigures) -> Trial:
    assert found.goodput is not None
    return Trial(
        setting,
        blocks,
        found.ttft_s,
        found.itl_s,
        found.output_tokens_per_s,
        found.goodput,
        found.cached_tokens,
        found.num_preemptions,
    )
