"""Runs a command for a parent and never outlives it: `python -m ...guard DIRECTORY COMMAND...`.

The command gets a session of its own. When it ends, or when standard input closes (the parent
closed it, or died of anything, SIGKILL included), every process of that session's group is ended:
SIGTERM, and SIGKILL after a grace period. The guard ends last. In the second case DIRECTORY, with
the log in it, is deleted too: nobody is left to read it. Exits with the command's status.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress

GRACE_S = 10.0
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


def main(directory: str, command: list[str]) -> int:
    _adopt_orphans()
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    parent_is_done = threading.Event()
    arguments = (child, parent_is_done)
    threading.Thread(target=_stop_at_end_of_input, args=arguments, daemon=True).start()
    status = child.wait()
    _signal_group(child.pid, signal.SIGKILL)
    with suppress(ChildProcessError):  # none is left
        while True:
            os.waitpid(-child.pid, 0)
    if parent_is_done.is_set():
        shutil.rmtree(directory, ignore_errors=True)
    return status if status >= 0 else 128 - status


def _adopt_orphans() -> None:
    """Become the parent of grandchildren whose parent dies, to wait for their end (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def _stop_at_end_of_input(
    child: "subprocess.Popen[bytes]", parent_is_done: threading.Event
) -> None:
    while os.read(0, 1024):
        pass
    parent_is_done.set()
    _signal_group(child.pid, signal.SIGTERM)
    try:
        child.wait(timeout=GRACE_S)
    except subprocess.TimeoutExpired:
        _signal_group(child.pid, signal.SIGKILL)


def _signal_group(group_id: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # all of them are gone already
        os.killpg(group_id, number)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # SIG_IGN would be inherited by the command
    sys.exit(main(sys.argv[1], sys.argv[2:]))
