"""A real chromium that looks at our pages, driven over a pipe (DevTools protocol), without a port.

Without an installed chromium the tests that need one are skipped, and the run says so at its end.
"""

import fcntl
import json
import os
import select
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions")
ANSWER_S = 60.0


class Browser:
    """One chromium with a profile of its own; `events` since the last page was opened."""

    def __init__(self, path: str, profile: Path) -> None:
        ours, theirs = self._pipes()
        self.events: list[dict[str, Any]] = []
        self._session: str | None = None
        self._commands, self._answers = ours
        self._number = 0
        self._rest = b""
        quiet = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
        piped = [(os.POSIX_SPAWN_DUP2, fd, place) for place, fd in zip((3, 4), theirs, strict=True)]
        arguments = [path, *FLAGS, "--remote-debugging-pipe", f"--user-data-dir={profile}"]
        self.pid = os.posix_spawn(
            path, arguments, dict(os.environ), file_actions=[*quiet, *piped], setpgroup=0
        )
        for fd in theirs:
            os.close(fd)
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    @staticmethod
    def _pipes() -> tuple[tuple[int, int], tuple[int, int]]:
        """Ours (to write, to read) and the browser's (to read, to write), all above 9."""
        ends = []
        for fd in (*os.pipe(), *os.pipe()):
            ends.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10))
            os.close(fd)
        return (ends[1], ends[2]), (ends[0], ends[3])

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            self.events.append(answer)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._answers], [], [], ANSWER_S)
            assert ready, f"chromium said nothing for {ANSWER_S} s"
            read = os.read(self._answers, 1 << 16)
            assert read, "chromium has gone"
            self._rest += read
        first, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(first)
        return found

    def open(self, page: Path) -> None:
        self.events.clear()
        self.send("Page.navigate", url=page.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def run(self, script: str) -> Any:
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def look(self, width: int, scheme: str) -> None:
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.send("Emulation.setEmulatedMedia", features=features)

    def faults(self) -> list[dict[str, Any]]:
        """What the console holds, and what was asked for beside the page itself."""
        said = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        found = [event for event in self.events if event.get("method") in said]
        for event in self.events:
            if event.get("method") == "Network.requestWillBeSent":
                url = event["params"]["request"]["url"]
                found += [] if url.startswith(("file:", "data:")) else [event]
        return found

    def close(self) -> None:
        """Stops the browser and what it started: they are a process group of their own."""
        os.close(self._commands)
        os.close(self._answers)
        for _ in range(100):
            if os.waitpid(self.pid, os.WNOHANG)[0]:
                break
            time.sleep(0.05)
        else:
            os.killpg(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


@pytest.fixture(scope="module")
def browser(
    notice: Callable[[str], None], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Browser]:
    """A browser of the module's own; without an installed chromium its tests are skipped."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        reason = f"no chromium ({', '.join(NAMES)}): pages are not seen by a browser"
        notice(reason)
        pytest.skip(reason)
    found = Browser(path, tmp_path_factory.mktemp("profile"))
    try:
        yield found
    finally:
        found.close()


TEXTS = """(() => {
  const context = document.createElement("canvas").getContext("2d");
  const colour = (css) => {
    context.clearRect(0, 0, 1, 1);
    context.fillStyle = css;
    context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data];
  };
  const ground = (element) => {
    const before = element.previousElementSibling;
    if (element.matches(".bounds tbody text")) return colour(getComputedStyle(before).fill);
    for (let each = element; each; each = each.parentElement) {
      const found = colour(getComputedStyle(each).backgroundColor);
      if (found[3] === 255) return found;
    }
    return colour("white");
  };
  const found = {};
  for (const element of document.body.querySelectorAll("*")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !element.checkVisibility() || element.closest("script, option, noscript")) continue;
    const style = getComputedStyle(element);
    const ink = colour(element.closest("svg") ? style.fill : style.color);
    found[JSON.stringify([ink, ground(element)])] = element.textContent.slice(0, 40);
  }
  return found;
})()"""


def luminance(colour: list[int]) -> float:
    """Relative luminance by WCAG 2.2."""
    parts = [part / 255 for part in colour[:3]]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(colours: str) -> float:
    low, high = sorted(map(luminance, json.loads(colours)))
    return (high + 0.05) / (low + 0.05)
