"""Certify a template in a child process, which is ended where the template takes too much.

A template is a program: `{{ 'x' * 10**10 }}` asks for 10 GB, nested loops for hours. On Linux the
kernel holds the child to its processor time and memory (setrlimit(2): RLIMIT_CPU, RLIMIT_AS) and
ends it with its parent (prctl(2): PR_SET_PDEATHSIG); elsewhere only the parent's timeout ends it.
"""

import ctypes
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from duramen.layout.certify.certified import STAND_INS, Certified, certified
from duramen.layout.certify.rendering import Rendering
from duramen.layout.certify.transitions import TRANSITIONS
from duramen.layout.certify.verdicts import Outcome
from duramen.layout.errors import DuramenError, TemplateError
from duramen.layout.template import ChatTemplate
from duramen.layout.tokenizer import Tokenizer

MAX_ANSWER_BYTES = 64 << 20  # a certificate has some 30 KB; a template may refuse with any text
PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
WAITS = 5  # the wall may take so many times the processor time: others may be using it


@dataclass(frozen=True)
class Bounds:
    """`memory_bytes`: of address space, beyond what the child has before it sees the template."""

    cpu_s: int = 120
    memory_bytes: int = 2 << 30

    @property
    def wall_s(self) -> int:
        return self.cpu_s * WAITS if sys.platform == "linux" else self.cpu_s


BOUNDS = Bounds()


def certified_within(source: str, folder: Path | None, bounds: Bounds | None = None) -> Certified:
    """As `certified`, with the tokenizer of `folder`; a template that breaks the bounds is refused
    in all. Raises the DuramenError that stopped it, of the tokenizer for one."""
    bounds = bounds or BOUNDS
    request = pickle.dumps((os.getpid(), source, folder, bounds.cpu_s, bounds.memory_bytes))
    # One thread: each reserves address space of its own.
    environment = os.environ | {"RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    try:
        child = subprocess.run(
            [sys.executable, "-P", "-m", "duramen.cli.certify_bounded"],
            input=request,
            capture_output=True,
            timeout=bounds.wall_s,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        return _refused(f"takes more than {bounds.wall_s} s")
    if child.returncode < 0:
        return _refused(_death(-child.returncode, bounds))
    if child.returncode > 0:  # a bug of ours
        raise RuntimeError(child.stderr.decode(errors="replace"))
    answer: Certified | DuramenError | None = pickle.loads(child.stdout)
    if answer is None:
        return _refused(_too_big(bounds))
    if isinstance(answer, DuramenError):
        raise answer
    return answer


def _too_big(bounds: Bounds) -> str:
    return f"takes more than {bounds.memory_bytes / 2**30:.2g} GiB of memory"


def _death(number: int, bounds: Bounds) -> str:
    name = signal.Signals(number).name if number in set(signal.Signals) else str(number)
    if name == "SIGXCPU":
        return f"takes more than {bounds.cpu_s} s of processor time"
    if name in ("SIGKILL", "SIGABRT"):  # out of memory: the kernel's doing, or that of native code
        return f"{_too_big(bounds)} (ended by {name})"
    return f"ends the process that renders it ({name})"


def _refused(what: str) -> Certified:
    why = f"the chat template {what}"
    return Certified({t.name: Outcome("refused", why=why) for t in TRANSITIONS}, refused=why)


def _bind(cpu_s: int, memory_bytes: int) -> None:
    """Set this process's limits, none above those that it has."""
    if sys.platform != "linux":
        return
    import resource

    pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    size_bytes = pages * resource.getpagesize() + memory_bytes
    for limit, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, cpu_s),
        (resource.RLIMIT_AS, size_bytes),
    ):
        _, hard = resource.getrlimit(limit)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (value, hard))


def _end_with(parent_id: int) -> None:
    """Have this process killed when its parent is, whatever it does then."""
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent_id:  # it was gone before
        sys.exit(1)


def _answer(source: str, folder: Path | None) -> Certified | DuramenError | None:
    """None where the memory does not do."""
    try:
        tokenizer = None if folder is None else Tokenizer.load(folder, source)
        if _exhausts(source, STAND_INS if tokenizer is None else tokenizer.special_strings):
            return None
        return certified(source, tokenizer)
    except DuramenError as error:
        return error
    except MemoryError:
        return None


def _exhausts(source: str, specials: Mapping[str, str]) -> bool:
    """Whether a step fails for want of memory; a template's own errors are left to `certified`."""
    try:
        rendering = Rendering(ChatTemplate(source, specials))
    except TemplateError:
        return False
    for transition in TRANSITIONS:
        try:
            rendering.step(transition)
        except TemplateError as error:
            if isinstance(error.__context__, MemoryError):
                return True
    return False


def _serve() -> None:
    """The child: a request from stdin, the answer to stdout."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # at once, inside native code, too
    parent_id, source, folder, cpu_s, memory_bytes = pickle.load(sys.stdin.buffer)
    _end_with(parent_id)
    _bind(cpu_s, memory_bytes)
    answer = _answer(source, folder)
    try:
        written = pickle.dumps(answer)
    except MemoryError:
        written = pickle.dumps(None)
    if len(written) > MAX_ANSWER_BYTES:
        written = pickle.dumps(None)
    sys.stdout.buffer.write(written)


if __name__ == "__main__":
    _serve()
