"""The page of a study in a real browser: no errors, choices that work, room, contrast.

Chromium is driven over a pipe (DevTools protocol), without any port. Without an installed chromium
these tests are skipped, and the run says so at its end.
"""

import copy
import fcntl
import json
import os
import select
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from duramen.cli import main
from duramen.experiments.study.page.page import render

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions")
ANSWER_S = 60.0
Study = dict[str, Any]


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
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        reason = f"no chromium ({', '.join(NAMES)}): the study's page is not seen by a browser"
        notice(reason)
        pytest.skip(reason)
    found = Browser(path, tmp_path_factory.mktemp("profile"))
    try:
        yield found
    finally:
        found.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, smollm2: Path) -> Path:
    out = tmp_path_factory.mktemp("seen")
    layouts = ("stable", "clock", "zoned:k=2", "zoned:k=2,align=32")
    arguments = [argument for label in layouts for argument in ("--layout", label)]
    arguments += ["--unit", "16", "--unit", "32", "--limit", "2", "--model", str(smollm2)]
    with pytest.MonkeyPatch.context() as patch:
        command = ["duramen", "study", "layouts", "--demo", *arguments, "--out", str(out)]
        patch.setattr("sys.argv", command)
        assert main.run() == 0
    return out


@pytest.fixture(scope="module")
def study(folder: Path) -> Study:
    found: Study = json.loads((folder / "study.json").read_text("utf-8"))
    return found


@pytest.fixture(scope="module")
def hostile(study: Study, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of names that would do harm, or take room, if they were let."""
    bad = copy.deepcopy(study)
    names = {"clock": "</script><img src=x onerror=alert(1)>", "zoned:k=2": "w" * 400}
    bad["layouts"] = {names.get(name, name): each for name, each in bad["layouts"].items()}
    bad["lanes"] = {
        f"</script>{'s' * 300}{session}": {
            names.get(name, name): each for name, each in lane.items()
        }
        for session, lane in bad["lanes"].items()
    }
    path = tmp_path_factory.mktemp("hostile") / "index.html"
    path.write_text(render(bad), "utf-8")
    return path


CHOOSE = """(choice, index) => {
  const select = document.querySelector(`select[data-choice=${choice}]`);
  select.selectedIndex = index;
  select.dispatchEvent(new Event("change"));
}"""
HEADLINE = """[...document.querySelectorAll(".headline tbody tr")].map(
  (row) => [...row.cells].map((cell) => cell.innerText.trim()))"""
SHOWN = """(section) => [...document.querySelectorAll(`#${section} tbody`)]
  .filter((body) => body.checkVisibility()).length"""


def test_it_opens_without_a_fault(browser: Browser, folder: Path, hostile: Path) -> None:
    for page in (folder / "index.html", hostile):
        browser.open(page)
        for choice in ("arm", "model", "device", "price", "lane"):
            browser.run(f"({CHOOSE})({choice!r}, 1)")
        browser.run("document.querySelectorAll('svg[tabindex]').forEach((each) => each.focus())")
        assert browser.faults() == []
        assert browser.run("document.querySelectorAll('script, img').length") == 2


def test_choices_show_the_studys_numbers(browser: Browser, folder: Path, study: Study) -> None:
    browser.open(folder / "index.html")
    models, devices = list(study["prices"]), list(study["devices"])
    shown = []
    for place, arm in enumerate(study["arms"]):
        model, device = models[-1 - place % 2], devices[place % len(devices)]
        browser.run(f"({CHOOSE})('arm', {place})")
        browser.run(f"({CHOOSE})('model', {models.index(model)})")
        browser.run(f"({CHOOSE})('device', {devices.index(device)})")
        rows = {row[0].split()[0]: row[1:] for row in browser.run(HEADLINE)}
        assert set(rows) == set(study["layouts"])
        for label, row in rows.items():
            layout = study["layouts"][label]
            sums = layout["arms"][arm]
            assert row[1] == f"{sums['uncached_tokens']:,}"
            assert row[4] == f"{sums['hit_rate']:.1%}"
            usd, exact = Decimal(row[7].strip("$")), Decimal(layout["usd"][model])
            assert abs(usd - exact) <= exact / 200
            makespan = sums["devices"][device]["makespan_s"]
            assert float(row[10]) == pytest.approx(makespan, rel=0.005)
        tokens = [int(row[1].replace(",", "")) for row in rows.values()]
        assert tokens == sorted(tokens)
        assert f"{tokens[0]:,} of" in browser.run("document.querySelector('.finding').innerText")
        assert browser.run(f"({SHOWN})('bounds')") == 1
        shown.append(tokens)
    assert shown[0] != shown[1]


def test_reading_by_keyboard_says_the_studys_numbers(
    browser: Browser, folder: Path, study: Study
) -> None:
    browser.open(folder / "index.html")
    calls = study["lanes"][next(iter(study["lanes"]))]["stable"]
    said = browser.run(
        """(() => {
          const lane = [...document.querySelectorAll("#lanes figure")].find(
            (figure) => figure.checkVisibility() && figure.innerText.startsWith("stable"));
          const press = () => lane.querySelector("svg[data-lane]").dispatchEvent(
            new KeyboardEvent("keydown", { key: "ArrowDown" }));
          press(); press();
          return lane.querySelector(".readout").textContent;
        })()"""
    )
    prompt, cached, _ = calls[1]
    assert said.startswith(f"call 1: {prompt:,} prompt tokens, {cached:,} cached")


@pytest.mark.parametrize("width", [390, 1440])
def test_only_tables_scroll_sideways(
    browser: Browser, folder: Path, hostile: Path, width: int
) -> None:
    browser.look(width, "light")
    for page in (folder / "index.html", hostile):
        browser.open(page)
        browser.run("document.querySelectorAll('details').forEach((each) => (each.open = true))")
        assert browser.run("document.scrollingElement.scrollWidth") <= width
        assert browser.run("window.innerWidth") == width


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


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read(browser: Browser, folder: Path, scheme: str) -> None:
    browser.look(1440, scheme)
    browser.open(folder / "index.html")
    found = browser.run(TEXTS)
    assert len(found) > 5
    assert {text: pair for pair, text in found.items() if contrast(pair) < 4.5} == {}
    ground = browser.run("getComputedStyle(document.body).backgroundColor")
    assert (luminance(list(map(int, ground[4:-1].split(", ")))) > 0.5) == (scheme == "light")
