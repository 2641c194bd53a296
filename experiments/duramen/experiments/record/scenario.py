"""What a scripted session is: a fault in a copy of the code, a task, and the agent's turns."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from duramen.layout.errors import TrajectoryError


@dataclass(frozen=True)
class Near:
    """Line numbers an agent would take from what it has just seen: around the first line that
    holds `text`."""

    text: str
    num_before: int = 0
    num_after: int = 12


@dataclass(frozen=True)
class Use:
    """One tool call of a turn. `near` adds start_line and end_line to the arguments."""

    tool: str
    arguments: dict[str, Any]
    near: Near | None = None

    def arguments_in(self, root: Path) -> dict[str, Any]:
        """Raises TrajectoryError where the text that `near` names is not in the file."""
        if self.near is None:
            return self.arguments
        lines = (root / self.arguments["path"]).read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, start=1):
            if self.near.text in line:
                start = max(1, number - self.near.num_before)
                end = min(len(lines), number + self.near.num_after)
                return self.arguments | {"start_line": start, "end_line": end}
        raise TrajectoryError(
            f"{self.arguments['path']} no longer holds {self.near.text!r}: mend the scenario"
        )


@dataclass(frozen=True)
class Turn:
    """What the agent says and the tools it calls with it; a turn without tools ends the session."""

    text: str
    uses: tuple[Use, ...] = ()


@dataclass(frozen=True)
class Scenario:
    """`fault` is (sound text, faulty text), swapped in `path` before the session starts;
    `test_path` is written with `test_text` and must fail because of it."""

    name: str
    task: str
    path: str
    fault: tuple[str, str]
    test_path: str
    test_text: str
    turns: tuple[Turn, ...]

    def seed(self, root: Path) -> None:
        """Put fault and test into the checkout at `root`. Raises TrajectoryError if the sound text
        does not stand there exactly once."""
        sound, faulty = self.fault
        text = (root / self.path).read_text(encoding="utf-8")
        if text.count(sound) != 1:
            raise TrajectoryError(
                f"{self.path} holds {sound!r} {text.count(sound)} times, not once: "
                f"mend the scenario {self.name!r}"
            )
        (root / self.path).write_text(text.replace(sound, faulty), encoding="utf-8")
        (root / self.test_path).parent.mkdir(exist_ok=True)
        (root / self.test_path).write_text(self.test_text, encoding="utf-8")
