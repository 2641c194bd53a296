"""The settings of vLLM's scheduler that decide what a step computes."""

from dataclasses import dataclass
from enum import Enum

from duramen.layout.errors import LayoutError


class Policy(Enum):
    FCFS = "fcfs"
    PRIORITY = "priority"


@dataclass(frozen=True)
class Rules:
    """By vLLM's own names. `num_blocks` is vLLM's num_gpu_blocks, the null block included; None is
    infinite.

    Raises LayoutError for values that vLLM would refuse.
    """

    block_size: int
    num_blocks: int | None
    max_num_batched_tokens: int
    max_num_seqs: int
    long_prefill_token_threshold: int = 0  # 0: none
    policy: Policy = Policy.FCFS
    scheduler_reserve_full_isl: bool = True
    watermark: float = 0.0
    async_scheduling: bool = True  # vLLM's CPU build never does

    def __post_init__(self) -> None:
        for name in ("block_size", "max_num_batched_tokens", "max_num_seqs"):
            if getattr(self, name) < 1:
                raise LayoutError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise LayoutError(
                f"max_num_batched_tokens {self.max_num_batched_tokens} is below max_num_seqs "
                f"{self.max_num_seqs}: a step could not serve them all"
            )
        if self.long_prefill_token_threshold < 0:
            raise LayoutError(
                f"long_prefill_token_threshold {self.long_prefill_token_threshold} is below 0"
            )
        if not 0 <= self.watermark < 1:
            raise LayoutError(f"watermark {self.watermark} is no share in [0, 1)")

    @property
    def watermark_blocks(self) -> int:
        return 0 if self.num_blocks is None else int(self.watermark * self.num_blocks)

    def can_hold(self, num_tokens: int) -> bool:
        """Whether a sequence of so many tokens fits in the empty pool."""
        usable = None if self.num_blocks is None else self.num_blocks - 1
        return usable is None or -(-num_tokens // self.block_size) <= usable
