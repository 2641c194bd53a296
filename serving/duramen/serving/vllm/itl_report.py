"""What the scheduler that holds a target between tokens did so far: one small file that it keeps
up to date, since it runs in a process that answers nobody."""

import os
from dataclasses import astuple, dataclass
from pathlib import Path
from struct import Struct

FORM = Struct("<5q3d")


@dataclass
class ItlReport:
    """Sums over mixed steps: those that computed prefills beside decodes. `num_floor`: of them,
    those that the target left no time for; `num_over`: those that took longer than the target;
    `budget_tokens`: chosen, `computed_tokens`: used of them. `ratio`: what predictions are
    multiplied by now."""

    num_steps: int = 0
    num_floor: int = 0
    num_over: int = 0
    budget_tokens: int = 0
    computed_tokens: int = 0
    predicted_s: float = 0.0
    measured_s: float = 0.0
    ratio: float = 1.0


class ReportFile:
    """Raises OSError where the file cannot be written."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb", buffering=0)

    def write(self, report: ItlReport) -> None:
        os.pwrite(self._file.fileno(), FORM.pack(*astuple(report)), 0)

    def close(self) -> None:
        self._file.close()


def read_report(path: Path) -> ItlReport | None:
    """None where there is none yet."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    return ItlReport(*FORM.unpack(content)) if len(content) == FORM.size else None
