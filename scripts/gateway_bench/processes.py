"""The processes of a benchmark: each on a core that is named, ended with it."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from urllib.error import URLError
from urllib.request import urlopen

from duramen.experiments.served import serve_command, with_limits
from duramen.serving.vllm.launch import free_port

HERE = Path(__file__).parent
LIMITS = "max_running: 1024, tenant_max_running: 1024"  # all calls of a round run at once
START_TIMEOUT_S = 60.0
TICKS = os.sysconf("SC_CLK_TCK")


@contextmanager
def on_cores(cores: set[int]) -> Iterator[None]:
    """For this process."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def upstream(cores: set[int]) -> Iterator[int]:
    """The fake vLLM's port."""
    port = free_port()
    with _process([sys.executable, str(HERE / "upstream.py"), str(port)], cores, port):
        yield port


@contextmanager
def gateway(
    model_dir: Path, upstream_port: int, cores: set[int] | None, store: Path | None = None
) -> Iterator[tuple[int, int]]:
    """Port and process id of a gateway in front of it. `cores` None: all; `store` None: none."""
    port = free_port()
    url = f"http://127.0.0.1:{upstream_port}"
    options = ["--no-store"] if store is None else ["--store", str(store)]
    with tempfile.TemporaryDirectory() as folder:
        options += ["--profile", str(with_limits(Path(folder), "bench", LIMITS))]
        command = serve_command(model_dir, "bench", url, port, options)
        with _process(command, cores, port) as pid:
            yield port, pid


@contextmanager
def _process(command: list[str], cores: set[int] | None, port: int) -> Iterator[int]:
    with tempfile.TemporaryFile() as log:
        started = subprocess.Popen(command, stderr=log)
        try:
            os.sched_setaffinity(started.pid, cores or range(os.cpu_count() or 1))
            _wait(started, port, log)
            yield started.pid
        finally:
            started.kill()  # a gateway would wait for its endless streams
            started.wait()


def _wait(process: "subprocess.Popen[bytes]", port: int, log: IO[bytes]) -> None:
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline_s:
        if process.poll() is not None:
            log.seek(0)
            raise RuntimeError(f"{process.args!r} ended: {log.read().decode()[-2000:]}")
        try:
            urlopen(f"http://127.0.0.1:{port}/health", timeout=2).close()
            return
        except (URLError, OSError):
            time.sleep(0.05)
    raise RuntimeError(f"{process.args!r} does not answer")


def cpu_s(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS
