"""Can one tenant time another's sessions? Asks a live gateway and says what is above noise.

    scripts/probe_tenants.py UPSTREAM [--pairs 200]

UPSTREAM is a vLLM that serves smollm2; a gateway with two keys is started in front of it. Alice
holds conversations that nobody else knows. In each pair Bob asks, in random order, about one of
them and about one of the same length that nobody holds, and notes how long the answer took to
begin. The pairs' differences are compared by a permutation test: Wilcoxon's signed ranks under
20,000 random flips of sign, two-sided. `null` compares two that nobody holds. `control` is the
first probe by Alice herself: it must show, or the probes are blind. Exits with 1 if a foreign
prefix was cached or a probe is above noise.
"""

import argparse
import random
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import numpy as np

from duramen.serving.gateway.key_file import key_line, new_key

NUM_FLIPS = 20_000
LEVEL = 0.001  # for each of the probes
START_S = 60.0
NUM_WORDS = 220
WORDS = ["oak", "elm", "ash", "fir", "bark", "root", "leaf", "sap", "wood", "ring", "seed", "moss"]
SESSIONS = "/v1/duramen/sessions/"

Fields = dict[str, Any]


@dataclass
class Tenant:
    """One keep-alive connection."""

    port: int
    key: str

    def __post_init__(self) -> None:
        self._http = HTTPConnection("127.0.0.1", self.port, timeout=300)

    def ask(self, method: str, path: str, body: Any = None, **more: str) -> tuple[float, bytes]:
        """Seconds to the first byte of the answer's body, and the body."""
        headers = {"authorization": f"Bearer {self.key}", **more}
        data = None if body is None else msgspec.json.encode(body)
        started_s = time.perf_counter()
        self._http.request(method, path, data, headers)
        response = self._http.getresponse()
        first = response.read(1)
        elapsed_s = time.perf_counter() - started_s
        return elapsed_s, first + response.read()

    def chat(self, messages: list[Fields], session: str | None = None) -> tuple[float, Fields]:
        """TTFT in seconds, and the `duramen` object with the reply."""
        body = {"messages": messages, "stream": True, "max_tokens": 4, "temperature": 0}
        named = {"x-duramen-session": session} if session else {}
        more = {"x-duramen-explain": "1", **named}
        elapsed_s, data = self.ask("POST", "/v1/chat/completions", body, **more)
        chunks = [msgspec.json.decode(line[6:]) for line in data.split(b"\n\n") if b"{" in line]
        assert "duramen" in chunks[-1], data[-500:]
        texts = [each["delta"].get("content") for c in chunks for each in c["choices"]]
        return elapsed_s, {**chunks[-1]["duramen"], "reply": "".join(filter(None, texts))}


@dataclass(frozen=True)
class Pair:
    """Seconds."""

    known: float
    unknown: float


def signed_rank_p(pairs: list[Pair], rng: np.random.Generator) -> float:
    """Probability that chance alone orders the pairs so unevenly, whichever way."""
    differences = np.array([pair.known - pair.unknown for pair in pairs])
    ranks = np.empty(len(differences))
    ranks[np.argsort(np.abs(differences))] = np.arange(1, len(differences) + 1)
    observed = abs(float(np.sum(np.sign(differences) * ranks)))
    flips = rng.choice([-1.0, 1.0], size=(NUM_FLIPS, len(ranks)))
    as_uneven = int(np.sum(np.abs(flips @ ranks) >= observed))
    return (as_uneven + 1) / (NUM_FLIPS + 1)


class Probes:
    def __init__(self, port: int, keys: list[str], seed: int) -> None:
        self._alice, self._bob = (Tenant(port, key) for key in keys)
        self._random = random.Random(seed)
        self.found: dict[str, list[Pair]] = {}
        self.num_cached = self.num_recorded = 0

    def round(self) -> None:
        """One pair of each probe."""
        held, reply, session = self._conversation()
        known = [held, {"role": "assistant", "content": reply}, _user("And then?")]
        unknown = [self._question(), known[1], known[2]]
        nobodys = f"s-{self._random.getrandbits(64):016x}"
        self._pair("history", lambda: self._chat(known), lambda: self._chat(unknown))
        for method in ("GET", "DELETE"):
            self._pair(
                f"session {method}",
                partial(self._look, method, session),
                partial(self._look, method, nobodys),
            )
        short = [[_user(self._text(8))] for _ in range(2)]
        self._pair(
            "session named",
            lambda: self._chat(short[0], session),
            lambda: self._chat(short[1], nobodys),
        )
        fresh = [self._question(), known[1], known[2]]
        others = [[self._question(), *known[1:]] for _ in range(2)]
        self._pair("null", lambda: self._chat(others[0]), lambda: self._chat(others[1]))
        self._pair(
            "control", lambda: self._alice.chat(known)[0], lambda: self._alice.chat(fresh)[0]
        )

    def _pair(self, name: str, known: Callable[[], float], unknown: Callable[[], float]) -> None:
        if self._random.random() < 0.5:
            first = known()
            pair = Pair(first, unknown())
        else:
            first = unknown()
            pair = Pair(known(), first)
        self.found.setdefault(name, []).append(pair)

    def _chat(self, messages: list[Fields], session: str | None = None) -> float:
        elapsed_s, told = self._bob.chat(messages, session)
        self.num_cached += told["delivered_tokens"] or 0
        self.num_recorded += told["recorded_tokens"]
        return elapsed_s

    def _look(self, method: str, session: str) -> float:
        elapsed_s, data = self._bob.ask(method, SESSIONS + session)
        assert b"session_not_found" in data, data
        return elapsed_s

    def _conversation(self) -> tuple[Fields, str, str]:
        question = self._question()
        _, told = self._alice.chat([question])
        return question, told["reply"], told["session"]

    def _question(self) -> Fields:
        return _user(self._text(NUM_WORDS))

    def _text(self, num_words: int) -> str:
        return " ".join(self._random.choices(WORDS, k=num_words))


def _user(text: str) -> Fields:
    return {"role": "user", "content": text}


@contextmanager
def gateway(upstream: str, keys: list[str]) -> Iterator[int]:
    """Its port."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        free.close()
        key_file = Path(folder) / "keys"
        key_file.write_text("".join(f"{key_line(f't{i}', k)}\n" for i, k in enumerate(keys)))
        key_file.chmod(0o600)
        command = [sys.executable, "-m", "duramen.cli.main", "serve", "smollm2"]
        command += ["--upstream", upstream, "--port", str(port), "--api-key-file", str(key_file)]
        command += ["--store", str(Path(folder) / "sessions.sqlite")]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
            try:
                _wait(f"http://127.0.0.1:{port}/health")
                yield port
            finally:
                run.terminate()


def _wait(url: str) -> None:
    deadline_s = time.monotonic() + START_S
    while True:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.2)


def main() -> int:
    parser = argparse.ArgumentParser(description="Tries to time another tenant's sessions.")
    parser.add_argument("upstream", help="URL of a vLLM that serves smollm2")
    parser.add_argument("--pairs", type=int, default=200)
    arguments = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32)
    keys = [new_key(), new_key()]
    with gateway(arguments.upstream, keys) as port:
        probes = Probes(port, keys, seed)
        for _ in range(arguments.pairs):
            probes.round()
    rng = np.random.default_rng(seed)
    above = []
    print(f"seed {seed}, {arguments.pairs} interleaved pairs; medians in ms")
    print(f"{'probe':16}{'foreign':>10}{'unknown':>10}{'median of differences':>24}{'p':>10}")
    for name, pairs in probes.found.items():
        p = signed_rank_p(pairs, rng)
        known, unknown = (1e3 * median(getattr(x, f) for x in pairs) for f in ("known", "unknown"))
        difference = 1e3 * median(pair.known - pair.unknown for pair in pairs)
        print(f"{name:16}{known:10.2f}{unknown:10.2f}{difference:24.3f}{p:10.4f}")
        if p < LEVEL:
            above.append(name)
    print(f"cached tokens of foreign prefixes: {probes.num_cached}")
    print(f"recorded tokens of foreign sessions: {probes.num_recorded}")
    quiet = above == ["control"] and not probes.num_cached and not probes.num_recorded
    print("nothing above noise" if quiet else f"above noise: {above or 'not even the control'}")
    return 0 if quiet else 1


if __name__ == "__main__":
    sys.exit(main())
