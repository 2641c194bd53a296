"""What the scheduler that holds a target between tokens is told, and where it reports: the
environment of vLLM's process, since its command line has no place for either."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from duramen.layout.errors import EngineError
from duramen.serving.timing_profile import TimingProfile, load_timing_profile

SCHEDULER_CLASS = "duramen.serving.vllm.scheduler.ItlScheduler"
TARGET = "DURAMEN_ITL_TARGET_MS"
TIMING = "DURAMEN_TIMING_PROFILE"
REPORT = "DURAMEN_ITL_REPORT"


@dataclass(frozen=True)
class ItlTarget:
    """`target_ms`: most between two tokens of a reply while others are prefilled. `timing`: a
    timing profile of this model on this device.

    Raises EngineError unless the target is above 0.
    """

    target_ms: float
    timing: Path

    def __post_init__(self) -> None:
        if not 0 < self.target_ms < 1e9:
            raise EngineError(f"the target must be milliseconds above 0, not {self.target_ms}")

    @property
    def target_s(self) -> float:
        return self.target_ms / 1000

    def load_timing(self) -> TimingProfile:
        """Raises DuramenError that names the file and the key."""
        return load_timing_profile(self.timing)

    def as_environment(self, report: Path) -> dict[str, str]:
        timing = str(self.timing.resolve())
        return {TARGET: repr(self.target_ms), TIMING: timing, REPORT: str(report)}

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "ItlTarget":
        """Raises EngineError where a variable is missing or no number."""
        for name in (TARGET, TIMING):
            if not environment.get(name):
                raise EngineError(f"{SCHEDULER_CLASS} needs {name} in the environment")
        try:
            target_ms = float(environment[TARGET])
        except ValueError:
            raise EngineError(f"{TARGET} is no number: {environment[TARGET]!r}") from None
        return cls(target_ms, Path(environment[TIMING]))
