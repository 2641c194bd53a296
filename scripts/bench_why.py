"""Times `duramen why --log` on a long session: 1,000 calls of about 100,000 tokens that extend each
other, written as OpenAI chat JSONL (one request per line, the whole history in each).

The text is cut from this repository's source. A process of its own runs the command, so that its
peak memory is its own; reading the log is part of the time.
"""

import argparse
import json
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.table import Table

from duramen.cli.output import write_json
from duramen.layout.tokenizer import Tokenizer
from duramen.serving.models import fetch
from duramen.serving.probe import device_name

NUM_CALLS = 1_000
START_TOKENS = 50_000  # so that the middle call has 100,000
REPLY_TOKENS, RESULT_TOKENS = 40, 60
CHUNK_TOKENS = 500  # of a message in the history that the session starts with
TOOLS = [{"type": "function", "function": {"name": "read", "description": "Read a file"}}]


def text_source(tokenizer: Tokenizer) -> Callable[[int], str]:
    """A function of a number of tokens: text of about that length, another each time."""
    random = Random(7)
    sources = sorted(Path(__file__).parents[1].glob("*/duramen/*/*.py"))
    ids = tokenizer.encode_text("".join(source.read_text("utf-8") for source in sources))

    def text(num_tokens: int) -> str:
        start = random.randrange(len(ids) - num_tokens)
        # What began with a blank would not have the ids of the same text behind the frame.
        return tokenizer.decode(ids[start : start + num_tokens]).strip()

    return text


def write_log(path: Path, num_calls: int, start_tokens: int) -> None:
    directory = fetch("smollm2", lambda line: None)
    text = text_source(Tokenizer.load(directory))
    messages: list[dict[str, Any]] = [{"role": "system", "content": text(CHUNK_TOKENS)}]
    while len(messages) * CHUNK_TOKENS < start_tokens:
        messages.append({"role": "user", "content": text(CHUNK_TOKENS)})
    with path.open("w", encoding="utf-8") as file:
        for number in range(num_calls):
            reply = {"role": "assistant", "content": text(REPLY_TOKENS)}
            line = {
                "session_id": "long",
                "timestamp": 1_767_225_600 + 10 * number,
                "tools": TOOLS,
                "messages": messages,
                "response": {"message": reply},
            }
            file.write(json.dumps(line) + "\n")
            messages += [reply, {"role": "user", "content": text(RESULT_TOKENS)}]


def measure(num_calls: int, start_tokens: int) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        log, result = Path(folder) / "log.jsonl", Path(folder) / "why.json"
        write_log(log, num_calls, start_tokens)
        command = [sys.executable, "-m", "duramen.cli.main", "why", "--log", str(log)]
        started = time.perf_counter()
        subprocess.run([*command, "--json", str(result)], check=True)
        elapsed_s = time.perf_counter() - started
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        calls = json.loads(result.read_text("utf-8"))["calls"]
        return {
            "num_calls": len(calls),
            "mean_tokens": sum(call["num_tokens"] for call in calls) // len(calls),
            "num_breaks": sum(call["break"] is not None for call in calls[1:]),
            "log_bytes": log.stat().st_size,
            "elapsed_s": elapsed_s,
            "cpu_s": used.ru_utime + used.ru_stime,
            "peak_bytes": used.ru_maxrss * 1024,
        }


def as_table(result: dict[str, Any]) -> Table:
    title = f"why --log: {result['num_calls']:,} calls of {result['mean_tokens']:,} tokens"
    table = Table(title=f"{title}\n{result['device']}")
    for column in ("log", "time", "CPU time", "peak memory", "breaks"):
        table.add_column(column, justify="right")
    table.add_row(
        f"{result['log_bytes'] / 1e6:,.0f} MB",
        f"{result['elapsed_s']:.1f} s",
        f"{result['cpu_s']:.1f} s",
        f"{result['peak_bytes'] / 1e6:,.0f} MB",
        f"{result['num_breaks']}",
    )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=NUM_CALLS)
    parser.add_argument("--start-tokens", type=int, default=START_TOKENS)
    parser.add_argument("--json", choices=["-"], help="print JSON instead of a table")
    arguments = parser.parse_args()
    result = {
        "device": device_name(),
        "python": platform.python_version(),
        "model": "smollm2",
        **measure(arguments.calls, arguments.start_tokens),
    }
    if arguments.json:
        write_json("bench why", result, "-")
    else:
        Console().print(as_table(result))


if __name__ == "__main__":
    main()
