"""One session on a GPU for one model: probe, calibrate, replay live and simulated, validate the
simulator under eviction, kernel tests.

Every step's output goes to OUT/NAME.log and its figures to OUT; OUT/session.md is the page,
OUT/session.json the same for machines. A step that fails does not stop the others. Exit code 0 if
all went well, 1 if a step failed, 2 if there is nothing to measure on.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path

from duramen.cli.output import as_text, write_text
from duramen.kernels.device import find_gpus
from duramen.layout.errors import DuramenError
from gpu_page import as_page, figures

ROOT = Path(__file__).parents[1]
DURAMEN = str(Path(sys.executable).with_name("duramen"))
KERNEL_TESTS = [
    f"tests/test_{name}.py" for name in ("attention_oracle", "attention_peers", "device_probe")
]
FEW_CALLS = {"cuda": [], "cpu": ["--calls", "40"]}
LAYOUTS = ["--layout", "stable", "--layout", "clock"]  # most of a prompt cached, and nothing
LIMIT = {"cuda": [], "cpu": ["--limit", "1"]}
REPEATS = {"cuda": ["--repeat", "3"], "cpu": []}


@dataclass(frozen=True)
class Step:
    """`needs`: the file of an earlier step, without which it is not run."""

    name: str
    command: Sequence[str]
    needs: Path | None = None


@dataclass(frozen=True)
class Done:
    """`exit_code`: None where the step was not run; `said`: why, or its last line if it failed."""

    name: str
    command: str
    exit_code: int | None
    seconds: float
    said: str

    @property
    def is_good(self) -> bool:
        return self.exit_code == 0


def steps(model: str, device: str, out: Path) -> list[Step]:
    profile = f"{out}/profile.yaml"
    probe = [sys.executable, "scripts/probe_device.py", "--device", device, "--model", model]
    replay = [DURAMEN, "replay", "--demo", "--model", model, *LAYOUTS, *LIMIT[device]]
    validate = [sys.executable, "scripts/bench_validate.py", "--model", model, *FEW_CALLS[device]]
    tests = [sys.executable, "-m", "pytest", *KERNEL_TESTS, "-k", device, "-p", "no:cacheprovider"]
    return [
        Step("doctor", [DURAMEN, "doctor", "--json", f"{out}/doctor.json"]),
        Step("probe", [*probe, "--json", f"{out}/probe.json"]),
        Step("calibrate", [DURAMEN, "calibrate", "--model", model, "--out", profile]),
        Step(
            "live",
            [*replay, "--engine", "live", *REPEATS[device], "--json", f"{out}/live.json"],
        ),
        Step(
            "simulated",
            [*replay, "--timing", profile, "--json", f"{out}/simulated.json"],
            needs=Path(profile),
        ),
        Step(
            "validate",
            [*validate, "--timing", profile, "--json", f"{out}/validate.json"],
            needs=Path(profile),
        ),
        Step("kernels", [*tests, "--junitxml", f"{out}/kernels.xml"]),
    ]


def carry_out(step: Step, out: Path) -> Done:
    command = " ".join(step.command)
    if step.needs is not None and not step.needs.is_file():
        return Done(step.name, command, None, 0.0, f"not run: {step.needs.name} was not written")
    log = out / f"{step.name}.log"
    begin = time.monotonic()
    with log.open("wb") as output:
        exit_code = subprocess.run(
            step.command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env=os.environ | {"DURAMEN_REQUIRE_LIVE": "1"},
        ).returncode
    lines = log.read_text(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "no output")
    return Done(
        step.name, command, exit_code, time.monotonic() - begin, last if exit_code else "done"
    )


def run(each: Sequence[Step], out: Path, say: Callable[[str], None]) -> list[Done]:
    done: list[Done] = []
    for number, step in enumerate(each, 1):
        say(f"[{number}/{len(each)}] {step.name}: {out / step.name}.log")
        done.append(carry_out(step, out))
        if not done[-1].is_good:
            say(f"      {done[-1].said}")
    return done


def check_device(device: str) -> None:
    """Raise DuramenError, with what to do, if CUDA cannot run here."""
    if device == "cpu":
        return
    gpus = find_gpus()
    if gpus is None:
        raise DuramenError("nvidia-ml-py is missing: .venv/bin/pip install nvidia-ml-py")
    if not gpus:
        raise DuramenError("there is no NVIDIA GPU here, or no driver: run it on a machine of one")
    if import_module("torch").version.cuda is None:
        raise DuramenError("torch is its CPU build here: make .venv as docs/gpu.md says")


def session(model: Path, device: str, out: Path) -> int:
    """Its exit code."""
    check_device(device)
    if not (model / "config.json").is_file():
        raise DuramenError(f"no model at {model}: config.json is missing")
    try:
        out.mkdir(parents=True)
    except FileExistsError:
        raise DuramenError(f"{out} exists already: name a new folder") from None
    done = run(steps(str(model), device, out), out, print)
    fields = {"model": model.name, "steps": [asdict(each) for each in done], **figures(out)}
    write_text(as_text("gpu-session", fields), out / "session.json")
    write_text(as_page(fields), out / "session.md")
    print(f"written: {out / 'session.md'}")
    return 0 if all(each.is_good for each in done) else 1


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/gpu-session", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, metavar="DIR")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="a new folder")
    parser.add_argument(
        "--device", choices=["cuda", "cpu"], default="cuda", help="cpu: a rehearsal without a GPU"
    )
    chosen = parser.parse_args()
    try:
        sys.exit(session(chosen.model.resolve(), chosen.device, chosen.out.resolve()))
    except DuramenError as error:
        print(f"scripts/gpu-session: error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
